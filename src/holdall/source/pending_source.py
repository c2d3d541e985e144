"""A source some of whose ranges are on their way into memory."""

from __future__ import annotations

from collections.abc import Callable

from holdall.base.locks import make_lock
from holdall.source.base import Source
from holdall.source.remote.span_cache import SpanCache
from holdall.source.thread_pools import refuse_after_fork

__all__ = ["PendingSource", "empty_buffer"]


class PendingSource(Source):
    """Answers from ranges that are being fetched, and passes every other read on to ``origin``.

    ``pending`` are the offsets of these ranges, each with a function that waits for its bytes.
    """

    is_remote = True

    def __init__(self, origin: Source, pending: list[tuple[int, Callable[[], memoryview]]]) -> None:
        self.name, self.size, self.member = origin.name, origin.size, origin.member
        self._origin = origin
        self._pending = pending
        self._arrived = SpanCache()
        self._lock = make_lock()

    @property
    def identity(self) -> tuple[object, ...]:
        return self._origin.identity

    @property
    def parallel_reads(self) -> int:
        return self._origin.parallel_reads

    def view(self, offset: int, size: int) -> memoryview:
        self._check_inside(offset, size)
        self._wait()
        found = self._arrived.find(offset, offset + size) if size else memoryview(b"")
        if found is not None:
            return found
        buffer = empty_buffer(size)
        self.read_into(offset, buffer)
        return buffer.toreadonly()

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self.view(offset, size))

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self._check_inside(offset, len(buffer))
        self._wait()
        for start, stop in self._arrived.copy(offset, buffer):
            self._origin.read_into(start, buffer[start - offset : stop - offset])

    def _wait(self) -> None:
        with self._lock:
            if self._pending:
                refuse_after_fork()
            while self._pending:
                start, wait = self._pending[-1]
                self._arrived.add(start, wait())
                self._pending.pop()

    def close(self) -> None:
        self._arrived.clear()


def empty_buffer(size: int) -> memoryview:
    """Memory with any content: clearing it first would cost time, and the caller fills all of it."""
    import numpy as np

    return np.empty(size, np.uint8).data
