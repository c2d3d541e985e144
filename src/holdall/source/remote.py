"""Objects far away as sources: http(s), s3, gs, az and the Hugging Face hub.

Opening reads the head and the tail of the object, since an index is at one end or the other. After that a read is
answered from what is here, or by one request for what is missing; many reads that are known beforehand go through
the planner of :mod:`holdall.source.ranges`. Every answer is checked by :class:`~holdall.source.object.RemoteObject`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from holdall.locks import Lock
from holdall.sizes import tuned
from holdall.source.base import CHUNK, Source
from holdall.source.fetched import Fetched, room
from holdall.source.kept import Kept
from holdall.source.lanes import LANES, lanes, settled
from holdall.source.object import RemoteObject
from holdall.source.ranges import Span, coalesce, split
from holdall.source.siblings import Siblings
from holdall.source.stores import RemoteError, is_folder_url, is_url, shown, stable

if TYPE_CHECKING:
    from holdall.source.cache import RangeCache

__all__ = ["RemoteError", "RemoteFolder", "RemoteSource", "is_url", "remote_source"]

_HEAD = tuned(64 << 10)  # read speculatively when opening
_TAIL = tuned(66 << 10)  # so far from its end a zip may have its directory's record
_PIECE = tuned(8 << 20)  # the size of one request when a large range is fetched side by side
_WHOLE = 4 * _PIECE  # a range of many that are fetched together comes in one piece up to this
_GAP = tuned(64 << 10)  # unwanted bytes that are cheaper than another request
_KEPT = 8 * _PIECE  # bytes of fetched ranges that stay in memory
_SMALL = tuned(4 << 20)  # a single read up to this stays in memory
_STREAK = 4  # reads one after the other, each up to _SHORT bytes, after which the next are fetched along
_SHORT = tuned(1 << 20)


def remote_source(url: str, cache: RangeCache | None = None) -> Source:
    """The object at ``url``, or the folder when it ends in a slash or names a whole repository of the hub."""
    return RemoteFolder(url, cache=cache) if is_folder_url(url) else RemoteSource(url, cache=cache)


class RemoteSource(Source):
    """One object at a URL."""

    far = True

    def __init__(self, url: str, *, cache: RangeCache | None = None) -> None:
        self.name = shown(url)
        self.url = url
        self._object = RemoteObject(url, _HEAD, cache)
        self._siblings = Siblings(url, partial(RemoteSource, cache=cache))
        self.size = self._object.size
        self._kept = Kept(_KEPT)
        self._lock = Lock()
        self._closed_flag = False
        self._next = self._streak = self._run = 0  # where the last read ended; reads and bytes that followed each other
        self._kept.add(0, self._object.head, pin=True)
        if self.size > _HEAD:
            start = max(_HEAD, self.size - _TAIL)
            self._kept.add(start, self._object.fetch(start, self.size), pin=True)

    @property
    def requests(self) -> int:
        """Requests sent so far."""
        return self._object.requests

    @property
    def received(self) -> int:
        """Bytes that came so far."""
        return self._object.received

    @property
    def identity(self) -> tuple[object, ...]:
        return self._object.identity

    @property
    def lanes(self) -> int:
        return LANES

    # -- reading ----------------------------------------------------------------------------------------------------

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self.view(offset, size))

    def view(self, offset: int, size: int) -> memoryview:
        self._open(offset, size)
        if not size:  # a zero-size tensor sends nothing
            return memoryview(b"")
        found = self._kept.find(offset, offset + size)
        if found is not None:
            self._follow(offset, size)
            return found
        if size <= _PIECE and self._kept.missing(offset, offset + size) == [(offset, offset + size)]:  # no copy
            return self._fetch_one(offset, size)
        buffer = room(size)
        self.read_into(offset, buffer)
        return buffer.toreadonly()

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self._open(offset, len(buffer))
        missing = self._kept.copy(offset, buffer)
        pieces = [piece for span in missing for piece in split(*span, _PIECE)]
        if len(pieces) == 1:
            start, stop = pieces[0]
            buffer[start - offset : stop - offset] = self._fetch_one(start, stop - start)
            return
        self._follow(offset, len(buffer))
        settled([lanes().submit(self._fill, buffer[start - offset : stop - offset], start) for start, stop in pieces])

    def _fill(self, buffer: memoryview, start: int) -> None:
        """Fetch into ``buffer``; the copy is made in the thread that waits for the server."""
        import numpy as np

        data = self._object.fetch(start, start + len(buffer))
        np.frombuffer(buffer, np.uint8)[:] = np.frombuffer(data, np.uint8)  # numpy lets other threads go on

    def _fetch_one(self, offset: int, size: int) -> memoryview:
        """One request; a run of reads that follow each other takes along what they would ask for next."""
        streak, run = self._follow(offset, size)
        ahead = size
        if streak >= _STREAK and size <= _SHORT:
            ahead = min(max(size, run), _PIECE, self.size - offset)
            first = self._kept.missing(offset, offset + ahead)[0]
            ahead = max(size, first[1] - offset)
        data = self._object.fetch(offset, offset + ahead)
        if size <= _SMALL:
            self._kept.add(offset, data)
        return data[:size]

    def _follow(self, offset: int, size: int) -> tuple[int, int]:
        with self._lock:
            if 0 <= offset - self._next <= _GAP:
                self._streak, self._run = self._streak + 1, self._run + size
            else:
                self._streak = self._run = 0
            self._next = offset + size
            return self._streak, self._run

    def chunks(self, offset: int, size: int, chunk: int = CHUNK) -> Iterator[memoryview]:
        """As any source, with several requests under way; none of them beyond the range."""
        self._open(offset, size)
        if size <= max(chunk, _SMALL) or not self._kept.missing(offset, offset + size):
            yield from super().chunks(offset, size, chunk)
            return
        unit = chunk * max(1, CHUNK // chunk)
        waiting = deque(split(offset, offset + size, unit))
        coming: deque[Future[memoryview]] = deque()
        try:
            while waiting or coming:
                while waiting and len(coming) < LANES:
                    coming.append(lanes().submit(self._object.fetch, *waiting.popleft()))
                data = coming.popleft().result()
                for at in range(0, len(data), chunk):
                    self._open(offset, 0)
                    yield data[at : at + chunk]
        finally:
            for future in coming:
                future.cancel()

    def prefetch(self, ranges: Iterable[Span]) -> None:
        """Fetch what is not here of ``ranges``, in few requests side by side, to be read soon after."""
        wanted = [gap for span in ranges if span[0] < span[1] for gap in self._kept.missing(*span)]
        plan = [piece for span in coalesce(wanted, gap=_GAP, most=_PIECE) for piece in split(*span, _PIECE)]
        plan = plan[: _KEPT // 2 // _PIECE] if _total(plan) > _KEPT // 2 else plan  # what comes later has no room
        if len(plan) == 1:
            self._kept.add(plan[0][0], self._object.fetch(*plan[0]))
            return
        for (start, _), data in zip(plan, lanes().map(lambda span: self._object.fetch(*span), plan), strict=True):
            self._kept.add(start, data)

    def fetch(self, ranges: Iterable[Span]) -> Source:
        self._open(0, 0)
        wanted = [gap for span in ranges if span[0] < span[1] for gap in self._kept.missing(*span)]
        spans = coalesce(wanted, gap=_GAP, most=_PIECE)
        return Fetched(self, [(start, self._coming(start, stop)) for start, stop in spans])

    def _coming(self, start: int, stop: int) -> Callable[[], memoryview]:
        """A range on its way; the function waits for it. One piece is handed out as it came, many are put together."""
        if stop - start <= _WHOLE:
            return lanes().submit(self._object.fetch, start, stop).result
        buffer = room(stop - start)
        pieces = split(start, stop, _PIECE)
        futures = [lanes().submit(self._fill, buffer[low - start : high - start], low) for low, high in pieces]

        def whole() -> memoryview:
            settled(futures)
            return buffer.toreadonly()

        return whole

    def _open(self, offset: int, size: int) -> None:
        self._inside(offset, size)
        if self._closed_flag:
            raise self._closed()

    # -- the set ----------------------------------------------------------------------------------------------------

    def sibling(self, relative: str) -> Source:
        return self._siblings.open(relative)

    def expect(self, names: Iterable[str]) -> None:
        self._siblings.expect(names)

    def names(self) -> list[str]:
        return sorted({name.partition("/")[0] for name in self._siblings.names()})

    def files(self) -> list[str]:
        return self._siblings.names()

    def close(self) -> None:
        self._closed_flag = True
        self._kept.clear()
        self._siblings.close()


class RemoteFolder(Source):
    """A folder at a URL: no bytes of its own, and its siblings are what it contains."""

    is_folder = True
    far = True
    size = 0

    def __init__(self, url: str, *, cache: RangeCache | None = None) -> None:
        self.name = shown(url)
        self.url = url if url.endswith("/") or "?" in url else url + "/"
        self._siblings = Siblings(self.url, partial(RemoteSource, cache=cache))

    @property
    def identity(self) -> tuple[object, ...]:
        return ("url folder", stable(self.url))

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self._inside(offset, len(buffer))

    def sibling(self, relative: str) -> Source:
        return self._siblings.open(relative)

    def expect(self, names: Iterable[str]) -> None:
        self._siblings.expect(names)

    def names(self) -> list[str]:
        return sorted({name.partition("/")[0] for name in self._siblings.names()})

    def files(self) -> list[str]:
        return self._siblings.names()

    def close(self) -> None:
        self._siblings.close()


def _total(spans: Iterable[Span]) -> int:
    return sum(stop - start for start, stop in spans)
