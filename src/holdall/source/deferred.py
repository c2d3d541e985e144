"""A source that is opened when its first byte is asked for: the members of a set that may never be needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from holdall.locks import Lock
from holdall.source.base import CHUNK, Source

__all__ = ["DeferredSource"]


class DeferredSource(Source):
    """Stands for a source of a stated size. ``opener`` gives the real one, once, and may raise."""

    def __init__(self, name: str, size: int, opener: Callable[[], Source]) -> None:
        self.name = name
        self.size = size
        self._opener = opener
        self._real: Source | None = None
        self._closed_for_good = False
        self._lock = Lock()

    @property
    def real(self) -> Source:
        """The source itself, opened now if it was not yet."""
        with self._lock:
            if self._closed_for_good:
                raise self._closed()
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
    def opened(self) -> bool:
        return self._real is not None

    @property
    def mapped(self) -> bool:
        return self.real.mapped

    @property
    def lanes(self) -> int:
        return self.real.lanes

    @property
    def far(self) -> bool:  # type: ignore[override]  # known when the real one is
        return self.real.far

    @property
    def checked(self) -> bool:  # type: ignore[override]  # likewise
        return self.real.checked

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
            self._closed_for_good = True
            if self._real is not None:
                self._real.close()
