"""Statistics of a tensor of any size in bounded memory: counts, extremes, moments, the exact median, a histogram.

Elements of one or two bytes are counted by their code in a single pass; everything follows from the 65,536 counts.
Wider ones take two passes, rarely more: the first counts them by their upper 16 bits and finds the extremes, the second
looks closely at those few buckets that hold a median or the edge of a bin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import frexp, fsum, sqrt
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from holdall.dtypes import DType
from holdall.errors import UnsupportedError
from holdall.selection import Median, middle, not_finite, ordered_halves, upper_halves, values_of
from holdall.sizes import tuned

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.tensor import Tensor

__all__ = ["Bin", "TensorStats", "tensor_stats"]

Number: TypeAlias = int | float
Progress: TypeAlias = Callable[[int, int], None]  # elements done, elements in all; a tensor may be gone through twice

_BLOCK = tuned(1 << 17)  # elements at a time: with their temporaries they stay in the cache
_SINGLE_VALUES = 20  # integers that span no more than this are counted one by one


@dataclass(frozen=True, slots=True)
class Bin:
    """How many elements lie in ``low <= x < high``; the last bin includes ``high``, a single value has both equal."""

    low: Number
    high: Number
    count: int


@dataclass(frozen=True, slots=True)
class TensorStats:
    """What the values of a tensor are like. NaN and infinities are counted, and left out of everything else.

    Without a finite element ``min`` to ``std`` are None. ``std`` is that of a population. ``histogram`` has the bins
    that are not empty.
    """

    count: int
    nan: int = 0
    inf: int = 0
    min: Number | None = None
    max: Number | None = None
    mean: float | None = None
    median: float | None = None
    std: float | None = None
    histogram: tuple[Bin, ...] = ()


def tensor_stats(tensor: Tensor, bins: int = 10, progress: Progress | None = None) -> TensorStats:
    """The statistics of ``tensor``, read block by block; one that is declared without data has a count only.

    >>> import numpy as np
    >>> from holdall import Tensor
    >>> stats = tensor_stats(Tensor.of("w", np.array([1, 2, 2, 7], np.int8)))
    >>> stats.min, stats.max, stats.mean, stats.median, [(b.low, b.count) for b in stats.histogram]
    (1, 7, 3.0, 2.0, [(1, 1), (2, 2), (7, 1)])
    """
    if bins < 1:
        raise ValueError(f"a histogram has at least one bin, not {bins}")
    if not tensor.has_data or tensor.count == 0:
        return TensorStats(tensor.count)
    dtype = tensor.dtype.numpy if isinstance(tensor.dtype, DType) else np.dtype(np.float32)  # encodings become f32
    if dtype.kind == "c":
        raise UnsupportedError(f"tensor {tensor.name!r}: complex numbers have no order, hence no statistics")
    passes = _Passes(tensor, dtype, bins, progress)
    return passes.narrow() if dtype.itemsize <= 2 else passes.wide()


class _Passes:
    """One tensor, gone through as often as needed."""

    def __init__(self, tensor: Tensor, dtype: np.dtype[Any], bins: int, progress: Progress | None) -> None:
        self.tensor = tensor
        self.dtype = dtype
        self.bins = bins
        self.progress = progress
        self.integer = dtype.kind in "iub"
        self.done = 0
        self.total = tensor.count * (1 if dtype.itemsize <= 2 else 2)

    def blocks(self) -> Iterator[NDArray[Any]]:
        for block in self.tensor.blocks(_BLOCK):
            yield block
            self._tell(block.size)

    def _tell(self, count: int) -> None:
        self.done = min(self.total, self.done + count)
        if self.progress is not None:
            self.progress(self.done, self.total)

    # -- elements of one or two bytes: count the codes --------------------------------------------------------------

    def narrow(self) -> TensorStats:
        size = self.dtype.itemsize
        counts = np.zeros(1 << 8 * size, np.int64)
        for block, repeated in self._codes():
            counts += np.bincount(block.view(f"u{size}"), repeated, counts.size).astype(np.int64)
        codes = counts.nonzero()[0]
        counts = counts[codes]
        values = codes.astype(f"u{size}").view(self.dtype).astype(np.int64 if self.integer else np.float64)
        finite = np.isfinite(values)
        nan, inf = int(counts[np.isnan(values)].sum()), int(counts[np.isinf(values)].sum())
        order = np.argsort(values[finite], kind="stable")
        values, counts = values[finite][order], counts[finite][order]
        if not values.size:
            return TensorStats(self.tensor.count, nan, inf)
        number = int(counts.sum())
        mean = fsum((values * counts.astype(np.float64)).tolist()) / number
        std = sqrt(fsum(((values - mean) ** 2 * counts).tolist()) / number)
        ranks = np.searchsorted(np.cumsum(counts), [(number - 1) // 2, number // 2], "right")
        low, high = values[0].item(), values[-1].item()
        histogram = _Histogram(low, high, self.bins, self.integer)
        histogram.add(values, counts)
        return TensorStats(
            self.tensor.count, nan, inf, low, high, mean, middle(*values[ranks].tolist()), std, histogram.result()
        )

    def _codes(self) -> Iterator[tuple[NDArray[Any], NDArray[np.int64] | None]]:
        """Blocks of elements; of a packed type, the elements of each of the 256 bytes with how often they occur."""
        dtype, payload = self.tensor.dtype, self.tensor.payload
        if not isinstance(dtype, DType) or 8 % dtype.bits or not dtype.packed or payload is None:
            yield from ((block, None) for block in self.blocks())
            return
        each = 8 // dtype.bits
        whole, rest = divmod(self.tensor.count, each)
        counts = np.zeros(256, np.int64)
        for chunk in payload.chunks(_BLOCK):
            stored = np.frombuffer(chunk, np.uint8)
            last = stored[: whole - self.done // each]  # all but a byte that is not full
            counts += np.bincount(last, minlength=256)
            self._tell(stored.size * each)
        yield dtype.decode_flat(memoryview(bytes(range(256))), 0, 256 * each), np.repeat(counts, each)
        if rest:
            yield dtype.decode_flat(payload.part(whole, whole + 1), 0, rest), None

    # -- elements of four or eight bytes ----------------------------------------------------------------------------

    def wide(self) -> TensorStats:
        counts = np.zeros(1 << 16, np.int64)  # by the upper 16 bits as they are stored
        nan = inf = 0
        low: Any = None
        high: Any = None
        for block in self.blocks():
            found = np.bincount(upper_halves(block), minlength=1 << 16)
            if not self.integer and found[not_finite(self.dtype)].any():
                nan += int(np.isnan(block).sum())
                inf += int(np.isinf(block).sum())
                found[not_finite(self.dtype)] = 0
                block = block[np.isfinite(block)]
            counts += found
            if block.size:
                low = block.min() if low is None else min(low, block.min())
                high = block.max() if high is None else max(high, block.max())
        if low is None:
            return TensorStats(self.tensor.count, nan, inf)
        low, high = low.item(), high.item()
        histogram = _Histogram(low, high, self.bins, self.integer)
        moments = _Moments(low, high, self.dtype)
        median = Median(counts, self.dtype)
        closely = np.union1d(histogram.known(counts, self.dtype), median.buckets)
        look = np.zeros(1 << 16, np.bool_)
        look[closely] = True
        for block in self.blocks():
            if nan or inf:
                block = block[np.isfinite(block)]
            moments.add(block)
            if counts[closely].sum() < self.tensor.count:
                block = block[look[upper_halves(block)]]
            histogram.add(block)
            median.add(block)
        while not median.settled():
            for block in self.blocks():
                median.add(block if self.integer else block[np.isfinite(block)])
        mean, std = moments.result()
        return TensorStats(self.tensor.count, nan, inf, low, high, mean, median.value(), std, histogram.result())


# -- what is gathered -------------------------------------------------------------------------------------------------


class _Moments:
    """Mean and standard deviation, merged block by block in float64 (Chan's formula).

    64-bit integers are taken relative to the smallest, so that a large offset costs no digits; float64 values whose
    squares would overflow or vanish are scaled by a power of two.
    """

    def __init__(self, low: Number, high: Number, dtype: np.dtype[Any]) -> None:
        self.origin = low if dtype.kind in "iu" else 0
        self.constant = low if low == high else None
        exponent = frexp(max(abs(low), abs(high)))[1]
        self.exponent = exponent if dtype == np.float64 and abs(exponent) > 400 else 0
        self.count = 0
        self.mean = 0.0
        self.spread = 0.0  # the sum of squared distances from the mean

    def add(self, block: NDArray[Any]) -> None:
        if not block.size or self.constant is not None:
            return
        if block.dtype.kind in "iu":
            kind = f"u{block.dtype.itemsize}"
            block = block.view(kind) - np.array(self.origin, block.dtype).view(kind)  # never negative, never wraps
        values = block.astype(np.float64)
        if self.exponent:
            values = np.ldexp(values, -self.exponent)
        mean = float(values.mean())
        values -= mean
        rest = float(values.sum())  # what rounding left of the mean
        values *= values  # no BLAS: its threads cost more than they give
        spread = float(values.sum()) - rest * rest / values.size
        mean += rest / values.size
        total = self.count + values.size
        apart = mean - self.mean
        self.mean += apart * (values.size / total)
        self.spread += spread + apart * apart * (self.count * (values.size / total))
        self.count = total

    def result(self) -> tuple[float, float]:
        if self.constant is not None:
            return float(self.constant), 0.0
        mean = float(Fraction(self.mean) * Fraction(2) ** self.exponent + Fraction(self.origin))
        std = float(Fraction(sqrt(max(0.0, self.spread) / self.count)) * Fraction(2) ** self.exponent)
        return mean, std


class _Histogram:
    """Counts of single values, or of equal bins."""

    def __init__(self, low: Number, high: Number, bins: int, integer: bool) -> None:
        self.single = integer and high - low <= _SINGLE_VALUES
        if self.single:
            self.edges: list[Number] = list(range(int(low), int(high) + 1))
        elif low == high:
            self.edges = [low]
        else:
            part = [Fraction(i, bins) for i in range(bins + 1)]
            self.edges = [float(Fraction(low) * (1 - p) + Fraction(high) * p) for p in part]
            self.edges[0], self.edges[-1] = low, high
        self.counts = np.zeros(len(self.edges) if self.single else max(1, len(self.edges) - 1), np.int64)
        self._skip: NDArray[np.bool_] | None = None

    def place(self, values: NDArray[Any]) -> Any:
        """The bin of each value."""
        if self.single:
            return (values - values.dtype.type(self.edges[0])).astype(np.intp)
        inner = np.array(self.edges[1:-1])
        if values.dtype.kind in "iu":  # an integer reaches an edge when it reaches the next whole number
            inner = np.array([-int(-edge // 1) for edge in inner.tolist()], values.dtype)
        return np.searchsorted(inner, values, "right")

    def known(self, counts: NDArray[np.int64], dtype: np.dtype[Any]) -> Any:
        """Take the upper halves that lie in one bin from ``counts``; returns the others, to be looked at closely."""
        order = ordered_halves(dtype)
        used = order[counts[order] > 0]
        ranks = np.arange(1 << 16)[counts[order] > 0].astype(np.uint64)
        shift = np.uint64(dtype.itemsize * 8 - 16)
        kind = f"u{dtype.itemsize}"
        least = values_of((ranks << shift).astype(kind), dtype)
        most = values_of(((ranks << shift) | np.uint64((1 << int(shift)) - 1)).astype(kind), dtype)
        first, last = self.place(self._inside(least)), self.place(self._inside(most))
        whole = first == last
        np.add.at(self.counts, first[whole], counts[used[whole]])
        self._skip = np.zeros(1 << 16, np.bool_)
        self._skip[used[whole]] = True
        return used[~whole]

    def _inside(self, values: NDArray[Any]) -> Any:
        """Values a bucket could hold, held to the range that really occurs."""
        return np.clip(values, values.dtype.type(self.edges[0]), values.dtype.type(self.edges[-1]))

    def add(self, values: NDArray[Any], counts: NDArray[np.int64] | None = None) -> None:
        if self._skip is not None and values.size:
            values = values[~self._skip[upper_halves(values)]]
        if values.size:
            found = np.bincount(self.place(values), counts, len(self.counts))
            self.counts += found.astype(np.int64)

    def result(self) -> tuple[Bin, ...]:
        if self.single or len(self.edges) == 1:
            edges = [(edge, edge) for edge in self.edges]
        else:
            edges = list(zip(self.edges[:-1], self.edges[1:], strict=True))
        return tuple(Bin(low, high, int(n)) for (low, high), n in zip(edges, self.counts.tolist(), strict=True) if n)
