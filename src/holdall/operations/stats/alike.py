"""Statistics of many small tensors of one type and size at once, as columns: a column is a tensor, a row an element.

All is computed as the passes over single tensors do it, in the same order, so that a tensor has the same statistics,
to the last bit, whether there are others like it or not.
"""

from __future__ import annotations

from itertools import pairwise, repeat
from math import fsum, sqrt
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.binary.kernels.measure_reference import BLOCK, LANES
from holdall.model.dtypes import DType
from holdall.model.encodings import Stored
from holdall.operations.stats.histogram import divide_singles
from holdall.operations.stats.measures import Bin, TensorStats

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["FEWEST", "can_be_alike", "count_together", "describe_alike"]

FEWEST = 8  # tensors; fewer are measured sooner one by one
_VALUES = buffer_size(1 << 16)  # that are measured at a time, in the second cache
_SMALLEST = 2.0**-101  # the largest value of a tensor whose squares need no scale


def can_be_alike(dtype: Stored, count: int) -> bool:
    """Whether tensors of ``dtype`` with ``count`` elements can be measured here: floats of up to 32 bits."""
    if not isinstance(dtype, DType) or dtype.kind != "float" or dtype.packed or dtype.bits > 32:
        return False
    return 0 < count <= BLOCK


def count_together(count: int) -> int:
    """How many tensors of ``count`` elements are measured at a time."""
    return max(FEWEST, _VALUES // count)


def describe_alike(values: NDArray[np.float64], dtype: DType, bins: int) -> list[TensorStats | None]:
    """The statistics of tensors of ``dtype``, the columns of ``values``; None for one that is not as most are.

    >>> from holdall.model.dtypes import find_dtype
    >>> columns = np.array([[1, 2, 4], [0, np.nan, 1]]).T
    >>> [stats and stats.median for stats in describe_alike(columns, find_dtype("f32"), 10)]
    [2.0, None]
    """
    largest = np.abs(values).max(axis=0)
    usual = np.isfinite(largest)
    if dtype.bits == 32:
        usual &= (largest >= _SMALLEST) | (largest == 0)
    low, high = values.min(axis=0) + 0.0, values.max(axis=0) + 0.0  # zeros without their signs
    with np.errstate(invalid="ignore"):  # of infinities
        borders, exact = divide_singles(low[:, np.newaxis], high[:, np.newaxis], max(bins, 1))
    usual &= exact.all(axis=1)
    found: list[TensorStats | None] = [None] * len(usual)
    columns = usual.nonzero()[0]
    if columns.size:
        kept = values[:, columns] + 0.0
        described = _describe(kept, low[columns], high[columns], borders[columns], dtype, bins)
        for column, stats in zip(columns.tolist(), described, strict=True):
            found[column] = stats
    return found


def _describe(
    values: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    borders: NDArray[np.float64],
    dtype: DType,
    bins: int,
) -> Iterator[TensorStats]:
    count, zeros = len(values), (values == 0).sum(axis=0)
    ordered = np.sort(values, axis=0) if bins or dtype.bits < 32 else values
    if dtype.bits < 32:
        mean, std = _sum_counts(ordered)
    else:
        mean, std = _sum_lanes(values)
        mean, std = np.where(low == high, low, mean), np.where(low == high, 0.0, std)
    medians: Iterator[float | None] = repeat(None)
    histograms: Iterator[tuple[Bin, ...]] = repeat(())
    if bins:
        medians = iter(((ordered[(count - 1) // 2] + ordered[count // 2]) / 2).tolist())
        histograms = _count_bins(values, low, high, borders)
    columns = (zeros, low, high, mean, std)
    rows = zip(*(column.tolist() for column in columns), medians, histograms, strict=False)
    for zero, least, most, middle, deviation, median, histogram in rows:
        yield TensorStats(count, 0, 0, zero, least, most, middle, median, deviation, histogram)


def _sum_lanes(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation as ``measure`` finds them, of one block."""
    count, tensors = values.shape
    apart = np.zeros((-(-count // LANES), LANES, tensors))
    apart.reshape(-1, tensors)[:count] = values - values[0]
    total, squares = _add_lanes(apart), _add_lanes(apart * apart)
    middle = total / count
    spread = np.maximum(squares - total * middle, 0.0)
    return values[0] + middle, np.sqrt(spread / count)


def _add_lanes(apart: NDArray[np.float64]) -> NDArray[np.float64]:
    lanes = apart.sum(axis=0)
    total = np.zeros(lanes.shape[1])
    for lane in lanes:
        total += lane
    return total


def _sum_counts(ordered: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of ascending values, as from how often each occurs: with sums that are exact."""
    count, tensors = ordered.shape
    rows = np.ascontiguousarray(ordered.T)
    mean = np.array([fsum(row) / count for row in rows.tolist()])
    is_last = np.ones(rows.shape, np.bool_)
    is_last[:, :-1] = rows[:, 1:] != rows[:, :-1]
    ends = is_last.reshape(-1).nonzero()[0]
    counts = np.diff(ends, prepend=-1)
    squares = ((rows.reshape(-1)[ends] - np.repeat(mean, is_last.sum(axis=1))) ** 2 * counts).tolist()
    stops = [0, *np.searchsorted(ends, np.arange(1, tensors + 1) * count).tolist()]
    std = np.array([sqrt(fsum(squares[start:stop]) / count) for start, stop in pairwise(stops)])
    return mean, std


def _count_bins(
    values: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    borders: NDArray[np.float64],
) -> Iterator[tuple[Bin, ...]]:
    """The bins of each tensor that are not empty."""
    count, tensors = values.shape
    above = np.zeros((borders.shape[1] + 2, tensors), np.int64)
    above[0] = count
    for number, border in enumerate(borders.T, 1):
        above[number] = (values >= border).sum(axis=0)
    # Of equal values all borders are the value, and all bins but the last one empty.
    filled = (above[:-1] - above[1:]).T
    tensor, bin = filled.nonzero()
    edges = np.column_stack([low, borders, high])
    columns = (edges[tensor, bin], edges[tensor, bin + 1], filled[tensor, bin])
    bins = list(map(Bin._make, zip(*(column.tolist() for column in columns), strict=True)))
    stops = np.cumsum((filled != 0).sum(axis=1)).tolist()
    for start, stop in pairwise([0, *stops]):
        yield tuple(bins[start:stop])
