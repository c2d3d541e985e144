"""Columns of an index: ragged ones, such as the dims of each tensor, and which rows a range of the file holds."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from holdall.sizes import tuned

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.layout import Buffer

__all__ = ["Places", "Shapes", "furthest", "product"]

_CODE = {4: "I", 8: "Q"}
_BLOCK = tuned(1 << 14)  # rows that are multiplied at a time, so that the temporaries stay in the cache
_SAFE = 2.0**62  # a float64 product below this is below 2**63 exactly: no wrap happened


class Shapes(Sequence[tuple[int, ...]]):
    """The shape of every tensor of an index, still in the bytes of the index.

    ``positions`` is where each tensor's dims start in ``data``, ``ranks`` how many there are, ``width`` the
    bytes of one dim.
    """

    def __init__(self, data: Buffer, positions: NDArray[np.uint64], ranks: NDArray[np.uint64], width: int = 8) -> None:
        self._data = data
        self._positions = positions
        self._ranks = ranks
        self._width = width

    @classmethod
    def joined(cls, parts: Sequence[Shapes]) -> Shapes:
        """The shapes of several indexes, one after the other; their dims are of one width."""
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

    def counts(self) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """Elements of every tensor, and which of them are exact.

        A row that is not exact has 2**62 elements or more: no file holds that many, and whoever needs the
        number takes it from the Python integers of that row.
        """
        counts = np.ones(len(self), np.uint64)
        exact = np.ones(len(self), np.bool_)
        for rank in sorted(set(self._ranks.tolist()) - {0}):  # np.unique would import numpy.ma, a tenth of numpy itself
            rows = (self._ranks == rank).nonzero()[0]
            if rank > 64 or rank * len(rows) < 64:  # few, or silly: one by one
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


def furthest(offsets: NDArray[np.uint64], sizes: NDArray[np.uint64]) -> int:
    """Where the last of the ranges ends, as a number that has not wrapped.

    >>> furthest(np.array([0, 8], np.uint64), np.array([100, 8], np.uint64))
    100
    """
    ends = offsets + sizes
    return 1 << 64 if (ends < offsets).any() else int(ends.max(initial=0))


def product(dims: Sequence[int]) -> int:
    """The product, or some number of at least 2**128: thousands of large dims are not worth multiplying out.

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
    """Which rows have bytes in a range of a file; ``stored`` says which have any.

    >>> places = Places(np.array([8, 0], np.uint64), np.array([4, 8], np.uint64))
    >>> places.rows(7, 9), places.rows(8, 9), places.first(0, 99, 1)
    ([1, 0], [0], (2, [1]))
    """

    def __init__(
        self, offsets: NDArray[np.uint64], sizes: NDArray[np.uint64], stored: NDArray[np.bool_] | None = None
    ) -> None:
        used = (sizes > 0 if stored is None else (sizes > 0) & stored).nonzero()[0]
        order = used[np.argsort(offsets[used], kind="stable")]
        ends = offsets[order] + sizes[order]
        self._rows: list[int] = order.tolist()
        self._starts: list[int] = offsets[order].tolist()
        self._ends: list[int] = ends.tolist()
        self._reached: list[int] = np.maximum.accumulate(ends).tolist()  # where all up to it have ended

    def rows(self, start: int, stop: int, most: int | None = None) -> list[int]:
        """The rows in file order; only of the ``most`` last to begin, where that is given."""
        around = self._around(start, stop)
        return [self._rows[at] for at in (around if most is None else around[-most:]) if self._ends[at] > start]

    def first(self, start: int, stop: int, count: int) -> tuple[int, list[int]]:
        """How many rows there are, and the first ``count``; among overlapping rows also some that end before."""
        around = self._around(start, stop)
        return len(around), [self._rows[at] for at in around[:count]]

    def _around(self, start: int, stop: int) -> range:
        return range(bisect_right(self._reached, start), bisect_left(self._starts, stop))
