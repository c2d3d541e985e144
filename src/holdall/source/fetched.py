"""Ranges of a source on their way into memory."""

from __future__ import annotations

from collections.abc import Callable

from holdall.locks import Lock
from holdall.source.base import Source
from holdall.source.kept import Kept

__all__ = ["Fetched", "room"]


class Fetched(Source):
    """Some ranges of a source on their way into memory; everything else is asked of the source."""

    far = True

    def __init__(self, origin: Source, coming: list[tuple[int, Callable[[], memoryview]]]) -> None:
        self.name, self.size, self.member = origin.name, origin.size, origin.member
        self._origin = origin
        self._coming = coming
        self._kept = Kept()
        self._lock = Lock()

    @property
    def identity(self) -> tuple[object, ...]:
        return self._origin.identity

    @property
    def lanes(self) -> int:
        return self._origin.lanes

    def view(self, offset: int, size: int) -> memoryview:
        self._inside(offset, size)
        self._settle()
        found = self._kept.find(offset, offset + size) if size else memoryview(b"")
        if found is not None:
            return found
        buffer = room(size)
        self.read_into(offset, buffer)
        return buffer.toreadonly()

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self.view(offset, size))

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self._inside(offset, len(buffer))
        self._settle()
        for start, stop in self._kept.copy(offset, buffer):
            self._origin.read_into(start, buffer[start - offset : stop - offset])

    def _settle(self) -> None:
        with self._lock:
            while self._coming:
                start, arrived = self._coming[-1]
                self._kept.add(start, arrived())
                self._coming.pop()

    def close(self) -> None:
        self._kept.clear()


def room(size: int) -> memoryview:
    """Memory that is about to be filled, and therefore not cleared first."""
    import numpy as np

    return np.empty(size, np.uint8).data
