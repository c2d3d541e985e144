"""A tensor of any rank as a matrix whose rectangles are read alone, and the line of Python that reads the same."""

from __future__ import annotations

from math import log, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.errors import UnsupportedError
from holdall.model.dtypes import DType
from holdall.model.payload import InMemory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.tensor import Tensor

__all__ = ["Apart", "Matrix", "Region"]

_HELD = buffer_size(256 << 20)  # bytes of a compressed tensor that are unpacked as a whole: parts of it take as long


class Region(NamedTuple):
    """A rectangle: rows ``top..bottom`` and columns ``left..right``, the ends excluded."""

    top: int
    bottom: int
    left: int
    right: int


class Matrix:
    """The elements of a tensor in rows and columns. Above two dimensions, the first few become the rows.

    >>> from holdall import Tensor
    >>> matrix = Matrix(Tensor.of("w", np.arange(24, dtype=np.int8).reshape(2, 3, 4)))
    >>> matrix.rows, matrix.columns, matrix.locate(4, 1), matrix.read(Region(4, 5, 0, 2)).tolist()
    (6, 4, (1, 1, 1), [[16, 17]])
    """

    def __init__(self, tensor: Tensor) -> None:
        payload = tensor.payload
        if payload is not None and payload.in_order:
            if payload.size > _HELD:
                raise UnsupportedError("this tensor is compressed and too large to be shown in parts")
            tensor = tensor.replace(payload=InMemory(payload.view()))
        self.tensor = tensor
        self.fold = _choose_fold(tensor.shape)  # how many dimensions become rows
        self.rows = prod(tensor.shape[: self.fold])
        self.columns = prod(tensor.shape[self.fold :])

    @property
    def whole(self) -> Region:
        """All rows and columns."""
        return Region(0, self.rows, 0, self.columns)

    def clip(self, region: Region) -> Region:
        """The part of a region that exists, at least one element of it."""
        top = min(max(0, region.top), self.rows - 1)
        left = min(max(0, region.left), self.columns - 1)
        return Region(
            top, min(max(region.bottom, top + 1), self.rows), left, min(max(region.right, left + 1), self.columns)
        )

    def read(self, region: Region) -> NDArray[Any]:
        """The elements of a rectangle, as the tensor gives them."""
        top, bottom, left, right = region
        tensor = self.tensor
        if isinstance(tensor.dtype, DType):
            return tensor.replace(shape=(self.rows, self.columns))[top:bottom, left:right]
        if len(tensor.shape) == 2:
            return tensor[top:bottom, left:right]
        if len(tensor.shape) < 2:
            return tensor.numpy().reshape(self.rows, self.columns)[top:bottom, left:right]
        inner = self.rows // tensor.shape[0]  # rows of one index of the first dimension
        first, last = top // inner, -(-bottom // inner)
        block = tensor[first:last].reshape((last - first) * inner, self.columns)
        return np.asarray(block[top - first * inner : bottom - first * inner, left:right])

    def read_numbers(self, region: Region) -> NDArray[Any]:
        """The same as float32, or as float64 where float32 would be too narrow. A complex number is its size."""
        values = self.read(region)
        if values.dtype.kind == "c":
            values = np.abs(values)
        wide = values.dtype.kind in "iuf" and values.dtype.itemsize > (4 if values.dtype.kind == "f" else 2)
        return np.asarray(values, np.float64 if wide else np.float32)

    def locate(self, row: int, column: int) -> tuple[int, ...]:
        """The index of an element in the tensor."""
        shape = self.tensor.shape
        if not shape:
            return ()
        outer = np.unravel_index(row, shape[: self.fold]) if self.fold else ()
        inner = np.unravel_index(column, shape[self.fold :]) if shape[self.fold :] else ()
        return tuple(int(each) for each in (*outer, *inner))

    def write_line(self, region: Region) -> str:
        """The slice of the tensor that is the region, as it is written in Python; from all values if none is."""
        shape = self.tensor.shape
        if not shape:
            return "[()]"
        rows = _write_axes(shape[: self.fold], region.top, region.bottom)
        columns = _write_axes(shape[self.fold :], region.left, region.right)
        if rows is None or columns is None:
            top, bottom, left, right = region
            return f".numpy().reshape({self.rows}, {self.columns})[{top}:{bottom}, {left}:{right}]"
        return f"[{', '.join((*rows, *columns))}]"


class Apart(Matrix):
    """What remains of a matrix when another of the same shape is subtracted. Equal infinities, and NaNs, leave zero.

    >>> from holdall import Tensor
    >>> a, b = (Matrix(Tensor.of("w", np.array([[5.0, np.inf]]) * k)) for k in (2, 1))
    >>> Apart(a, b).read(a.whole).tolist()
    [[5.0, 0.0]]
    """

    def __init__(self, a: Matrix, b: Matrix) -> None:
        self.tensor, self.fold, self.rows, self.columns = a.tensor, a.fold, a.rows, a.columns
        self._a, self._b = a, b

    def read(self, region: Region) -> NDArray[Any]:
        a, b = self._a.read_numbers(region), self._b.read_numbers(region)
        with np.errstate(all="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            return np.asarray(np.where(same, a.dtype.type(0), a - b))


def _choose_fold(shape: tuple[int, ...]) -> int:
    """How many dimensions become rows: so many that the matrix is as near to a square as it can be."""
    if len(shape) < 2:
        return 0
    if len(shape) == 2 or not prod(shape):
        return 1
    return min(range(1, len(shape)), key=lambda at: abs(log(prod(shape[:at]) / prod(shape[at:]))))


def _write_axes(shape: tuple[int, ...], start: int, stop: int) -> list[str] | None:
    """A range of flat indices as an index for each dimension; None if it is no rectangle."""
    if not shape:
        return []
    if (start, stop) == (0, prod(shape)):
        return [":"] * len(shape)
    if len(shape) == 1:
        return [f"{start}:{stop}"]
    inner = prod(shape[1:])
    if start % inner == 0 and stop % inner == 0:
        return [f"{start // inner}:{stop // inner}", *[":"] * (len(shape) - 1)]
    if start // inner != (stop - 1) // inner:
        return None
    rest = _write_axes(shape[1:], start % inner, (stop - 1) % inner + 1)
    return None if rest is None else [str(start // inner), *rest]
