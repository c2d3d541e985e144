"""npy and npz: an array with a header of text, and a zip of such files.

================= ====================================================================================================
``PREFIX``        ``\\x93NUMPY``, then the version
1.0               u16 length of the header, Latin-1
2.0 and 3.0       u32 length of the header, Latin-1 or UTF-8
the header        a Python dict of literals: ``{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }``
the rest          the elements
================= ====================================================================================================
"""

from __future__ import annotations

from typing import Final

from holdall.binary.layout import U8, U16, Layout, raw

__all__ = ["ALIGN", "CODE_OF", "DTYPES", "FRONT", "MAGIC", "METADATA", "OPAQUE", "PREFIX", "SUFFIX"]

MAGIC: Final = b"\x93NUMPY"
PREFIX: Final = Layout("npy prefix", magic=raw(6), major=U8, minor=U8)
FRONT: Final = Layout("npy front", **PREFIX.fields, size=U16)  # the front of version 1.0
ALIGN: Final = 64

SUFFIX: Final = ".npy"
OPAQUE: Final = "npy."  # begins the names of types that are copied but not decoded; their descr follows
METADATA: Final = "__metadata__"  # the array of bytes that holds the metadata as JSON

# What follows the byte order in ``descr``.
DTYPES: Final = {
    "f8": "f64",
    "f4": "f32",
    "f2": "f16",
    "i8": "i64",
    "i4": "i32",
    "i2": "i16",
    "i1": "i8",
    "u8": "u64",
    "u4": "u32",
    "u2": "u16",
    "u1": "u8",
    "b1": "bool",
    "c8": "c64",
    "c16": "c128",
}
CODE_OF: Final = {name: code for code, name in DTYPES.items()}
