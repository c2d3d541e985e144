"""Statistics of elements of up to two bytes: everything follows from how often each code occurs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from math import fsum, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.binary import kernels
from holdall.model.dtypes import DType
from holdall.model.passes import PIECE, split_payload
from holdall.operations.stats.histogram import count_weighted_bins
from holdall.operations.stats.measures import Counters, TensorPass, TensorStats
from holdall.operations.stats.medians import average_exactly

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.payload import Payload
    from holdall.model.tensor import Tensor

__all__ = ["CodePass"]

_FEW = 4096  # elements that are sorted sooner than a table of all codes is cleared


class CodePass(TensorPass):
    """Counts codes. Of packed types it counts bytes, if no element lies in two of them."""

    def __init__(self, tensor: Tensor, bins: int, dtype: DType, payload: Payload) -> None:
        super().__init__(tensor, bins)
        self._dtype = dtype
        self._payload = payload
        self._each = 8 // dtype.bits if dtype.packed and 8 % dtype.bits == 0 else 1  # elements of a counted byte
        self._is_unpacked = dtype.packed and self._each == 1
        self._width = dtype.numpy.itemsize
        self._counters = Counters(1 << 8 * self._width)
        self._last = b""
        # A piece of a packed type ends with a byte and with an element.
        self._piece = PIECE // dtype.bits * dtype.bits if self._is_unpacked else PIECE // 2 * 2
        self.pieces = -(-payload.size // self._piece)

    def split(self) -> Iterator[tuple[int, Callable[[], Any]]]:
        for piece in split_payload(self._payload, self._piece):
            yield piece.size, partial(piece.work, partial(self._count, piece.start))

    def _count(self, start: int, data: memoryview) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Count a piece: in a table, or, if it is small, as its codes and how often each occurs."""
        if start + len(data) == self._payload.size:
            self._last = bytes(data[-1:])
        codes = self._unpack(start, data) if self._is_unpacked else data
        if len(data) <= _FEW and self.pieces == 1:
            found, counts = np.unique(np.frombuffer(codes, f"<u{self._width}"), return_counts=True)
            return found.astype(np.int64), counts
        with self._counters.lend() as table:
            kernels.count_codes(codes, self._width, table)
        return None

    def _unpack(self, start: int, data: memoryview) -> NDArray[np.uint8]:
        bits = self._dtype.bits
        left = self.tensor.count - start * 8 // bits
        return self._dtype.decode_flat(data, 0, min(left, len(data) * 8 // bits)).view(np.uint8)

    def finish(self, parts: list[tuple[NDArray[np.int64], NDArray[np.int64]] | None]) -> TensorStats:
        meaning = _meaning_of(self._dtype.numpy)
        if parts[0] is None:
            with self._counters.total() as table:
                codes, counts = meaning.list_counts(table)
        else:
            codes, counts = parts[0]
        if self._each > 1:
            codes, counts = self._count_elements(codes, counts)
        if parts[0] is not None or self._each > 1:
            order = np.argsort(meaning.values[codes], kind="stable")  # NaN is last
            codes, counts = codes[order], counts[order]
        return _describe(self.tensor.count, meaning.values[codes], counts, self._dtype.numpy, self.bins)

    def _count_elements(
        self, codes: NDArray[np.int64], counts: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Count the elements of counted bytes, less those that only fill the last byte."""
        found = np.zeros(256, np.int64)
        elements = self._dtype.decode_flat(codes.astype(np.uint8).data, 0, codes.size * self._each)
        np.add.at(found, elements.view(np.uint8), np.repeat(counts, self._each))
        if rest := self.tensor.count % self._each:
            last = self._dtype.decode_flat(memoryview(self._last), 0, self._each)
            np.subtract.at(found, last[rest:].view(np.uint8), 1)
        kept = found.nonzero()[0]
        return kept, found[kept]


@dataclass(frozen=True, slots=True)
class _Meaning:
    """The value of each code, and the codes in the order of their values, NaN last."""

    values: NDArray[Any]
    order: NDArray[np.int64]

    def list_counts(self, table: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The codes that occur, in the order of their values, and how often each does."""
        counts = table[self.order]
        found = (counts != 0).nonzero()[0]
        return self.order[found], counts[found].astype(np.int64)


@lru_cache(maxsize=16)
def _meaning_of(dtype: np.dtype[Any]) -> _Meaning:
    codes = np.arange(1 << 8 * dtype.itemsize)
    if dtype.kind == "b":
        values: NDArray[Any] = (codes != 0).astype(np.int64)
    else:
        stored = codes.astype(f"<u{dtype.itemsize}").view(dtype)
        with np.errstate(invalid="ignore"):  # signaling NaN
            values = stored.astype(np.int64 if dtype.kind in "iu" else np.float64)
        values[values == 0] = 0  # without its sign
    return _Meaning(values, np.argsort(values, kind="stable"))


def _describe(
    total: int, values: NDArray[Any], counts: NDArray[np.int64], dtype: np.dtype[Any], bins: int
) -> TensorStats:
    """The statistics of ascending ``values``, each as often as ``counts`` says."""
    finite = np.isfinite(values)
    nan = inf = 0
    if not finite.all():
        nan = int(counts[np.isnan(values)].sum())
        inf = int(counts[~finite].sum()) - nan
        values, counts = values[finite], counts[finite]
    if not values.size:
        return TensorStats(total, nan, inf)
    number = int(counts.sum())
    mean = fsum((values * counts.astype(np.float64)).tolist()) / number
    std = sqrt(fsum(((values - mean) ** 2 * counts).tolist()) / number)
    return TensorStats(
        total,
        nan,
        inf,
        int(counts[values == 0].sum()),
        values[0].item(),
        values[-1].item(),
        mean,
        _find_median(values, counts) if bins else None,
        std,
        count_weighted_bins(values, counts, bins, dtype) if bins else (),
    )


def _find_median(values: NDArray[Any], counts: NDArray[np.int64]) -> int | float:
    number = int(counts.sum())
    ranks = np.searchsorted(np.cumsum(counts), [(number - 1) // 2, number // 2], "right")
    return average_exactly(*values[ranks].tolist())
