"""The rules of safetensors files."""

from __future__ import annotations

from typing import Final

from holdall.base.check import Rule

__all__ = ["RULES"]

SHORT: Final = Rule("safetensors.header.short", "the file holds at least the 8 bytes that count the header")
LENGTH: Final = Rule("safetensors.header.length", "the header ends inside the file")
START: Final = Rule("safetensors.header.start", "the header begins with {")
JSON: Final = Rule("safetensors.header.json", "the header is one strict JSON object, with nothing after it but padding")
UTF8: Final = Rule("safetensors.header.utf8", "the header is UTF-8")
PADDING: Final = Rule("safetensors.header.padding", "the header is padded with spaces", "strict")
CAP: Final = Rule("safetensors.header.cap", "the header has at most 100,000,000 bytes", "strict")
ALIGN: Final = Rule("safetensors.header.align", "the data begins at a multiple of 8", "strict", "warning")

META_TYPE: Final = Rule("safetensors.metadata.type", "__metadata__ is an object")
META_VALUE: Final = Rule("safetensors.metadata.value", "metadata values are text")
META_DUPLICATE: Final = Rule("safetensors.metadata.duplicate", "metadata keys are unique")

DUPLICATE: Final = Rule("safetensors.name.duplicate", "tensor names are unique")
EMPTY_NAME: Final = Rule("safetensors.name.empty", "tensor names are not empty", "strict", "warning")
ENTRY: Final = Rule("safetensors.entry.type", "a tensor is described by an object")
FIELD: Final = Rule("safetensors.entry.field", "an entry has no fields but dtype, shape and data_offsets")
FIELD_DUPLICATE: Final = Rule("safetensors.entry.duplicate", "an entry has each field once")
MISSING: Final = Rule("safetensors.entry.missing", "an entry has dtype, shape and data_offsets")

DTYPE_TYPE: Final = Rule("safetensors.dtype.type", "dtype is text")
DTYPE: Final = Rule("safetensors.dtype.unknown", "dtype is one of the known ones", severity="unread")
SHAPE: Final = Rule("safetensors.shape.type", "shape is an array")
DIM: Final = Rule("safetensors.shape.dim", "dims are integers from 0 to 2^64-1")
PRODUCT: Final = Rule("safetensors.shape.product", "the dims multiply within 64 bits, from the left", "strict")

OFFSETS: Final = Rule("safetensors.offsets.type", "data_offsets are two integers from 0 to 2^64-1")
OFFSET_ORDER: Final = Rule("safetensors.offsets.order", "data_offsets do not descend")
OFFSET_RANGE: Final = Rule("safetensors.offsets.range", "data_offsets end inside the data")
BITS: Final = Rule("safetensors.size.bits", "a tensor takes whole bytes")
SIZE: Final = Rule("safetensors.size.bytes", "data_offsets span what dtype and shape need")

HOLE: Final = Rule("safetensors.data.hole", "tensors follow each other without holes")
OVERLAP: Final = Rule("safetensors.data.overlap", "tensors do not share bytes")
TRAILING: Final = Rule("safetensors.data.trailing", "nothing follows the last tensor")
TENSOR_ALIGN: Final = Rule("safetensors.data.align", "a tensor begins at a multiple of its item size", "strict", "note")

RULES: Final = tuple(value for value in list(globals().values()) if isinstance(value, Rule))
