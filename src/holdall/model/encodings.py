"""Stored bytes that are more than an array of a dtype: quantized payloads, opaque blocks.

``tensor.dtype`` is either a :class:`~holdall.model.dtypes.DType` or an :class:`Encoding`. Both say how many bytes a
shape takes and how bytes become numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from holdall.errors import UnsupportedError
from holdall.model.dtypes import DType

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Encoding", "Opaque", "Scaling", "Stored"]


class Encoding(ABC):
    """How a block-wise or quantized payload becomes float32."""

    name: str  # "mcf.k4", "ggml.q4_0"

    def __str__(self) -> str:
        return self.name

    @property
    def plain_type(self) -> str:
        """The dtype of the values when they are stored without the encoding."""
        return "f32"

    @property
    def rows_at_once(self) -> int:
        """How many rows are read together at the least, where memory allows: fewer would be many small reads."""
        return 1

    @abstractmethod
    def nbytes(self, shape: Sequence[int]) -> int:
        """Stored bytes of a tensor of this shape."""

    @abstractmethod
    def decode(self, data: memoryview, shape: Sequence[int]) -> NDArray[Any]:
        """Decode a fresh array of ``shape``."""

    def rows(self, shape: Sequence[int], start: int, stop: int) -> list[tuple[int, int]] | None:
        """The byte ranges of the rows ``start..stop`` of the first axis; None when rows cannot be decoded alone."""
        return None

    def decode_rows(self, ranges: Sequence[memoryview], shape: Sequence[int], first: int = 0) -> NDArray[Any]:
        """Decode a fresh array from the bytes of the ranges that :meth:`rows` gave; ``shape`` is that of these rows.

        ``first`` is the number of the first of them.
        """
        raise UnsupportedError(f"{self.name}: rows cannot be decoded alone")

    def decode_rows_into(self, ranges: Sequence[memoryview], out: NDArray[Any], first: int = 0) -> None:
        """Decode the rows of :meth:`decode_rows` into the float32 array ``out``, on this thread."""
        out[...] = self.decode_rows(ranges, out.shape, first)


class Opaque(Encoding):
    """Bytes that holdall cannot decode: it lists, extracts and copies them."""

    def __init__(self, name: str, nbytes: int) -> None:
        self.name = name
        self._nbytes = nbytes

    def nbytes(self, shape: Sequence[int]) -> int:
        """The size that the container states."""
        return self._nbytes

    def decode(self, data: memoryview, shape: Sequence[int]) -> NDArray[Any]:
        """Always raises UnsupportedError, since the meaning of the bytes is not known."""
        raise UnsupportedError(f"{self.name}: these bytes have no decoder; raw() gives them as stored")


@runtime_checkable
class Scaling(Protocol):
    """What scales the elements of a tensor of a plain dtype, for formats that store it beside the payload."""

    def dequantize(self, values: NDArray[Any], shape: Sequence[int], start: int = 0) -> NDArray[Any]:
        """The float32 that ``values`` stand for: flat elements of a tensor of ``shape``, the first at ``start``."""
        ...


Stored: TypeAlias = DType | Encoding
