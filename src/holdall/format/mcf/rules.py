"""The rules of an MCF file, one row each."""

from __future__ import annotations

from typing import Final

from holdall.base.check import Rule

__all__ = ["RULES"]

SIZE: Final = Rule("mcf.header.size", "the file holds the 40-byte header, and header_size lies in 40..file size")
MAGIC: Final = Rule("mcf.header.magic", "the file begins with MCF and a NUL")
MAJOR: Final = Rule("mcf.header.major", "the major version is 1")
FILE_SIZE: Final = Rule("mcf.header.file_size", "file_size is the exact size of the file")
COUNT: Final = Rule("mcf.header.section_count", "there is at least one section")
DIRECTORY: Final = Rule("mcf.header.directory", "the directory lies behind the header and inside the file")
FLAG: Final = Rule("mcf.header.aligned64", "flag bit 0 is set when there are q* or k* tensors")

SECTION_PLACE: Final = Rule("mcf.section.place", "sections lie behind the header, inside the file, off the directory")
SECTION_ALIGN: Final = Rule("mcf.section.align", "sections start on multiples of 8")
SECTION_OVERLAP: Final = Rule("mcf.section.overlap", "sections do not share bytes")
SECTION_REPEATED: Final = Rule("mcf.section.duplicate", "there is one section of each type", "strict")
SECTION_PAIR: Final = Rule(
    "mcf.section.pair", "TensorIndex and TensorData come together, QuantInfo with them", severity="warning"
)
REQUIRED: Final = Rule("mcf.section.required", "the sections that the caller depends on are there")

INDEX_SIZE: Final = Rule("mcf.index.size", "TensorIndex holds its 48-byte head, and every table lies inside it")
INDEX_VERSION: Final = Rule("mcf.index.version", "the version of TensorIndex is 1")
INDEX_COUNT: Final = Rule("mcf.index.count", "TensorIndex has at least one tensor")
INDEX_TOTAL: Final = Rule("mcf.index.total", "names and shapes together are no larger than TensorIndex")
INDEX_SORTED: Final = Rule("mcf.index.sorted", "names are in byte order when the flag says so")
INDEX_FLAGS: Final = Rule("mcf.index.flags", "TensorIndex defines bits 0 and 1 of flags only", "strict", "warning")
INDEX_ZERO: Final = Rule("mcf.index.zero", "the reserved field of an entry is 0", "strict")

NAME_PLACE: Final = Rule("mcf.name.place", "names lie inside the string table")
NAME_EMPTY: Final = Rule("mcf.name.empty", "names are not empty")
NAME_UTF8: Final = Rule("mcf.name.utf8", "names are UTF-8")
NAME_REPEATED: Final = Rule("mcf.name.duplicate", "names are unique")

DIMS_PLACE: Final = Rule("mcf.tensor.dims", "shapes lie inside the dims table")
DIM: Final = Rule("mcf.tensor.dim", "every dim is 1 or more and below 2^63")
DTYPE_RANGE: Final = Rule("mcf.tensor.dtype_range", "a dtype fits 16 bits")
DTYPE: Final = Rule("mcf.tensor.dtype", "the dtype is an assigned one", "full")
DATA_PLACE: Final = Rule("mcf.tensor.place", "payloads lie inside TensorData")
DATA_SIZE: Final = Rule("mcf.tensor.size", "data_size is what dtype and dims need")
QUANT_RANK: Final = Rule("mcf.tensor.rank", "q* and k* tensors have two dims")
QUANT_ALIGN: Final = Rule("mcf.tensor.align", "quantized payloads start on multiples of 64")

QUANT_SIZE: Final = Rule("mcf.quant.size", "QuantInfo holds its head and all its records")
QUANT_VERSION: Final = Rule("mcf.quant.version", "the version of QuantInfo is 1")
QUANT_METHOD: Final = Rule("mcf.quant.method", "the method of a record is a quantized dtype")
QUANT_RESERVED: Final = Rule("mcf.quant.reserved", "reserved bytes of a record are 0")
QUANT_DOMAIN: Final = Rule("mcf.quant.domain", "the domain is weights, or activations for int8 and int4")
QUANT_BLOCK: Final = Rule("mcf.quant.block", "block and super sizes are those of the method")
QUANT_INDEX: Final = Rule("mcf.quant.index", "the tensor of a record exists")
QUANT_MATCH: Final = Rule("mcf.quant.match", "the method of a record is the dtype of its tensor")
QUANT_PLAIN: Final = Rule("mcf.quant.plain", "only quantized tensors have records", "strict", "note")
QUANT_REPEATED: Final = Rule("mcf.quant.duplicate", "a tensor has one record")
QUANT_LAYOUT: Final = Rule("mcf.quant.layout", "the size of an int8 or int4 payload is that of its record's domain")

INFO_UNREAD: Final = Rule("mcf.modelinfo.unread", "ModelInfo can be read as metadata", severity="warning")
INFO_SIZE: Final = Rule("mcf.modelinfo.size", "ModelInfo holds its 88-byte head", "full")
INFO_VERSION: Final = Rule("mcf.modelinfo.version", "the version of ModelInfo is 1 and its flags are 0", "full")
INFO_TABLE: Final = Rule("mcf.modelinfo.table", "the key/value table lies inside ModelInfo", "full")
INFO_TEXT: Final = Rule("mcf.modelinfo.text", "texts and values lie inside ModelInfo and do not share bytes", "full")
INFO_KEY: Final = Rule("mcf.modelinfo.key", "keys are not empty, and UTF-8", "full")
INFO_TYPE: Final = Rule("mcf.modelinfo.type", "values are u32, f32 or text", "full")
INFO_ZERO: Final = Rule("mcf.modelinfo.zero", "padding fields of ModelInfo are 0", "strict")

GAP: Final = Rule("mcf.payload.gap", "the bytes between the regions of a quantized payload are 0", "strict")
SPARE: Final = Rule("mcf.payload.spare", "the spare nibble of an int4 payload is 0", "strict")
# The reference quantizer breaks this one itself, for blocks of numbers so small that they decode to 0.
COLUMNS: Final = Rule("mcf.payload.columns", "codes beyond the last column are 0", "strict", "warning")
SUBSCALE: Final = Rule("mcf.payload.subscale", "the top two bits of a sub-scale are 0", "strict", "warning")

RULES: Final = tuple(value for value in list(globals().values()) if isinstance(value, Rule))
