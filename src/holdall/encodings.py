"""Stored bytes that are more than a dtype: quantized payloads, opaque blocks.

An :class:`Encoding` stands where a :class:`~holdall.dtypes.DType` stands: ``tensor.dtype`` is one or the
other, and both say how many bytes a shape takes and how bytes become numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from holdall.dtypes import DType
from holdall.errors import UnsupportedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Encoding", "Opaque", "Stored"]


class Encoding(ABC):
    """How a block-wise or quantized payload becomes float32."""

    name: str  # "mcf.k4", "ggml.q4_0"

    def __str__(self) -> str:
        return self.name

    @abstractmethod
    def nbytes(self, shape: Sequence[int]) -> int:
        """Stored bytes of a tensor of this shape."""

    @abstractmethod
    def decode(self, data: memoryview, shape: Sequence[int]) -> NDArray[Any]:
        """A fresh array of ``shape``."""

    def rows(self, shape: Sequence[int], start: int, stop: int) -> list[tuple[int, int]] | None:
        """The byte ranges that hold ``shape[0]`` rows ``start..stop``; None when rows are not apart."""
        return None

    def decode_rows(self, ranges: Sequence[memoryview], shape: Sequence[int]) -> NDArray[Any]:
        """A fresh array from the ranges that :meth:`rows` named; ``shape`` is that of the rows asked for."""
        raise UnsupportedError(f"{self.name}: rows cannot be decoded alone")


class Opaque(Encoding):
    """Bytes that holdall carries but does not understand: listed, extracted, copied, never decoded."""

    def __init__(self, name: str, nbytes: int) -> None:
        self.name = name
        self._nbytes = nbytes

    def nbytes(self, shape: Sequence[int]) -> int:
        """The size that the container stated."""
        return self._nbytes

    def decode(self, data: memoryview, shape: Sequence[int]) -> NDArray[Any]:
        """Always refuses: the meaning of the bytes is not known."""
        raise UnsupportedError(f"{self.name}: these bytes have no decoder; raw() gives them as stored")


Stored: TypeAlias = DType | Encoding
