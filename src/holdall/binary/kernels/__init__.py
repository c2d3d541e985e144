"""The loops that are too slow in Python: in C where it was compiled, else by plain Python twins.

Both give identical results; the twins document them. `pickle_tensors` and `protobuf_records` exist in C only: without
them the careful readers of their formats do all the work. `HOLDALL_NATIVE=0` chooses the twins, `HOLDALL_SIMD=0|1|2`
the instruction set of the C kernels.

    >>> out = bytearray(4)
    >>> unpack(b"\\x21\\x43", 0, 4, 4, 0, out)
    >>> list(out)
    [1, 2, 3, 4]
"""

import os

from holdall.binary.kernels.hashes import blake3_16

try:
    if os.environ.get("HOLDALL_NATIVE") == "0":
        raise ImportError("switched off by HOLDALL_NATIVE=0")
    from holdall.binary.kernels._native import (
        add_norm,
        bias_gelu,
        count_codes,
        count_reached,
        distance,
        equal,
        extremes,
        fnv1a,
        ggml_decode,
        json_records,
        json_tape,
        json_uints,
        json_words,
        measure,
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
except (ImportError, SystemError):  # the second from free-threaded Pythons, for an extension of another build
    from holdall.binary.kernels.encoder_reference import add_norm, bias_gelu, softmax
    from holdall.binary.kernels.ggml_reference import ggml_decode
    from holdall.binary.kernels.json_reference import json_records, json_tape, json_uints, json_words
    from holdall.binary.kernels.measure_reference import count_codes, count_reached, measure
    from holdall.binary.kernels.msgpack_reference import msgpack_dims, msgpack_table, msgpack_walk
    from holdall.binary.kernels.reference import (
        distance,
        equal,
        extremes,
        fnv1a,
        narrow,
        pack,
        scan,
        simd_level,
        texts,
        unpack,
        widen,
    )

    NATIVE = False

__all__ = ["NATIVE", "add_norm", "bias_gelu", "blake3_16", "count_codes", "count_reached", "distance", "equal"]
__all__ += ["extremes", "fnv1a", "ggml_decode", "json_records", "json_tape", "json_uints", "json_words", "measure"]
__all__ += ["msgpack_dims", "msgpack_table", "msgpack_walk", "narrow", "pack", "pickle_tensors", "protobuf_records"]
__all__ += ["scan", "simd_level", "softmax", "texts", "unpack", "widen"]
