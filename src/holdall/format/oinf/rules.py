"""The rules of an OINF file, one row each."""

from __future__ import annotations

from typing import Final

from holdall.base.check import Rule

__all__ = ["RULES"]

SIZE: Final = Rule("oinf.header.size", "the file holds at least the 72-byte header")
MAGIC: Final = Rule("oinf.header.magic", "the file begins with OINF and a NUL")
VERSION: Final = Rule("oinf.header.version", "the version is 1 or 2")
FILE_SIZE: Final = Rule("oinf.header.file_size", "file_size is the exact size of the file")
ORDER: Final = Rule("oinf.header.order", "section offsets do not descend and end at most at file_size")
SECTION_ALIGN: Final = Rule("oinf.header.align", "section offsets are multiples of 8")
IN_HEADER: Final = Rule("oinf.header.overlap", "no table lies inside the header")
IN_HEADER_EMPTY: Final = Rule("oinf.header.offset", "the offset of an empty table lies outside the header", "strict")
RESERVED: Final = Rule("oinf.header.zero", "flags, reserved and the header's padding are 0", "strict")
END_PAD: Final = Rule("oinf.data.end", "the last payload is padded to 8 bytes", "strict")

TABLE: Final = Rule("oinf.table.end", "a table ends before the next section")
UTF8: Final = Rule("oinf.name.utf8", "names are UTF-8")
NAME: Final = Rule("oinf.name.charset", "names are one or more of A-Z a-z 0-9 . _ -")
DUPLICATE: Final = Rule("oinf.name.duplicate", "names are unique within their table")
NAME_PAD: Final = Rule("oinf.name.padding", "names are padded with zeros", "strict")

META_FLAGS: Final = Rule("oinf.metadata.flags", "value_flags is 0")
META_TYPE: Final = Rule("oinf.metadata.type", "value_type is one of the 25 tags")
META_PLACE: Final = Rule("oinf.metadata.place", "values lie in the data section, on multiples of 8, inside the file")
META_TOTAL: Final = Rule("oinf.metadata.total", "all values together are no larger than the file")
META_SIZE: Final = Rule("oinf.metadata.size", "value_nbytes is what the value takes")
META_STRING: Final = Rule("oinf.metadata.utf8", "strings are UTF-8")
META_BITSET: Final = Rule("oinf.metadata.bitset", "byte_count is bit_count / 8, rounded up")
META_ARRAY: Final = Rule("oinf.metadata.ndarray", "array elements are of a tensor type other than BITSET")
META_CHARSET: Final = Rule("oinf.metadata.charset", "string values keep to the charset of names", "strict", "warning")
META_BOOL: Final = Rule("oinf.metadata.bool", "BOOL values are 0 or 1", "strict")
META_BITS: Final = Rule("oinf.metadata.bits", "unused bits and padding of values are 0", "strict")

DTYPE: Final = Rule("oinf.tensor.dtype", "dtype is a tag of 1-13 or 16-25")
DTYPE_BITSET: Final = Rule("oinf.tensor.bitset", "BITSET tensors are contested", "strict", "warning")
FLAGS: Final = Rule("oinf.tensor.flags", "version 2 defines bits 0 and 1 of flags only")
FLAGS_V1: Final = Rule("oinf.tensor.flags_v1", "version 1 defines bit 0 of flags only", "strict")
DECLARED: Final = Rule("oinf.tensor.declared", "a tensor without data has offset 0 and size 0")
DATA_PLACE: Final = Rule("oinf.tensor.place", "payloads lie in the data section, on multiples of 8, inside the file")
DATA_SIZE: Final = Rule("oinf.tensor.size", "data_nbytes is what dtype and dims need")
OVERLAP: Final = Rule("oinf.data.overlap", "payloads do not share bytes", "strict")
BOOLS: Final = Rule("oinf.tensor.bool", "BOOL elements are 0 or 1", "strict")
TERNARY: Final = Rule("oinf.tensor.ternary", "T2 has no code 10", "strict")
BITS: Final = Rule("oinf.tensor.bits", "unused bits of a packed payload are 0", "strict")

NO_QUANT: Final = Rule("oinf.quant.absent", "a tensor without quant has quant offset 0 and size 0")
QUANT_PLACE: Final = Rule("oinf.quant.place", "quant payloads lie in the data section, on multiples of 8, in the file")
QUANT_HEAD: Final = Rule("oinf.quant.head", "scheme, modes, axes and counts agree with each other and with the tensor")
QUANT_SIZE: Final = Rule("oinf.quant.size", "quant_nbytes is what the counts need")
QUANT_AXIS: Final = Rule("oinf.quant.axis", "zp_axis is 0 without zero points", "strict")
QUANT_PAD: Final = Rule("oinf.quant.padding", "quant padding is 0", "strict")

RULES: Final = tuple(value for value in list(globals().values()) if isinstance(value, Rule))
