"""Pooled pictures of matrices: each cell stands for the elements under it. What is zoomed into is read again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.base.locks import make_lock
from holdall.base.parallel import map_in_order
from holdall.viewer.matrix import Matrix, Region

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Pooled", "Pooling"]

_CELLS = 1 << 20  # of the picture of the whole matrix that is kept
_BLOCK = buffer_size(1 << 18)  # elements that a thread pools at a time: they stay in its cache
_LARGEST = 12


@dataclass(frozen=True, slots=True)
class Pooled:
    """The cells of a region, each of ``tall`` rows and ``wide`` columns; the last ones may have fewer."""

    region: Region
    tall: int
    wide: int
    top: NDArray[Any]  # max |x|
    total: NDArray[Any]
    squares: NDArray[Any]

    @property
    def is_single(self) -> bool:
        """Whether each cell is one element."""
        return self.tall == self.wide == 1

    @property
    def counts(self) -> NDArray[np.float64]:
        """The elements of each cell."""
        rows = _count(self.region.bottom - self.region.top, self.tall)
        columns = _count(self.region.right - self.region.left, self.wide)
        return np.multiply.outer(rows, columns)

    def show(self, by: str) -> NDArray[np.float64]:
        """A number for each cell: max |x|, the mean or the standard deviation."""
        if by == "max":
            return self.top.astype(np.float64)
        return _moments(self.total.astype(np.float64), self._exact_squares(), self.counts)[by == "std"]

    def _exact_squares(self) -> NDArray[np.float64]:
        """The squares with 53 bits, where they can be made anew: those of a narrow row cancel out."""
        if not self.is_single:
            return self.squares.astype(np.float64)
        with np.errstate(over="ignore"):
            return np.square(self.total.astype(np.float64))

    def profile(self, axis: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Mean, standard deviation and max |x| along an axis: of rows (0) or of columns (1)."""
        other = 1 - axis
        with np.errstate(all="ignore"):  # sums of both infinities are no number
            total, squares = self.total.sum(axis=other, dtype=np.float64), self._exact_squares().sum(axis=other)
        mean, std = _moments(total, squares, self.counts.sum(axis=other))
        return mean, std, self.top.max(axis=other).astype(np.float64)


def _count(size: int, step: int) -> NDArray[np.float64]:
    edges = np.append(np.arange(0, size, step), size)
    return np.diff(edges).astype(np.float64)


