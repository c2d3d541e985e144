"""PyTorch checkpoints: a zip with a pickle and the storages, or, before that, pickles followed by the storages.

=========================== ==========================================================================================
``NAME/data.pkl``           a pickle; tensors in it refer to storages by persistent ids
``NAME/data/KEY``           the bytes of the storage ``KEY``
``NAME/byteorder``          ``little`` or ``big``
``NAME/version``            of the archive: ``3``
=========================== ==========================================================================================

A legacy file is five pickles (the magic number, the protocol, facts about the system, the content, the storage keys),
and then for each key an i64 count of elements and the elements.
"""

from __future__ import annotations

from typing import Final

from holdall.binary.layout import I64, Layout

__all__ = ["ALIGN", "COUNT", "LEGACY", "OPAQUE_BYTES", "STORAGES", "STORAGE_OF", "TYPES", "TYPE_OF"]

MAGIC_NUMBER: Final = 0x1950A86A20F9469CFC6C
# The first pickle is the magic number: by protocols 2 and 3, and by 4 and 5, which put it in a frame of 13 bytes.
_MAGIC: Final = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_FRAME: Final = b"\x95\r\0\0\0\0\0\0\0"
LEGACY: Final = tuple(bytes([0x80, protocol]) + (_FRAME if protocol > 3 else b"") + _MAGIC for protocol in (2, 3, 4, 5))
PROTOCOL: Final = 1001
PICKLES: Final = 5  # of a legacy file
ALIGN: Final = 64
COUNT: Final = Layout("storage size", elements=I64)

# The classes of typed storages, in the module torch.
STORAGES: Final = {
    "DoubleStorage": "f64",
    "FloatStorage": "f32",
    "HalfStorage": "f16",
    "BFloat16Storage": "bf16",
    "LongStorage": "i64",
    "IntStorage": "i32",
    "ShortStorage": "i16",
    "CharStorage": "i8",
    "ByteStorage": "u8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "c64",
    "ComplexDoubleStorage": "c128",
}
STORAGE_OF: Final = {name: word for word, name in STORAGES.items()}

# torch.dtype objects; those that have no typed storage are rebuilt from an untyped one.
TYPES: Final = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8_e4m3",
    "float8_e5m2": "f8_e5m2",
    "float8_e4m3fnuz": "f8_e4m3fnuz",
    "float8_e5m2fnuz": "f8_e5m2fnuz",
    "float8_e8m0fnu": "f8_e8m0",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint64": "u64",
    "uint32": "u32",
    "uint16": "u16",
    "uint8": "u8",
    "bool": "bool",
    "complex64": "c64",
    "complex128": "c128",
}
TYPE_OF: Final = {name: word for word, name in TYPES.items()}

# Types that are carried as bytes: how many an element takes.
OPAQUE_BYTES: Final = {
    "complex32": 4,
    "float4_e2m1fn_x2": 1,
    "bits8": 1,
    "bits16": 2,
    "bits1x8": 1,
    "bits2x4": 1,
    "bits4x2": 1,
}
