"""The OINF tables, as in the format's document. All integers little-endian."""

from __future__ import annotations

from typing import Final

from holdall.binary.layout import U32, U64, Layout, array, raw, text

__all__ = ["ALIGN", "BITSET", "HAS_DATA", "HAS_QUANT", "HEADER", "MAGIC", "METADATA", "NDARRAY", "QUANT", "SIZEVAR"]
__all__ += ["STRING", "TAGS", "TAG_OF", "TENSOR", "align_up", "pad"]

MAGIC: Final = b"OINF\0"
ALIGN: Final = 8  # sections, payloads and strings start at multiples of it

_NAME = text(U32, pad=ALIGN)

# The magic has five bytes, so every field has an odd offset; three zero bytes make the header 72 bytes long.
HEADER: Final = Layout(
    "header",
    magic=raw(5),
    version=U32,
    flags=U32,
    n_sizevars=U32,
    n_metadata=U32,
    n_tensors=U32,
    reserved=U32,
    offset_sizevars=U64,
    offset_metadata=U64,
    offset_tensors=U64,
    offset_data=U64,
    file_size=U64,
    padding=raw(3),
)

SIZEVAR: Final = Layout("sizevar", name=_NAME, value=U64)

METADATA: Final = Layout("metadata", key=_NAME, value_type=U32, value_flags=U32, value_nbytes=U64, value_offset=U64)

# Entries follow each other without padding, so every second one starts at 4 mod 8.
_TENSOR = {"name": _NAME, "dtype": U32, "ndim": U32, "flags": U32, "dims": array(U64, "ndim")}

TENSOR: Final = {
    1: Layout("tensor", **_TENSOR, data_nbytes=U64, data_offset=U64),
    2: Layout("tensor", **_TENSOR, data_nbytes=U64, data_offset=U64, quant_nbytes=U64, quant_offset=U64),
}

HAS_DATA: Final = 1  # bits of a tensor's flags
HAS_QUANT: Final = 2  # version 2 only

# The head of a quant payload; scales (f32) and zero points (i32) follow, then zeros to 8.
QUANT: Final = Layout(
    "quant",
    scheme=U32,
    scale_mode=U32,
    zp_mode=U32,
    reserved=U32,
    scale_axis=U64,
    scale_count=U64,
    zp_axis=U64,
    zp_count=U64,
)

BITSET, STRING, NDARRAY = 13, 14, 15  # tags of values that are more than a number

TAGS: Final = {
    1: "i8",
    2: "i16",
    3: "i32",
    4: "i64",
    5: "u8",
    6: "u16",
    7: "u32",
    8: "u64",
    9: "f16",
    10: "f32",
    11: "f64",
    12: "bool",
    BITSET: "bitset",
    STRING: "string",
    NDARRAY: "ndarray",
    16: "bf16",
    17: "f8_e5m2",
    18: "i4",
    19: "i2",
    20: "i1",
    21: "u4",
    22: "u2",
    23: "u1",
    24: "t2",
    25: "t1",
}

TAG_OF: Final = {name: tag for tag, name in TAGS.items()}


def align_up(size: int) -> int:
    """``size``, or the next multiple of 8 above it.

    >>> align_up(16), align_up(17)
    (16, 24)
    """
    return size + -size % ALIGN


def pad(data: bytes) -> bytes:
    """``data`` with zeros up to a multiple of 8 bytes."""
    return data + bytes(-len(data) % ALIGN)