def _moments(total: Any, squares: Any, counts: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    with np.errstate(all="ignore"):  # infinite values have neither
        mean = total / counts
        return mean, np.sqrt(np.maximum(squares / counts - mean * mean, 0))


class Pooling:
    """The pictures of one matrix. That of the whole is made once, by all threads, and kept."""

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix
        self._lock = make_lock()
        self._kept: Pooled | None = None
        share = sqrt(matrix.rows * matrix.columns / _CELLS)
        tall = max(1, min(matrix.rows, ceil(share)))
        self._tall, self._wide = tall, max(1, ceil(matrix.rows * matrix.columns / _CELLS / tall))

    @property
    def _whole(self) -> Pooled:
        with self._lock:  # a page asks several times at once, and one pass is enough
            if self._kept is None:
                self._kept = self._pool(self.matrix.whole, self._tall, self._wide)
            return self._kept

    def look(self, region: Region, height: int, width: int) -> Pooled:
        """A picture of a region in at most ``height`` x ``width`` cells. Small regions are read, large ones kept."""
        tall = max(1, -(-(region.bottom - region.top) // height))
        wide = max(1, -(-(region.right - region.left) // width))
        if region != self.matrix.whole and (tall < self._tall or wide < self._wide):
            return self._pool(region, tall, wide)
        return _coarsen(self._whole, region, tall, wide)

    def find_largest(self) -> list[tuple[tuple[int, ...], Any]]:
        """The elements with the largest size and their places: they are in the cells with the largest."""
        whole = self._whole
        ranked = np.where(np.isnan(whole.top), -1, whole.top).ravel()
        cells = np.argsort(-ranked, kind="stable")[:_LARGEST]
        found = []
        for row, column in zip(*np.unravel_index(cells, whole.top.shape), strict=True):
            top, left = int(row) * whole.tall, int(column) * whole.wide
            region = self.matrix.clip(Region(top, top + whole.tall, left, left + whole.wide))
            values = self.matrix.read(region)
            sizes = np.nan_to_num(
                np.abs(np.asarray(values, np.complex128 if values.dtype.kind == "c" else np.float64)), nan=-1
            )
            for flat in np.argsort(-sizes.ravel(), kind="stable")[:_LARGEST].tolist():
                at = divmod(flat, values.shape[1])
                place = self.matrix.locate(region.top + at[0], region.left + at[1])
                found.append((float(sizes[at]), place, values[at]))
        found.sort(key=lambda each: -each[0])
        return [(place, value) for _, place, value in found[:_LARGEST]]

    def _pool(self, region: Region, tall: int, wide: int) -> Pooled:
        """Read a region, block by block, and pool it."""
        rows, columns = -(-(region.bottom - region.top) // tall), -(-(region.right - region.left) // wide)
        kind = self.matrix.read_numbers(Region(region.top, region.top + 1, region.left, region.left + 1)).dtype
        parts = [np.empty((rows, columns), kind) for _ in range(3)]

        def work(block: Region) -> None:
            pooled = _pool_block(self.matrix.read_numbers(block), tall, wide)
            row, column = (block.top - region.top) // tall, (block.left - region.left) // wide
            for part, found in zip(parts, pooled, strict=True):
                part[row : row + found.shape[0], column : column + found.shape[1]] = found

        for _ in map_in_order(work, list(_split(region, tall, wide))):
            pass
        return Pooled(region, tall, wide, *parts)


def _split(region: Region, tall: int, wide: int) -> Iterator[Region]:
    """Blocks of whole cells: full rows where they are short enough."""
    width = region.right - region.left
    across = width if tall * width <= 4 * _BLOCK else max(1, _BLOCK // tall // wide) * wide
    down = max(1, _BLOCK // (tall * across)) * tall
    for top in range(region.top, region.bottom, down):
        for left in range(region.left, region.right, across):
            yield Region(top, min(top + down, region.bottom), left, min(left + across, region.right))


def _pool_block(values: NDArray[Any], tall: int, wide: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    if tall == wide == 1:
        with np.errstate(over="ignore"):
            return np.abs(values), values, values * values
    with np.errstate(all="ignore"):
        high = _reduce(np.maximum, _reduce(np.maximum, values, tall, 0), wide, 1)
        low = _reduce(np.minimum, _reduce(np.minimum, values, tall, 0), wide, 1)
        total = _reduce(np.add, _reduce(np.add, values, tall, 0), wide, 1)
        squares = _reduce(np.add, _reduce(np.add, values * values, tall, 0), wide, 1)
        return np.maximum(high, -low), total, squares


def _reduce(function: Any, values: NDArray[Any], step: int, axis: int) -> NDArray[Any]:
    """Reduce groups of ``step`` along an axis; the last group may be smaller."""
    size = values.shape[axis]
    if step == 1:
        return values
    if axis == 1:
        found: NDArray[Any] = function.reduceat(values, np.arange(0, size, step), axis=1)
        return found
    whole = size // step
    parts = [function.reduce(values[: whole * step].reshape(whole, step, -1), axis=1)] if whole else []
    if size % step:
        parts.append(function.reduce(values[whole * step :], axis=0, keepdims=True))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _coarsen(whole: Pooled, region: Region, tall: int, wide: int) -> Pooled:
    """A region of a picture in larger cells, each of several that are there."""
    down, across = max(1, tall // whole.tall), max(1, wide // whole.wide)
    top, left = region.top // whole.tall, region.left // whole.wide
    bottom, right = -(-region.bottom // whole.tall), -(-region.right // whole.wide)
    parts = (part[top:bottom, left:right] for part in (whole.top, whole.total, whole.squares))
    functions = (np.maximum, np.add, np.add)
    with np.errstate(all="ignore"):
        pooled = [
            _reduce(function, _reduce(function, part, down, 0), across, 1)
            for function, part in zip(functions, parts, strict=True)
        ]
    covered = Region(
        top * whole.tall, min(bottom * whole.tall, whole.region.bottom),
        left * whole.wide, min(right * whole.wide, whole.region.right),
    )  # fmt: skip
    return Pooled(covered, whole.tall * down, whole.wide * across, *pooled)
