"""The block types of ggml: how many elements share a block, how many bytes it takes, and what they decode to.

A tensor of such a type is a run of blocks over its elements in row-major order; a row never ends inside a block.

>>> BLOCKS[2].name, BLOCKS[2].nbytes((2, 64))
('ggml.q4_0', 72)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from holdall.encodings import Encoding
from holdall.errors import UnsupportedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BLOCKS", "PLAIN", "Blocks", "by_name"]

# ggml ids of plain element types, and what they are called here.
PLAIN: Mapping[int, str] = {
    0: "f32", 1: "f16", 24: "i8", 25: "i16", 26: "i32", 27: "i64", 28: "f64", 30: "bf16",
}  # fmt: skip


class Blocks(Encoding):
    """One block type: ``elements`` of them in ``block_bytes``."""

    def __init__(self, id: int, title: str, block_bytes: int, elements: int) -> None:
        self.id = id
        self.title = title  # as ggml writes it: "Q4_0"
        self.name = f"ggml.{title.lower()}"
        self.block_bytes = block_bytes
        self.elements = elements

    def __repr__(self) -> str:
        return f"<{self.name}: {self.elements} elements in {self.block_bytes} bytes>"

    def __reduce__(self) -> tuple[Callable[[str], Blocks], tuple[str]]:
        return by_name, (self.name,)

    def nbytes(self, shape: Sequence[int]) -> int:
        """Bytes of all blocks; the last one may be part full."""
        return -(-prod(shape) // self.elements) * self.block_bytes

    def decode(self, data: memoryview, shape: Sequence[int]) -> NDArray[Any]:
        """The values as float32, where the type has a decoder."""
        decoder = _DECODERS.get(self.title)
        if decoder is None:
            raise UnsupportedError(f"{self.name}: these blocks have no decoder yet; raw() gives them as stored")
        import numpy as np

        count = prod(shape)
        blocks = np.frombuffer(data, np.uint8, self.nbytes(shape)).reshape(-1, self.block_bytes)
        return decoder(blocks).reshape(-1)[:count].reshape(shape)

    def rows(self, shape: Sequence[int], start: int, stop: int) -> list[tuple[int, int]] | None:
        """Rows stand apart where each is a whole number of blocks."""
        if not shape or prod(shape[1:]) % self.elements:
            return None
        row = prod(shape[1:]) // self.elements * self.block_bytes
        return [(start * row, stop * row)]

    def decode_rows(self, ranges: Sequence[memoryview], shape: Sequence[int]) -> NDArray[Any]:
        """The rows of one range."""
        return self.decode(ranges[0], shape)


def _half(blocks: NDArray[Any], at: int) -> NDArray[Any]:
    import numpy as np

    return blocks[:, at : at + 2].copy().view(np.float16).astype(np.float32)


def _nibbles(quants: NDArray[Any]) -> NDArray[Any]:
    """Low halves of all bytes, then the high ones."""
    import numpy as np

    return np.concatenate([quants & 15, quants >> 4], axis=1)


def _fifth_bits(blocks: NDArray[Any], at: int) -> NDArray[Any]:
    import numpy as np

    return np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little") << np.uint8(4)


def _q4_0(blocks: NDArray[Any]) -> NDArray[Any]:
    values: NDArray[Any] = _half(blocks, 0) * (_nibbles(blocks[:, 2:]).astype("f4") - 8)
    return values


def _q4_1(blocks: NDArray[Any]) -> NDArray[Any]:
    values: NDArray[Any] = _half(blocks, 0) * _nibbles(blocks[:, 4:]).astype("f4") + _half(blocks, 2)
    return values


def _q5_0(blocks: NDArray[Any]) -> NDArray[Any]:
    values: NDArray[Any] = _half(blocks, 0) * ((_nibbles(blocks[:, 6:]) | _fifth_bits(blocks, 2)).astype("f4") - 16)
    return values


def _q5_1(blocks: NDArray[Any]) -> NDArray[Any]:
    values: NDArray[Any] = _half(blocks, 0) * (_nibbles(blocks[:, 8:]) | _fifth_bits(blocks, 4)).astype("f4") + _half(
        blocks, 2
    )
    return values


def _q8_0(blocks: NDArray[Any]) -> NDArray[Any]:
    values: NDArray[Any] = _half(blocks, 0) * blocks[:, 2:].view("i1").astype("f4")
    return values


_DECODERS: Mapping[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q8_0": _q8_0,
}  # fmt: skip

# id, name, bytes of a block, elements in it
_TABLE = (
    (2, "Q4_0", 18, 32),
    (3, "Q4_1", 20, 32),
    (6, "Q5_0", 22, 32),
    (7, "Q5_1", 24, 32),
    (8, "Q8_0", 34, 32),
    (9, "Q8_1", 40, 32),
    (10, "Q2_K", 84, 256),
    (11, "Q3_K", 110, 256),
    (12, "Q4_K", 144, 256),
    (13, "Q5_K", 176, 256),
    (14, "Q6_K", 210, 256),
    (15, "Q8_K", 292, 256),
    (16, "IQ2_XXS", 66, 256),
    (17, "IQ2_XS", 74, 256),
    (18, "IQ3_XXS", 98, 256),
    (19, "IQ1_S", 50, 256),
    (20, "IQ4_NL", 18, 32),
    (21, "IQ3_S", 110, 256),
    (22, "IQ2_S", 82, 256),
    (23, "IQ4_XS", 136, 256),
    (29, "IQ1_M", 56, 256),
    (34, "TQ1_0", 54, 256),
    (35, "TQ2_0", 66, 256),
    (39, "MXFP4", 17, 32),
)

BLOCKS: Mapping[int, Blocks] = {row[0]: Blocks(*row) for row in _TABLE}


def by_name(name: str) -> Blocks:
    """The block type called ``name``.

    >>> by_name("ggml.q8_0").id
    8
    """
    for blocks in BLOCKS.values():
        if blocks.name == name:
            return blocks
    raise UnsupportedError(f"there is no block type {name!r}")
