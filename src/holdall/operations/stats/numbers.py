"""Statistics of elements of four or eight bytes, and of what is decoded to float32.

Up to 1,048,576 elements are measured with all of them at hand, so that the median is exact and bins are equal. More are
measured piece by piece: each piece gives extremes and moments, which are merged in order, and counts of codes, from
which the histogram follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from math import frexp, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from holdall.base.memory import lend_memory
from holdall.binary import kernels
from holdall.binary.kernels.measure_reference import CODES, merge_moments
from holdall.model.dtypes import DType
from holdall.model.passes import PIECE, is_random_access, split_payload
from holdall.operations.stats.histogram import CodedValues, count_bins
from holdall.operations.stats.measures import Counters, Number, TensorPass, TensorStats
from holdall.operations.stats.medians import find_median

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.payload import Payload
    from holdall.model.tensor import Tensor

__all__ = ["HELD", "NumberPass"]

HELD = 1 << 20  # elements that are measured with all of them at hand
_FEW = 4096  # elements whose median is found sooner without a table of codes
_EXPONENTS = range(-100, 129)  # of the largest value: then no square and no code leaves its range
_PIECE = PIECE // 8 * 8  # bytes
_NO_COUNTS = bytearray()


class _Part(NamedTuple):
    """What the kernel says of a piece."""

    finite: int
    nan: int
    inf: int
    zeros: int
    low: Any
    high: Any
    mean: float
    spread: float


class NumberPass(TensorPass):
    """Measures numbers. ``scale``, a power of two, brings floats into the range whose squares are floats."""

    def __init__(self, tensor: Tensor, bins: int, payload: Payload, scale: float = 1.0) -> None:
        super().__init__(tensor, bins)
        self._payload = payload
        self._kind = str(tensor.dtype) if isinstance(tensor.dtype, DType) else "f32"
        self._dtype = np.dtype(tensor.dtype.numpy if isinstance(tensor.dtype, DType) else np.float32)
        self._scale = scale
        self._origin = bytes(self._dtype.itemsize)
        self._counters = Counters(CODES)
        self._rows = self._count_rows()
        self.pieces = self._count_pieces()
        self.better_scale: float | None = None  # for another pass, where this one has no result

    def repeat(self) -> NumberPass:
        """Another pass, with the scale that this one found."""
        return NumberPass(self.tensor, self.bins, self._payload, self.better_scale or 1.0)

    def _count_pieces(self) -> int:
        if self.tensor.count <= HELD:
            return 1
        if isinstance(self.tensor.dtype, DType):
            return -(-self._payload.size // _PIECE)
        return -(-self.tensor.shape[0] // self._rows) if self._rows else -(-self.tensor.count // HELD)

    def _count_rows(self) -> int:
        """Rows of an encoded tensor that are decoded at a time, 0 if they cannot be decoded alone."""
        shape, dtype = self.tensor.shape, self.tensor.dtype
        if isinstance(dtype, DType) or not shape or dtype.rows(shape, 0, 1) is None:
            return 0
        return max(1, HELD // max(1, self.tensor.count // shape[0]))

    def split(self) -> Iterator[tuple[int, Callable[[], Any]]]:
        measure = self._measure_all if self.tensor.count <= HELD else self._measure
        if not isinstance(self.tensor.dtype, DType):
            for size, decode in self._split_rows():
                yield size, partial(self._decode, decode, measure)
            return
        for piece in split_payload(self._payload, self._payload.size if self.tensor.count <= HELD else _PIECE):
            if piece.start == 0 and piece.size < self._payload.size:
                self._origin = _choose_origin(piece.peek(self._dtype.itemsize), self._dtype)
            yield piece.size, partial(piece.work, measure)

    def _split_rows(self) -> Iterator[tuple[int, Callable[[], NDArray[Any]]]]:
        """Yield functions that decode some values each, with their share of the bytes."""
        tensor, size = self.tensor, self._payload.size // self.pieces
        if tensor.count <= HELD:
            yield size, tensor.numpy
        elif self._rows and is_random_access(self._payload):
            for start in range(0, tensor.shape[0], self._rows):
                yield size, partial(tensor.__getitem__, slice(start, start + self._rows))
        else:
            for block in tensor.blocks(HELD):
                yield size, partial(np.asarray, block)

    def _decode(self, decode: Callable[[], NDArray[Any]], measure: Callable[[memoryview], Any]) -> Any:
        values = np.ascontiguousarray(decode(), self._dtype).reshape(-1)
        return measure(values.view(np.uint8).data)

    def _measure(self, data: memoryview) -> _Part:
        if not self.bins:
            return self._call(data, _NO_COUNTS)
        with self._counters.lend() as table:
            return self._call(data, table)

    def _call(self, data: memoryview, counts: Any) -> _Part:
        return _Part(*kernels.measure(self._kind, data, self._origin, self._scale, counts))

    def finish(self, parts: list[Any]) -> TensorStats | None:
        if self.tensor.count <= HELD:
            found: TensorStats = parts[0]
            return found
        whole = _merge(parts)
        if self._has_no_scale(whole):
            self.better_scale = _choose_scale(whole)
            return None
        if not self.bins or not whole.finite:
            return self._describe(whole, None, ())
        with self._counters.total() as table:
            coded = self._make_coded(table)
        return self._describe(whole, None, coded.count_bins(whole.low, whole.high, self.bins))

    def _measure_all(self, data: memoryview) -> TensorStats:
        """The statistics of a tensor whose values are all at hand."""
        self._origin = _choose_origin(data[: self._dtype.itemsize], self._dtype)
        if not self.bins or self.tensor.count <= _FEW:
            return self._describe_all(data, np.zeros(0, np.uint64))
        with lend_memory(8 * CODES) as counts:
            return self._describe_all(data, np.frombuffer(counts, np.uint64))

    def _describe_all(self, data: memoryview, table: NDArray[np.uint64]) -> TensorStats:
        whole = self._count_again(data, table)
        if not self.bins or not whole.finite:
            return self._describe(whole, None, ())
        values = np.frombuffer(data, self._dtype)
        if whole.finite < values.size:
            values = values[np.isfinite(values)]
        coded = self._make_coded(table) if table.size and whole.low != whole.high else None
        median = find_median(values, coded)
        return self._describe(whole, median, count_bins(values, whole.low, whole.high, self.bins))

    def _count_again(self, data: memoryview, table: NDArray[np.uint64]) -> _Part:
        """Measure with a scale that fits, which is known after the first time."""
        table[:] = 0
        whole = self._call(data, table)
        if self._has_no_scale(whole):
            self._scale = _choose_scale(whole)
            table[:] = 0
            whole = self._call(data, table)
        return whole

    def _has_no_scale(self, whole: _Part) -> bool:
        is_float = self._dtype.kind == "f" and whole.finite and self._scale == 1
        return bool(is_float) and _exponent_of(whole) not in _EXPONENTS

    def _make_coded(self, table: NDArray[np.uint64]) -> CodedValues:
        return CodedValues(table, self._first, self._scale, self._dtype)

    @property
    def _first(self) -> Number:
        value: Number = np.frombuffer(self._origin, self._dtype)[0].item()
        return value

    def _describe(self, whole: _Part, median: Number | None, histogram: Any) -> TensorStats:
        if not whole.finite:
            return TensorStats(self.tensor.count, whole.nan, whole.inf)
        mean, std = float(whole.low), 0.0
        if whole.low != whole.high:
            mean, std = self._describe_moments(whole)
        return TensorStats(
            self.tensor.count, whole.nan, whole.inf, whole.zeros, whole.low, whole.high, mean, median, std, histogram
        )

    def _describe_moments(self, whole: _Part) -> tuple[float, float]:
        """Mean and standard deviation, each rounded once from what was summed up."""
        first, std = self._first, sqrt(whole.spread / whole.finite)
        if self._scale == 1 and isinstance(first, float):
            return first + whole.mean, std
        scale = Fraction(self._scale)
        return float(Fraction(first) + Fraction(whole.mean) / scale), float(Fraction(std) / scale)


def _choose_origin(first: bytes | memoryview, dtype: np.dtype[Any]) -> bytes:
    """The first element, from which distances are small, or zero if it is not finite."""
    return bytes(first) if np.isfinite(np.frombuffer(first, dtype)[0]) else bytes(dtype.itemsize)


def _exponent_of(whole: _Part) -> int:
    return frexp(max(abs(whole.low), abs(whole.high)))[1]


def _choose_scale(whole: _Part) -> float:
    return 2.0 ** -max(-1000, min(1000, _exponent_of(whole)))


def _merge(parts: list[_Part]) -> _Part:
    """Merge what was said of the pieces, in order: so the sums do not depend on the number of threads."""
    moments = (0, 0.0, 0.0)
    nan = inf = zeros = 0
    filled = [part for part in parts if part.finite]
    for part in parts:
        nan, inf, zeros = nan + part.nan, inf + part.inf, zeros + part.zeros
    for part in filled:
        moments = merge_moments(moments, (part.finite, part.mean, part.spread))
    low, high = min((part.low for part in filled), default=None), max((part.high for part in filled), default=None)
    return _Part(moments[0], nan, inf, zeros, low, high, *moments[1:])
