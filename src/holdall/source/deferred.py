"""A source that is opened when its first byte is needed, since some members of a set are never read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from holdall.base.locks import make_lock
from holdall.source.base import CHUNK, Source

__all__ = ["DeferredSource"]


class DeferredSource(Source):
    """A source of a known size that ``opener`` opens, once, when it is needed."""

    def __init__(self, name: str, size: int, opener: Callable[[], Source]) -> None:
        self.name = name
        self.size = size
        self._opener = opener
        self._real: Source | None = None
        self._is_closed = False
        self._lock = make_lock()

    @property
    def real(self) -> Source:
        """The real source, which is opened now if it was not yet."""
        with self._lock:
            if self._is_closed:
                raise self._closed_error()
            if self._real is None:
                self._real = self._opener()
            return self._real

    def stands_for(self, source: Source) -> bool:
        """Whether ``source`` is this one, or the real one behind it."""
        return source is self or (self._real is not None and source is self._real)

    @property
    def identity(self) -> tuple[object, ...]:
        return self.real.identity

    @property
    def is_opened(self) -> bool:
        return self._real is not None

    @property
    def is_mapped(self) -> bool:
        return self.real.is_mapped

    @property
    def parallel_reads(self) -> int:
        return self.real.parallel_reads

    @property
    def is_remote(self) -> bool:  # type: ignore[override]  # the real source knows
        return self.real.is_remote

    @property
    def is_checked(self) -> bool:  # type: ignore[override]
        return self.real.is_checked

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        self.real.prefetch(ranges)

    def fetch(self, ranges: Iterable[tuple[int, int]]) -> Source:
        return self.real.fetch(ranges)

    def chunks(self, offset: int, size: int, chunk: int = CHUNK) -> Iterator[memoryview]:
        return self.real.chunks(offset, size, chunk)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self.real.read_into(offset, buffer)

    def view(self, offset: int, size: int) -> memoryview:
        return self.real.view(offset, size)

    def sibling(self, relative: str) -> Source:
        return self.real.sibling(relative)

    def names(self) -> list[str]:
        return self.real.names()

    def __reduce__(self) -> tuple[object, ...]:
        return self.real.__reduce__()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._real is not None:
                self._real.close()
