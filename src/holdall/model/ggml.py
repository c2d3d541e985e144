"""The types of ggml: how many elements are in a block, how many bytes it takes, and how it is decoded.

A tensor of such a type is a sequence of blocks over its elements in row-major order; a row never ends inside a block.

>>> BLOCKS[2].name, BLOCKS[2].nbytes((2, 64))
('ggml.q4_0', 72)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from holdall.base.buffer_sizes import buffer_size
from holdall.base.memory import make_floats
from holdall.base.parallel import map_spans
from holdall.errors import UnsupportedError
from holdall.model.encodings import Encoding

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BLOCKS", "HALF_Q8_1", "PLAIN", "PREFIX", "REMOVED", "Blocks", "find_blocks"]

PREFIX = "ggml."  # of the names of encodings; an unknown type has its id for a name

# The dtypes of holdall by the ggml ids of plain element types.
PLAIN: Mapping[int, str] = {
    0: "f32", 1: "f16", 24: "i8", 25: "i16", 26: "i32", 27: "i64", 28: "f64", 30: "bf16",
}  # fmt: skip

# Ids that ggml has withdrawn: current files do not use them, and their layouts are no longer documented.
REMOVED: Mapping[int, str] = {
    4: "Q4_2", 5: "Q4_3", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}  # fmt: skip

_NATIVE = frozenset({2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 42})  # decoded by the kernels
_PIECE, _LEAST = buffer_size(1 << 20), buffer_size(1 << 18)  # values that one job decodes, and at least


class Blocks(Encoding):
    """One block type: ``elements`` values in ``block_bytes`` bytes."""

    def __init__(self, id: int, title: str, block_bytes: int, elements: int, name: str | None = None) -> None:
        self.id = id
        self.title = title  # as ggml writes it: "Q4_0"
        self.name = name or f"{PREFIX}{title.lower()}"
        self.block_bytes = block_bytes
        self.elements = elements

    def __repr__(self) -> str:
        return f"<{self.name}: {self.elements} elements in {self.block_bytes} bytes>"

    def __reduce__(self) -> tuple[Callable[[str], Blocks], tuple[str]]:
        return find_blocks, (self.name,)

    def nbytes(self, shape: Sequence[int]) -> int:
        """Bytes of all blocks; the last one may be partly filled."""
        return -(-prod(shape) // self.elements) * self.block_bytes

    def decode(self, data: memoryview, shape: Sequence[int]) -> NDArray[Any]:
        """Decode the values as float32: by the kernels, else by the ``gguf`` package where it is installed."""
        import numpy as np

        count = prod(shape)
        stored = memoryview(data)[: self.nbytes(shape)]
        if not count:
            return np.empty(shape, np.float32)
        flat = self._decode_by_kernels(stored) if self.id in _NATIVE else self._decode_by_gguf(stored)
        return flat[:count].reshape(shape)

    def rows(self, shape: Sequence[int], start: int, stop: int) -> list[tuple[int, int]] | None:
        """Rows can be decoded alone if each consists of complete blocks."""
        if not shape or prod(shape[1:]) % self.elements:
            return None
        row = prod(shape[1:]) // self.elements * self.block_bytes
        return [(start * row, stop * row)]

    def decode_rows(self, ranges: Sequence[memoryview], shape: Sequence[int], first: int = 0) -> NDArray[Any]:
        """Decode the rows of one range."""
        return self.decode(ranges[0], shape)

    def decode_rows_into(self, ranges: Sequence[memoryview], out: NDArray[Any], first: int = 0) -> None:
        """Decode the rows of one range into ``out``."""
        if self.id in _NATIVE:
            self._decode_blocks(ranges[0], out)
        else:
            out[...] = self.decode(ranges[0], out.shape)

    def _decode_by_kernels(self, stored: memoryview) -> NDArray[Any]:
        blocks = stored.nbytes // self.block_bytes
        out = make_floats((blocks * self.elements,))

        def decode_piece(start: int, stop: int) -> None:
            values = out[start * self.elements : stop * self.elements]
            self._decode_blocks(stored[start * self.block_bytes : stop * self.block_bytes], values)

        step, least = (max(1, values // self.elements) for values in (_PIECE, _LEAST))
        for _ in map_spans(decode_piece, blocks, step, least=least):
            pass
        return out

    def _decode_blocks(self, stored: memoryview, out: NDArray[Any]) -> None:
        """Decode complete blocks on this thread."""
        from holdall.binary import kernels

        kernels.ggml_decode(self.id, stored, out)

    def _decode_by_gguf(self, stored: memoryview) -> NDArray[Any]:
        import numpy as np

        try:
            from gguf import GGMLQuantizationType, dequantize
        except ImportError:
            message = f"{self.name}: decoding these blocks takes the gguf package (pip install 'holdall[gguf]')"
            raise UnsupportedError(f"{message}; raw() gives them as stored") from None
        blocks = np.frombuffer(stored, np.uint8).reshape(-1, self.block_bytes)
        try:
            with np.errstate(all="ignore"):
                values: NDArray[Any] = dequantize(blocks, GGMLQuantizationType(self.id))
        except (NotImplementedError, ValueError) as error:
            message = f"{self.name}: these blocks have no decoder, in the gguf package either"
            raise UnsupportedError(f"{message}; raw() gives them as stored") from error
        return np.ascontiguousarray(values, np.float32).reshape(-1)


class _HalfQ81(Blocks):
    """Q8_1 as ggml makes it today: f16 where older versions and the gguf package have f32."""

    def _decode_blocks(self, stored: memoryview, out: NDArray[Any]) -> None:
        import numpy as np

        blocks = np.frombuffer(stored, np.uint8).reshape(-1, self.block_bytes)
        without_sum = np.delete(blocks, (2, 3), axis=1)  # what is left is a block of Q8_0
        BLOCKS[8]._decode_blocks(without_sum.reshape(-1).data, out)


# id, name, bytes of a block, elements in it
_TABLE = (
    (2, "Q4_0", 18, 32),
    (3, "Q4_1", 20, 32),
    (6, "Q5_0", 22, 32),
    (7, "Q5_1", 24, 32),
    (8, "Q8_0", 34, 32),
    (9, "Q8_1", 40, 32),  # as in the gguf package and older ggml; HALF_Q8_1 is that of current ggml
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
    (40, "NVFP4", 36, 64),
    (41, "Q1_0", 18, 128),
    (42, "Q2_0", 18, 64),
)

BLOCKS: Mapping[int, Blocks] = {row[0]: Blocks(*row) for row in _TABLE}
HALF_Q8_1: Blocks = _HalfQ81(9, "Q8_1", 36, 32, "ggml.q8_1.f16")


def find_blocks(name: str) -> Blocks:
    """Find the block type called ``name``.

    >>> find_blocks("ggml.q8_0").id
    8
    """
    for blocks in (*BLOCKS.values(), HALF_Q8_1):
        if blocks.name == name:
            return blocks
    raise UnsupportedError(f"there is no block type {name!r}")
