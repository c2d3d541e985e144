"""Columns of an index: shapes of different rank, ranges of the file, and which tensors lie in a range."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import le
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.buffer_sizes import buffer_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.binary.layout import Buffer

__all__ = ["Places", "Shapes", "find_end", "find_overlaps", "fit", "measure_names", "place", "product", "sort_names"]
__all__ += ["sum_runs"]

_CODE = {4: "I", 8: "Q"}
_BLOCK = buffer_size(1 << 14)  # rows multiplied at a time, so that temporaries stay in the cache
_SAFE = 2.0**62  # a float64 product below this is below 2**63 exactly: no wrap happened


class Shapes(Sequence[tuple[int, ...]]):
    """The shape of every tensor of an index, read from the bytes of the index when asked for.

    ``positions`` is where the dims of each tensor start in ``data``, ``ranks`` their number, ``width`` the bytes of one
    dim.
    """

    def __init__(
        self, data: Buffer, positions: NDArray[np.uint64], ranks: NDArray[np.unsignedinteger[Any]], width: int = 8
    ) -> None:
        self._data = data
        self._positions = positions
        self._ranks = ranks
        self._width = width

    @classmethod
    def join(cls, parts: Sequence[Shapes]) -> Shapes:
        """Join the shapes of several indexes. Their dims must have one width."""
        widths = {part._width for part in parts} or {8}
        assert len(widths) == 1, "dims of several widths"
        sizes = [memoryview(part._data).nbytes for part in parts]
        before = np.cumsum([0, *sizes[:-1]], dtype=np.uint64) if parts else ()
        none = np.empty(0, np.uint64)
        positions = np.concatenate([none, *(part._positions + at for part, at in zip(parts, before, strict=True))])
        ranks = np.concatenate([none, *(part._ranks for part in parts)])
        return cls(b"".join(part._data for part in parts), positions, ranks, widths.pop())

    def __len__(self) -> int:
        return len(self._ranks)

    def __getitem__(self, row: int) -> tuple[int, ...]:  # type: ignore[override]  # rows only, no slices
        rank = int(self._ranks[row])
        return struct.unpack_from(f"<{rank}{_CODE[self._width]}", self._data, int(self._positions[row]))

    def keys(self, rows: range) -> Iterator[bytes]:
        """For each of ``rows`` the bytes of its dims, which are equal for equal shapes."""
        starts = self._positions[rows.start : rows.stop].tolist()
        sizes = (self._ranks[rows.start : rows.stop] * np.uint64(self._width)).tolist()
        data = memoryview(self._data).cast("B")
        return (bytes(data[at : at + size]) for at, size in zip(starts, sizes, strict=True))

    def counts(self) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """The number of elements of every tensor, and which of the numbers are exact.

        A row that is not exact has 2**62 elements or more, which no file holds. Its exact number is the product of the
        Python integers of ``self[row]``.
        """
        counts = np.ones(len(self), np.uint64)
        exact = np.ones(len(self), np.bool_)
        for rank in sorted(set(self._ranks.tolist()) - {0}):  # np.unique would import numpy.ma, a tenth of numpy itself
            rows = (self._ranks == rank).nonzero()[0]
            if rank > 64 or rank * len(rows) < 64:  # columns do not pay
                for row in rows.tolist():
                    count = product(self[row])
                    exact[row] = count < 1 << 62
                    counts[row] = count if exact[row] else 0
                continue
            for start in range(0, len(rows), _BLOCK):
                block = rows[start : start + _BLOCK]
                counts[block], exact[block] = self._products(block, rank)
        return counts, exact

    def _products(self, rows: NDArray[np.intp], rank: int) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """Elements of the tensors in ``rows``, all of one rank, and which of them are exact."""
        room = memoryview(self._data).nbytes - self._width + 1
        stored = np.ndarray(room, f"<u{self._width}", self._data, strides=(1,))  # the number at any byte
        product, size, empty = np.ones(len(rows), np.uint64), np.ones(len(rows)), np.zeros(len(rows), np.bool_)
        at = self._positions[rows]
        with np.errstate(over="ignore"):
            for _ in range(rank):  # few: a reduction over so short an axis takes ten times as long
                dims = stored[at].astype(np.uint64)
                product *= dims
                size *= dims
                empty |= dims == 0
                at += np.uint64(self._width)
        return product, empty | (size < _SAFE)


def fit(
    offsets: NDArray[np.uint64], sizes: NDArray[np.uint64], end: int | NDArray[np.uint64]
) -> NDArray[np.bool_]:  # fmt: skip
    """Which rows have all their bytes before ``end``, which is one for all rows or a column.

    Offsets and sizes are not added, since the sum could overflow.

    >>> fit(np.array([4, 9, 2**64 - 1], np.uint64), np.array([6, 2, 2], np.uint64), 10).tolist()
    [True, False, False]
    """
    last = np.asarray(end, np.uint64)
    fits: NDArray[np.bool_] = (offsets <= last) & (sizes <= last - np.minimum(offsets, last))
    return fits


def place(sizes: NDArray[np.uint64], align: int = 1, start: int = 0) -> tuple[NDArray[np.uint64], int]:
    """Where payloads of ``sizes`` begin if each is padded to a multiple of ``align``, and the end of the last.

    >>> starts, end = place(np.array([3, 0, 8], np.uint64), 8, 16)
    >>> starts.tolist(), end
    ([16, 24, 24], 32)
    """
    step = np.uint64(align)
    padded = sizes if align == 1 else (sizes + (step - np.uint64(1))) // step * step
    starts = np.cumsum(padded, dtype=np.uint64)
    end = start + int(starts[-1]) if len(starts) else start
    starts -= padded
    starts += np.uint64(start)
    return starts, end


def sum_runs(values: NDArray[np.uint64], starts: NDArray[np.intp] | Sequence[int]) -> list[int]:
    """The sum of ``values`` from each of ``starts`` to the next, exact however large.

    >>> sum_runs(np.array([1, 2**63, 2**63, 5], np.uint64), np.array([0, 1, 3]))
    [1, 18446744073709551616, 5]
    """
    low = np.add.reduceat(values & np.uint64(0xFFFFFFFF), starts).tolist()
    high = np.add.reduceat(values >> np.uint64(32), starts).tolist()
    return [(above << 32) + below for above, below in zip(high, low, strict=True)]


def sort_names(names: Sequence[str]) -> NDArray[np.intp]:
    """The rows of ``names`` in the order of the names, file order among equals.

    >>> sort_names(["b", "a", "c"]).tolist()
    [1, 0, 2]
    """
    if all(map(le, names, islice(names, 1, None))):
        return np.arange(len(names), dtype=np.intp)
    return np.array(sorted(range(len(names)), key=names.__getitem__), np.intp)


def measure_names(names: Sequence[str]) -> NDArray[np.uint64]:
    """The bytes of each name in UTF-8.

    >>> measure_names(["ab", "é"]).tolist()
    [2, 2]
    """
    sizes = np.fromiter(map(len, names), np.uint64, len(names))
    for start in range(0, len(names), _BLOCK):
        block = [names[row] for row in range(start, min(start + _BLOCK, len(names)))]
        if not "".join(block).isascii():
            sizes[start : start + _BLOCK] = [len(name.encode()) for name in block]
    return sizes


def find_end(offsets: NDArray[np.uint64], sizes: NDArray[np.uint64]) -> int:
    """Find the end of the range that reaches furthest, at most 2**64.

    >>> find_end(np.array([0, 8], np.uint64), np.array([100, 8], np.uint64))
    100
    """
    ends = offsets + sizes
    return 1 << 64 if (ends < offsets).any() else int(ends.max(initial=0))


def find_overlaps(
    offsets: NDArray[np.uint64], sizes: NDArray[np.uint64], used: NDArray[np.bool_] | None = None
) -> list[tuple[int, int]]:
    """Find the rows that begin inside an earlier one, each after its neighbour in file order, among the rows ``used``.

    >>> find_overlaps(np.array([8, 0, 4], np.uint64), np.array([4, 6, 2], np.uint64))
    [(1, 2)]
    """
    order = _sort_used(offsets, sizes, used)
    reached = np.maximum.accumulate(offsets[order] + sizes[order])
    inside = offsets[order][1:] < reached[:-1]
    return list(zip(order[:-1][inside].tolist(), order[1:][inside].tolist(), strict=True))


def _sort_used(
    offsets: NDArray[np.uint64], sizes: NDArray[np.uint64], used: NDArray[np.bool_] | None
) -> NDArray[np.intp]:
    """Return the rows that have bytes, in file order."""
    rows = (sizes > 0 if used is None else (sizes > 0) & used).nonzero()[0]
    ordered: NDArray[np.intp] = rows[np.argsort(offsets[rows], kind="stable")]
    return ordered


def product(dims: Sequence[int]) -> int:
    """The product of ``dims``; where it exceeds 2**128, some number above that, because the rest would cost time.

    >>> product((2, 3)), product((1 << 63,) * 4096) >= 1 << 128, product((1 << 63, 0))
    (6, True, 0)
    """
    if 0 in dims:
        return 0
    count = 1
    for dim in dims:
        count *= dim
        if count >= 1 << 128:
            break
    return count


class Places:
    """Finds the rows that have bytes in a range of a file. ``stored`` marks the rows that have bytes in it at all.

    >>> places = Places(np.array([8, 0], np.uint64), np.array([4, 8], np.uint64))
    >>> places.rows(7, 9), places.rows(8, 9), places.first(0, 99, 1)
    ([1, 0], [0], (2, [1]))
    """

    def __init__(
        self, offsets: NDArray[np.uint64], sizes: NDArray[np.uint64], stored: NDArray[np.bool_] | None = None
    ) -> None:
        order = _sort_used(offsets, sizes, stored)
        ends = offsets[order] + sizes[order]
        self._rows: list[int] = order.tolist()
        self._starts: list[int] = offsets[order].tolist()
        self._ends: list[int] = ends.tolist()
        self._furthest: list[int] = np.maximum.accumulate(ends).tolist()  # the furthest end so far

    def rows(self, start: int, stop: int, most: int | None = None) -> list[int]:
        """The rows in file order; with ``most``, only among that many rows that begin last."""
        around = self._around(start, stop)
        return [self._rows[at] for at in (around if most is None else around[-most:]) if self._ends[at] > start]

    def first(self, start: int, stop: int, count: int) -> tuple[int, list[int]]:
        """The number of rows and the first ``count``. Where rows overlap, some that end before ``start`` count too."""
        around = self._around(start, stop)
        return len(around), [self._rows[at] for at in around[:count]]

    def _around(self, start: int, stop: int) -> range:
        return range(bisect_right(self._furthest, start), bisect_left(self._starts, stop))
