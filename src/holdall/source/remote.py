"""Objects far away as sources: http(s), s3, gs, az and the Hugging Face hub.

Opening reads the head and the tail of the object, since an index is at one end or the other. After that a read is
answered from what is here, or by one request for what is missing; many reads that are known beforehand go through
the planner of :mod:`holdall.source.ranges`. Every answer is checked by :class:`~holdall.source.object.RemoteObject`.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING
from weakref import WeakSet

from holdall.source.base import CHUNK, Source
from holdall.source.kept import Kept
from holdall.source.object import MISSING, RemoteObject
from holdall.source.ranges import Span, coalesce, split
from holdall.source.requests import Trouble, listed
from holdall.source.stores import BUCKETS, Place, RemoteError, is_folder_url, is_url, joined, shown, stable

if TYPE_CHECKING:
    from holdall.source.cache import RangeCache

__all__ = ["RemoteError", "RemoteFolder", "RemoteSource", "is_url", "remote_source"]

_HEAD = _TAIL = 64 << 10  # read speculatively when opening
_PIECE = 8 << 20  # the size of one request when a large range is fetched side by side
_GAP = 64 << 10  # unwanted bytes that are cheaper than another request
_LANES = 8  # requests under way at once
_KEPT = 64 << 20  # bytes of fetched ranges that stay in memory
_SMALL = 1 << 20  # a single read up to this stays in memory
_STREAK = 4  # reads one after the other, after which the next are fetched along

# What lies beside weights on a server that cannot list its folders.
WELL_KNOWN = (
    "model.safetensors", "model.safetensors.index.json", "model.aeroset.json",
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model",
    "special_tokens_map.json", "added_tokens.json", "vocab.txt", "vocab.json", "merges.txt", "chat_template.jinja",
    "preprocessor_config.json", "modules.json", "sentence_bert_config.json", "1_Pooling/config.json", "README.md",
)  # fmt: skip


def remote_source(url: str, cache: RangeCache | None = None) -> Source:
    """The object at ``url``, or the folder when it ends in a slash or names a whole repository of the hub."""
    return RemoteFolder(url, cache=cache) if is_folder_url(url) else RemoteSource(url, cache=cache)


class _Siblings:
    """Members of the set that a URL belongs to."""

    def __init__(self, url: str, cache: RangeCache | None) -> None:
        self._url = url
        self._cache = cache
        self._coming: dict[str, Future[RemoteSource]] = {}
        self._names: list[str] | None = None

    def open(self, relative: str) -> RemoteSource:
        coming = self._coming.pop(relative, None)
        source = self._open(relative) if coming is None else coming.result()
        source.member = relative
        return source

    def expect(self, names: Iterable[str]) -> None:
        for name in names:
            url = joined(self._url, name)  # refuses what leaves the folder, before anything is sent
            self._coming.setdefault(name, _members().submit(RemoteSource, url, cache=self._cache))

    def names(self) -> list[str]:
        """By listing where there is such a thing, else those of the well-known names that are there."""
        if self._names is None:
            scheme = self._url.partition("://")[0].lower()
            if scheme in BUCKETS:
                folder = self._url.rpartition("/")[0] + "/"
                try:
                    self._names = listed(Place(folder))
                except Trouble as trouble:
                    raise RemoteError(f"{shown(folder)}: cannot be listed ({trouble.kind})") from None
            else:
                found = _members().map(self._is_there, WELL_KNOWN)
                self._names = [name for name, there in zip(WELL_KNOWN, found, strict=True) if there]
        return self._names

    def close(self) -> None:
        while self._coming:
            _, coming = self._coming.popitem()
            if not coming.cancel():
                coming.add_done_callback(lambda done: None if done.exception() else done.result().close())

    def _open(self, relative: str) -> RemoteSource:
        return RemoteSource(joined(self._url, relative), cache=self._cache)

    def _is_there(self, name: str) -> bool:
        if name in self._coming:
            return True
        try:
            RemoteObject(joined(self._url, name), 1).size  # noqa: B018 - a byte, since not every server answers HEAD
        except RemoteError as error:
            if str(error).endswith((MISSING, "access is denied")):
                return False
            raise
        return True


class RemoteSource(Source):
    """One object at a URL."""

    far = True

    def __init__(self, url: str, *, cache: RangeCache | None = None) -> None:
        self.name = shown(url)
        self.url = url
        self._object = RemoteObject(url, _HEAD, cache)
        self._siblings = _Siblings(url, cache)
        self.size = self._object.size
        self._kept = Kept(_KEPT)
        self._lock = threading.Lock()
        self._closed_flag = False
        self._next = self._streak = self._run = 0  # where the last read ended; reads and bytes that followed each other
        _live.add(self)
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
        return _LANES

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
        buffer = memoryview(bytearray(size))
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
        for (start, stop), data in zip(pieces, _lanes().map(lambda p: self._object.fetch(*p), pieces), strict=True):
            buffer[start - offset : stop - offset] = data

    def _fetch_one(self, offset: int, size: int) -> memoryview:
        """One request; a run of reads that follow each other takes along what they would ask for next."""
        streak, run = self._follow(offset, size)
        ahead = size
        if streak >= _STREAK and size <= _SMALL:
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
                while waiting and len(coming) < _LANES:
                    coming.append(_lanes().submit(self._object.fetch, *waiting.popleft()))
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
        for (start, _), data in zip(plan, _lanes().map(lambda span: self._object.fetch(*span), plan), strict=True):
            self._kept.add(start, data)

    def fetch(self, ranges: Iterable[Span]) -> Source:
        self._open(0, 0)
        wanted = [gap for span in ranges if span[0] < span[1] for gap in self._kept.missing(*span)]
        plan = [piece for span in coalesce(wanted, gap=_GAP, most=_PIECE) for piece in split(*span, _PIECE)]
        return _Fetched(self, [(start, _lanes().submit(self._object.fetch, start, stop)) for start, stop in plan])

    def renew(self) -> None:
        """After a fork: locks that nobody holds; a thread that held one did not come along."""
        self._lock = threading.Lock()
        self._object.renew()
        self._kept.renew()

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


class _Fetched(Source):
    """Some ranges of a source on their way into memory; everything else is asked of the source."""

    far = True

    def __init__(self, origin: Source, coming: list[tuple[int, Future[memoryview]]]) -> None:
        self.name, self.size, self.member = origin.name, origin.size, origin.member
        self._origin = origin
        self._coming = coming
        self._kept = Kept()
        self._lock = threading.Lock()

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
        buffer = memoryview(bytearray(size))
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
                start, future = self._coming[-1]
                self._kept.add(start, future.result())
                self._coming.pop()

    def close(self) -> None:
        for _, future in self._coming:
            future.cancel()


class RemoteFolder(Source):
    """A folder at a URL: no bytes of its own, and its siblings are what it contains."""

    is_folder = True
    far = True
    size = 0

    def __init__(self, url: str, *, cache: RangeCache | None = None) -> None:
        self.name = shown(url)
        self.url = url if url.endswith("/") or "?" in url else url + "/"
        self._siblings = _Siblings(self.url, cache)

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


# -- threads: those of the process they are used in -------------------------------------------------------------------

_live: WeakSet[RemoteSource] = WeakSet()


def _renew() -> None:
    for source in _live:
        source.renew()


os.register_at_fork(after_in_child=_renew)

_pools: dict[tuple[int, str], ThreadPoolExecutor] = {}


def _pool(name: str, threads: int) -> ThreadPoolExecutor:
    key = (os.getpid(), name)
    if key not in _pools:
        _pools[key] = ThreadPoolExecutor(threads, f"holdall-{name}")
    return _pools[key]


def _lanes() -> ThreadPoolExecutor:
    """For single requests, which wait for nothing but the server."""
    return _pool("fetch", _LANES)


def _members() -> ThreadPoolExecutor:
    """For opening members of sets, which may wait for single requests."""
    return _pool("member", _LANES)
