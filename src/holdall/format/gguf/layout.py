"""The GGUF tables, as in the format's document. All integers little-endian."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdall.binary.layout import U32, U64, Layout, array, raw, text

__all__ = ["ALIGNMENT", "ARRAY", "DEFAULT_ALIGNMENT", "HEADER", "KINDS", "MAGIC", "MAX_DIMS", "MAX_KEY", "MAX_NAME"]
__all__ += ["STRING", "TAG_OF", "TENSOR", "TEXT", "Kind"]

MAGIC: Final = b"GGUF"
ALIGNMENT: Final = "general.alignment"  # the key that says on what multiples payloads begin
DEFAULT_ALIGNMENT: Final = 32
MAX_DIMS: Final = 4  # the limit of ggml
MAX_NAME: Final = 63  # bytes of a tensor's name that ggml has room for, without the NUL that it adds
MAX_KEY: Final = 65_535

HEADER: Final = Layout("header", magic=raw(4), version=U32, n_tensors=U64, n_kv=U64)

# ``dims`` go from the axis that varies fastest to the slowest: the reverse of a shape in row-major order.
TENSOR: Final = Layout(
    "tensor", name=text(U64), n_dims=U32, dims=array(U64, "n_dims"), type=U32, offset=U64
)  # fmt: skip

TEXT: Final = Layout("string", text=text(U64))


@dataclass(frozen=True, slots=True)
class Kind:
    """How a metadata value of a fixed size is stored."""

    name: str
    code: str  # the code of struct; with "<" before it, that of numpy
    size: int


STRING, ARRAY = 8, 9

# A metadata entry is a key (string), a tag (u32) and the value; a string is a counter (u64) and its bytes; an array
# is the tag of its elements (u32), their count (u64) and the elements.
KINDS: Final = {
    0: Kind("u8", "B", 1),
    1: Kind("i8", "b", 1),
    2: Kind("u16", "H", 2),
    3: Kind("i16", "h", 2),
    4: Kind("u32", "I", 4),
    5: Kind("i32", "i", 4),
    6: Kind("f32", "f", 4),
    7: Kind("bool", "?", 1),
    10: Kind("u64", "Q", 8),
    11: Kind("i64", "q", 8),
    12: Kind("f64", "d", 8),
}

TAG_OF: Final = {**{kind.name: tag for tag, kind in KINDS.items()}, "string": STRING, "array": ARRAY}
