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
    from ._native import narrow, pack, scan, simd_level, texts, unpack, widen

    NATIVE = True
except ImportError:
    from .reference import narrow, pack, scan, simd_level, texts, unpack, widen

    NATIVE = False

__all__ = ["NATIVE", "narrow", "pack", "scan", "simd_level", "texts", "unpack", "widen"]
