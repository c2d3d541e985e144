"""Byte ranges: planning requests for many of them, and remembering which bytes are done."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from holdall.base.locks import make_lock

__all__ = ["RangeSet", "coalesce", "split"]

ByteRange = tuple[int, int]  # the first byte, and the one after the last


def coalesce(ranges: Iterable[ByteRange], *, gap: int, most: int) -> list[ByteRange]:
    """Join neighbouring ranges where at most ``gap`` unwanted bytes lie between them, up to ``most`` bytes each.

    Empty ranges are left out. A single range above ``most`` stays whole: see :func:`split`.

    >>> coalesce([(0, 10), (12, 20), (100, 110), (5, 5)], gap=4, most=50)
    [(0, 20), (100, 110)]
    """
    joined: list[ByteRange] = []
    for start, stop in sorted(span for span in ranges if span[1] > span[0]):
        if joined and start - joined[-1][1] <= gap and max(stop, joined[-1][1]) - joined[-1][0] <= most:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        elif not joined or stop > joined[-1][1]:
            joined.append((max(start, joined[-1][1]) if joined else start, stop))
    return joined


def split(start: int, stop: int, most: int) -> list[ByteRange]:
    """Divide a range into pieces of at most ``most`` bytes, to be fetched in parallel.

    >>> split(0, 25, 10)
    [(0, 10), (10, 20), (20, 25)]
    """
    return [(at, min(at + most, stop)) for at in range(start, stop, most)]


class RangeSet:
    """The bytes in any of some ranges; several threads may add and ask.

    >>> proven = RangeSet()
    >>> proven.add(0, 10)
    >>> proven.add(10, 15)
    >>> (5, 12) in proven, (5, 16) in proven
    (True, False)
    """

    def __init__(self) -> None:
        # Starts and stops in turn, strictly rising: ranges neither overlap nor touch. It is one list, so that one step
        # changes it, and an interrupt cannot leave a range that was never added.
        self._edges: list[int] = []
        self._lock = make_lock()

    def __reduce__(self) -> tuple[object, ...]:
        """A pickle has no bytes in it: what was found out of a file may not be true of the one that is opened again."""
        return RangeSet, ()

    def add(self, start: int, stop: int) -> None:
        """Add the bytes ``start..stop``."""
        if start >= stop:
            return
        with self._lock:
            low, high = bisect_left(self._edges, start), bisect_right(self._edges, stop)
            # An odd place is inside a range or at its end: that range goes on, and its own edge stays.
            self._edges[low:high] = [start][low % 2 :] + [stop][high % 2 :]

    def __contains__(self, span: ByteRange) -> bool:
        """Whether all bytes of the range are in the set."""
        with self._lock:
            place = bisect_right(self._edges, span[0])
            return place % 2 == 1 and span[1] <= self._edges[place]
