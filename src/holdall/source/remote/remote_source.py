"""Sources behind URLs: http(s), s3, gs, az and the Hugging Face hub.

Opening requests the head and the tail of the object, since an index is at one end or the other. After that a read is
answered from memory, or by one request for the bytes that are missing. Many reads that are known beforehand become
few requests (:mod:`holdall.source.ranges`). :class:`RemoteObject` checks every answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdall.base.buffer_sizes import buffer_size
from holdall.base.locks import make_lock
from holdall.base.text import file_text
from holdall.source.base import CHUNK, Source
from holdall.source.pending_source import PendingSource, empty_buffer
from holdall.source.ranges import ByteRange, coalesce, split
from holdall.source.remote.remote_object import RemoteObject
from holdall.source.remote.siblings import Siblings
from holdall.source.remote.span_cache import SpanCache
from holdall.source.remote.stores import RemoteError, is_folder_url, remove_signature
from holdall.source.thread_pools import PARALLEL_REQUESTS, refuse_after_fork, request_pool, wait_all

if TYPE_CHECKING:
    from holdall.source.remote.disk_cache import RangeCache

__all__ = ["RemoteError", "RemoteFolder", "RemoteSource", "remote_source"]

_HEAD = buffer_size(64 << 10)  # requested when opening
_TAIL = buffer_size(66 << 10)  # the end record of a zip is at most this far from the end
_PIECE = buffer_size(8 << 20)  # bytes of one request when a large range is fetched in parallel
_WHOLE = 4 * _PIECE  # when several ranges are fetched together, each range of at most this size takes one request
_GAP = buffer_size(64 << 10)  # unwanted bytes that are cheaper than another request
_CACHED = 8 * _PIECE  # bytes of fetched ranges that are kept in memory
_SMALL = buffer_size(4 << 20)  # a single read up to this is kept
_STREAK = 4  # after this many adjacent reads of up to _SHORT bytes, a request also fetches the next bytes
_SHORT = buffer_size(1 << 20)


def remote_source(url: str, cache: RangeCache | None = None, origins: Collection[str] = ()) -> Source:
    """The object at ``url``, or the folder when it ends in a slash or names a whole repository of the hub.

    ``origins`` are those to which its server may redirect, beside its own.
    """
    try:
        host = urlsplit(url).hostname
    except ValueError:  # such as a bracket that is not closed
        raise RemoteError(f"{file_text(url)}: is not a URL") from None
    if not host:  # before a client is loaded, which tries what the network can do, or asks a server of its own choice
        raise RemoteError(f"{file_text(url)}: is not a URL: it names no server, bucket or owner")
    kind = RemoteFolder if is_folder_url(url) else RemoteSource
    return kind(url, cache=cache, origins=origins)


class _RemoteMember(Source):
    """A source whose files of the same set lie at neighbouring URLs."""

    is_remote = True
    _siblings: Siblings

    def sibling(self, relative: str) -> Source:
        return self._siblings.open(relative)

    def expect(self, names: Iterable[str]) -> None:
        self._siblings.expect(names)

    def names(self) -> list[str]:
        return sorted({name.partition("/")[0] for name in self._siblings.names()})

    def files(self) -> list[str]:
        return self._siblings.names()


class RemoteSource(_RemoteMember):
    """One object at a URL."""

    def __init__(self, url: str, *, cache: RangeCache | None = None, origins: Collection[str] = ()) -> None:
        self.name = file_text(url)
        self.url = url
        self._object = RemoteObject(url, _HEAD, cache, origins)
        self._siblings = Siblings(url, partial(RemoteSource, cache=cache, origins=origins), origins)
        self.size = self._object.size
        self._spans = SpanCache(_CACHED)
        self._lock = make_lock()
        self._is_closed = False
        self._next = 0  # where the last read ended
        self._streak = self._run = 0  # adjacent reads so far, and their bytes
        self._spans.add(0, self._object.head, pin=True)
        if self.size > _HEAD:
            start = max(_HEAD, self.size - _TAIL)
            self._spans.add(start, self._object.fetch(start, self.size), pin=True)

    @property
    def requests(self) -> int:
        """Requests sent so far."""
        return self._object.requests

    @property
    def received(self) -> int:
        """Bytes received so far."""
        return self._object.received

    @property
    def identity(self) -> tuple[object, ...]:
        return self._object.identity

    @property
    def parallel_reads(self) -> int:
        return PARALLEL_REQUESTS

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self.view(offset, size))

    def view(self, offset: int, size: int) -> memoryview:
        self._check_open(offset, size)
        if not size:
            return memoryview(b"")
        found = self._spans.find(offset, offset + size)
        if found is not None:
            self._count_adjacent(offset, size)
            return found
        if size <= _PIECE and self._spans.missing(offset, offset + size) == [(offset, offset + size)]:  # no copy
            return self._fetch_one(offset, size)
        buffer = empty_buffer(size)
        self.read_into(offset, buffer)
        return buffer.toreadonly()

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self._check_open(offset, len(buffer))
        missing = self._spans.copy(offset, buffer)
        pieces = [piece for span in missing for piece in split(*span, _PIECE)]
        if len(pieces) == 1:
            start, stop = pieces[0]
            buffer[start - offset : stop - offset] = self._fetch_one(start, stop - start)
            return
        self._count_adjacent(offset, len(buffer))
        pool = request_pool()
        wait_all([pool.submit(self._fill, buffer[start - offset : stop - offset], start) for start, stop in pieces])

    def _fill(self, buffer: memoryview, start: int) -> None:
        """Fetch into ``buffer``. The copy is made in the thread that waits for the server."""
        import numpy as np

        data = self._object.fetch(start, start + len(buffer))
        np.frombuffer(buffer, np.uint8)[:] = np.frombuffer(data, np.uint8)  # numpy releases the interpreter lock

    def _fetch_one(self, offset: int, size: int) -> memoryview:
        """Send one request. In a run of adjacent reads it takes along the bytes that the next reads would ask for."""
        streak, run = self._count_adjacent(offset, size)
        wanted = size
        if streak >= _STREAK and size <= _SHORT:
            wanted = min(max(size, run), _PIECE, self.size - offset)
            first = self._spans.missing(offset, offset + wanted)[0]
            wanted = max(size, first[1] - offset)
        data = self._object.fetch(offset, offset + wanted)
        if size <= _SMALL:
            self._spans.add(offset, data)
        return data[:size]

    def _count_adjacent(self, offset: int, size: int) -> tuple[int, int]:
        with self._lock:
            if 0 <= offset - self._next <= _GAP:
                self._streak, self._run = self._streak + 1, self._run + size
            else:
                self._streak = self._run = 0
            self._next = offset + size
            return self._streak, self._run

    def chunks(self, offset: int, size: int, chunk: int = CHUNK) -> Iterator[memoryview]:
        """As for any source, with several requests under way, none of them beyond the range."""
        self._check_open(offset, size)
        if size <= max(chunk, _SMALL) or not self._spans.missing(offset, offset + size):
            yield from super().chunks(offset, size, chunk)
            return
        unit = chunk * max(1, CHUNK // chunk)
        waiting = deque(split(offset, offset + size, unit))
        pending: deque[Future[memoryview]] = deque()
        try:
            while waiting or pending:
                while waiting and len(pending) < PARALLEL_REQUESTS:
                    pending.append(request_pool().submit(self._object.fetch, *waiting.popleft()))
                data = pending.popleft().result()
                for at in range(0, len(data), chunk):
                    self._check_open(offset, 0)
                    yield data[at : at + chunk]
        finally:
            for future in pending:
                future.cancel()

    def prefetch(self, ranges: Iterable[ByteRange]) -> None:
        """Fetch the missing parts of ``ranges`` into memory, with few requests in parallel."""
        wanted = [gap for span in ranges if span[0] < span[1] for gap in self._spans.missing(*span)]
        plan = [piece for span in coalesce(wanted, gap=_GAP, most=_PIECE) for piece in split(*span, _PIECE)]
        if sum(stop - start for start, stop in plan) > _CACHED // 2:  # more would push the first ones out again
            plan = plan[: _CACHED // 2 // _PIECE]
        if len(plan) == 1:
            self._spans.add(plan[0][0], self._object.fetch(*plan[0]))
            return
        fetched = request_pool().map(lambda span: self._object.fetch(*span), plan)
        for (start, _), data in zip(plan, fetched, strict=True):
            self._spans.add(start, data)

    def fetch(self, ranges: Iterable[ByteRange]) -> Source:
        self._check_open(0, 0)
        wanted = [gap for span in ranges if span[0] < span[1] for gap in self._spans.missing(*span)]
        spans = coalesce(wanted, gap=_GAP, most=_PIECE)
        return PendingSource(self, [(start, self._start_fetch(start, stop)) for start, stop in spans])

    def _start_fetch(self, start: int, stop: int) -> Callable[[], memoryview]:
        """Start to fetch a range, in one request or in several. Returns a function that waits for its bytes."""
        if stop - start <= _WHOLE:
            return request_pool().submit(self._object.fetch, start, stop).result
        buffer = empty_buffer(stop - start)
        pieces = split(start, stop, _PIECE)
        futures = [request_pool().submit(self._fill, buffer[low - start : high - start], low) for low, high in pieces]

        def wait() -> memoryview:
            wait_all(futures)
            return buffer.toreadonly()

        return wait

    def _check_open(self, offset: int, size: int) -> None:
        self._check_inside(offset, size)
        if self._is_closed:
            raise self._closed_error()
        refuse_after_fork()

    def close(self) -> None:
        self._is_closed = True
        self._spans.clear()
        self._siblings.close()


class RemoteFolder(_RemoteMember):
    """A folder at a URL: it has no bytes, and its siblings are the files that it contains."""

    is_folder = True
    size = 0

    def __init__(self, url: str, *, cache: RangeCache | None = None, origins: Collection[str] = ()) -> None:
        self.name = file_text(url)
        self.url = url if url.endswith("/") or "?" in url else url + "/"
        self._siblings = Siblings(self.url, partial(RemoteSource, cache=cache, origins=origins), origins)

    @property
    def identity(self) -> tuple[object, ...]:
        return ("url folder", remove_signature(self.url))

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self._check_inside(offset, len(buffer))

    def close(self) -> None:
        self._siblings.close()
