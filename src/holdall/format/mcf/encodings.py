"""Payloads of MCF that cannot be decoded: codes stored without their scale, and dtypes that are not assigned."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from holdall.errors import FormatError, UnsupportedError
from holdall.format.mcf.rules import DTYPE
from holdall.model.encodings import Encoding
from holdall.quant.methods import Method

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BareCodes", "Unassigned"]


class BareCodes(Encoding):
    """int8 or int4 codes without scale and record, as an embedding packer writes them; their values are lost.

    Only their size tells them from the layout of the format's document.
    """

    def __init__(self, method: Method) -> None:
        self.method = method
        self.name = f"mcf.{method.name}"

    def __repr__(self) -> str:
        return f"<Encoding {self.name}, bare codes>"

    def nbytes(self, shape: Sequence[int]) -> int:
        """The bytes of the codes."""
        return (prod(shape) * self.method.bits + 7) // 8

    def decode(self, data: memoryview, shape: Sequence[int]) -> NDArray[Any]:
        """Raises UnsupportedError: the scale is not stored."""
        raise UnsupportedError(
            f"{self.name}: these are bare codes, stored without their scale, so their values are lost; "
            "raw() gives the stored bytes, dtype.codes(raw, shape) the codes"
        )

    def codes(self, data: memoryview, shape: Sequence[int]) -> NDArray[Any]:
        """The signed codes as int8; int4 codes are stored with 8 added to them."""
        import numpy as np

        from holdall.binary import kernels

        if self.method.bits == 8:
            return np.frombuffer(data, np.int8).reshape(shape)
        codes = np.empty(prod(shape), np.int8)
        kernels.unpack(data, 0, 4, codes.size, 0, codes)
        return (codes - np.int8(8)).reshape(shape)


class Unassigned(Encoding):
    """A dtype number that no version of the format defines. Its tensors can be listed, extracted and copied."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = f"mcf.dtype{number}"

    def __repr__(self) -> str:
        return f"<Encoding {self.name}>"

    def nbytes(self, shape: Sequence[int]) -> int:
        """Raises UnsupportedError: the size is not known."""
        raise UnsupportedError(f"{self.name}: how many bytes this type takes is not known")

    def decode(self, data: memoryview, shape: Sequence[int]) -> NDArray[Any]:
        """Raises FormatError: the meaning of the bytes is not known."""
        message = f"mcf: dtype {self.number} is not assigned; raw() gives the bytes as stored"
        raise FormatError(DTYPE.id, None, message)
