"""A cache of fetched ranges in memory: disjoint, found by bisection, the least recently used one leaves first."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterator

from holdall.base.locks import make_lock
from holdall.source.ranges import ByteRange

__all__ = ["SpanCache"]


class SpanCache:
    """Bytes by their offset, up to ``most`` of them, or any number if ``most`` is None.

    >>> cache = SpanCache(100)
    >>> cache.add(10, memoryview(b"hold"))
    >>> cache.missing(8, 20), bytes(cache.find(11, 13))
    ([(8, 10), (14, 20)], b'ol')
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._spans: OrderedDict[int, memoryview] = OrderedDict()  # start -> bytes, least recently used first
        self._starts: list[int] = []
        self._pinned: set[int] = set()
        self._held = 0
        self._lock = make_lock()

    def add(self, start: int, data: memoryview, *, pin: bool = False) -> None:
        """Keep ``data``, which begins at ``start``. Pinned bytes stay when room is made."""
        with self._lock:
            for low, high in self._missing(start, start + len(data)):
                self._spans[low] = data[low - start : high - start]
                insort(self._starts, low)
                self._held += high - low
                if pin:
                    self._pinned.add(low)
            if self._most is not None and self._held > self._most:
                self._make_room(self._most)

    def missing(self, start: int, stop: int) -> list[ByteRange]:
        """The parts of a range that are not in the cache."""
        with self._lock:
            return list(self._missing(start, stop))

    def find(self, start: int, stop: int) -> memoryview | None:
        """Find the range, if the cache has all of it in one piece."""
        with self._lock:
            at = self._before(start)
            if at is None:
                return None
            data = self._spans[at]
            if stop > at + len(data):
                return None
            self._spans.move_to_end(at)
            return data[start - at : stop - at]

    def copy(self, offset: int, buffer: memoryview) -> list[ByteRange]:
        """Copy what the cache has of the range at ``offset`` into ``buffer``. Returns the parts that are missing."""
        with self._lock:
            missing = list(self._missing(offset, offset + len(buffer)))
            at = offset
            for start, stop in [*missing, (offset + len(buffer), 0)]:
                while at < start:
                    held = self._before(at)
                    assert held is not None
                    data = self._spans[held]
                    self._spans.move_to_end(held)
                    end = min(start, held + len(data))
                    buffer[at - offset : end - offset] = data[at - held : end - held]
                    at = end
                at = stop
            return missing

    def clear(self) -> None:
        """Remove everything."""
        with self._lock:
            self._spans.clear()
            self._starts.clear()
            self._pinned.clear()
            self._held = 0

    def _before(self, offset: int) -> int | None:
        place = bisect_right(self._starts, offset)
        return self._starts[place - 1] if place else None

    def _missing(self, start: int, stop: int) -> Iterator[ByteRange]:
        at = self._before(start)
        place = bisect_left(self._starts, start if at is None else at)
        for low in self._starts[place : bisect_left(self._starts, stop)]:
            if start < low:
                yield start, low
            start = max(start, low + len(self._spans[low]))
        if start < stop:
            yield start, stop

    def _make_room(self, most: int) -> None:
        for start in [start for start in self._spans if start not in self._pinned]:
            if self._held <= most:
                return
            self._starts.remove(start)  # first, so that an interrupt leaves no start without its bytes
            self._held -= len(self._spans.pop(start))
