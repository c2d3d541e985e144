"""The few loops that are too slow in Python: in C where it was compiled, else by their readable twins.

Both give identical results; reference.py says which. `HOLDALL_NATIVE=0` chooses the twins, `HOLDALL_SIMD=0|1|2` the
instruction set of the C ones.

    >>> out = bytearray(4)
    >>> unpack(b"\\x21\\x43", 0, 4, 4, 0, out)
    >>> list(out)
    [1, 2, 3, 4]
"""

import os

try:
    if os.environ.get("HOLDALL_NATIVE") == "0":
        raise ImportError("switched off by HOLDALL_NATIVE=0")
    from ._native import (
        add_norm,
        bias_gelu,
        blake3_16,
        distance,
        fnv1a,
        ggml_decode,
        json_records,
        json_tape,
        json_uints,
        json_words,
        msgpack_dims,
        msgpack_table,
        msgpack_walk,
        narrow,
        pack,
        pickle_tensors,
        protobuf_records,
        scan,
        simd_level,
        softmax,
        texts,
        unpack,
        widen,
    )

    NATIVE = True
except ImportError:
    from .encoder_reference import add_norm, bias_gelu, softmax
    from .ggml_reference import ggml_decode
    from .json_reference import json_records, json_tape, json_uints, json_words
    from .msgpack_reference import msgpack_dims, msgpack_table, msgpack_walk
    from .pickle_reference import pickle_tensors
    from .protobuf_reference import protobuf_records
    from .reference import blake3_16, distance, fnv1a, narrow, pack, scan, simd_level, texts, unpack, widen

    NATIVE = False

__all__ = ["NATIVE", "blake3_16", "distance", "fnv1a", "narrow", "pack", "scan", "simd_level", "texts", "unpack"]
__all__ += ["widen"]
__all__ += ["ggml_decode"]
__all__ += ["add_norm", "bias_gelu", "softmax"]
__all__ += ["json_records", "json_tape", "json_uints", "json_words"]
__all__ += ["msgpack_dims", "msgpack_table", "msgpack_walk"]
__all__ += ["pickle_tensors"]
__all__ += ["protobuf_records"]
