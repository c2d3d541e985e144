"""What a GGUF file must obey: one row a rule."""

from __future__ import annotations

from typing import Final

from holdall.base.check import Rule

__all__ = ["RULES"]

SIZE: Final = Rule("gguf.header.size", "the file holds at least the 24-byte header")
MAGIC: Final = Rule("gguf.header.magic", "the file begins with GGUF")
BIG_ENDIAN: Final = Rule("gguf.header.endian", "the file is little-endian")
VERSION_1: Final = Rule("gguf.header.version_1", "the file is newer than version 1, which readers have given up")
VERSION: Final = Rule("gguf.header.version", "the version is 2 or 3")
COUNTS: Final = Rule("gguf.header.counts", "the file has room for as many entries and tensors as it announces")
END: Final = Rule("gguf.table.end", "metadata and tensor table end inside the file")

KEY_UTF8: Final = Rule("gguf.key.utf8", "keys are UTF-8")
KEY_EMPTY: Final = Rule("gguf.key.empty", "keys are not empty")
KEY_DUPLICATE: Final = Rule("gguf.key.duplicate", "keys are unique")
KEY_LENGTH: Final = Rule("gguf.key.length", "keys have at most 65535 bytes", "strict")
KEY_CHARSET: Final = Rule("gguf.key.charset", "keys are words of a-z 0-9 _ -, joined by dots", "strict", "warning")

TYPE: Final = Rule("gguf.metadata.type", "the type of a value is one of the 13 tags")
ARRAY_TYPE: Final = Rule("gguf.array.type", "the type of array elements is one of the 13 tags")
ARRAY_COUNT: Final = Rule("gguf.array.count", "the file has room for the elements of an array")
STRING_UTF8: Final = Rule("gguf.metadata.utf8", "strings are UTF-8")
BOOL: Final = Rule("gguf.metadata.bool", "booleans are 0 or 1")
NESTED: Final = Rule("gguf.array.nested", "arrays hold no arrays: ggml does not read them", "strict", "warning")

ALIGNMENT_TYPE: Final = Rule("gguf.alignment.type", "general.alignment is a u32")
ALIGNMENT: Final = Rule("gguf.alignment.power", "general.alignment is a power of two")
ALIGNMENT_8: Final = Rule("gguf.alignment.eight", "general.alignment is a multiple of 8", "strict", "warning")

NAME_UTF8: Final = Rule("gguf.tensor.utf8", "tensor names are UTF-8")
NAME_DUPLICATE: Final = Rule("gguf.tensor.duplicate", "tensor names are unique")
NAME_GGML: Final = Rule("gguf.tensor.name", "names have 1 to 63 bytes and no NUL: ggml keeps no more", "strict",
                        "warning")  # fmt: skip
RANK: Final = Rule("gguf.tensor.rank", "tensors have at most 4 dimensions")
DIMS: Final = Rule("gguf.tensor.dims", "dimensions are below 2^63")
DTYPE: Final = Rule("gguf.tensor.type", "the type of a tensor is known", "structure", "note")
REMOVED: Final = Rule("gguf.tensor.removed", "the type of a tensor is one that ggml still has")
BLOCK: Final = Rule("gguf.tensor.block", "the rows of a tensor are whole blocks")
OFFSET_ALIGN: Final = Rule("gguf.tensor.align", "offsets are multiples of the alignment")
PLACE: Final = Rule("gguf.tensor.place", "payloads lie inside the file")
DATA_SIZE: Final = Rule("gguf.tensor.size", "dimensions multiply to what a file can hold")
OVERLAP: Final = Rule("gguf.data.overlap", "payloads do not share bytes", "strict")
ORDER: Final = Rule("gguf.data.order", "payloads follow each other in the order of the table: ggml reads no others",
                    "strict", "warning")  # fmt: skip
END_PAD: Final = Rule("gguf.data.end", "the last payload is padded to the alignment", "strict", "warning")

SPLIT_KEYS: Final = Rule("gguf.split.keys", "split.no and split.count are integers, and no is below count")
SPLIT_NAME: Final = Rule(
    "gguf.split.name", "a part is called NAME-00001-of-0000N.gguf, by its split.no and split.count"
)
SPLIT_FOLDER: Final = Rule("gguf.split.folder", "a folder has the parts of one model, NAME-00001-of-0000N.gguf")
SPLIT_MISSING: Final = Rule("gguf.split.missing", "all parts of a split model are there")
SPLIT_AGREE: Final = Rule("gguf.split.agree", "all parts state the same count, each its own number")
SPLIT_TENSORS: Final = Rule("gguf.split.tensors", "split.tensors.count is the number of tensors in all parts")
SPLIT_DUPLICATE: Final = Rule("gguf.split.duplicate", "no two parts have a tensor of the same name")

RULES: Final = tuple(value for value in list(globals().values()) if isinstance(value, Rule))
