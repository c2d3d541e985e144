"""Digests of ranges of a file, taken while its bytes are read or written."""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

from holdall.base.buffer_sizes import buffer_size
from holdall.base.parallel import map_in_order, thread_count
from holdall.base.platform import after_fork, core_count
from holdall.binary.crc32 import crc32_combine

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Gap", "HashThreads", "Parts", "RunningTaps", "Tap", "TapKind", "run_jobs"]

_DIGEST = 32  # bytes of a BLAKE3 or SHA-256

TapKind = Literal["crc32", "blake3", "sha256"]


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Ranges inside that of a tap, ascending, that do not overlap: where each begins and ends in the file."""

    starts: NDArray[np.uint64]
    stops: NDArray[np.uint64]

    def touch(self, gap: Gap) -> bool:
        """Whether bytes of ``gap`` are in a part."""
        following = int(self.stops.searchsorted(gap.offset, side="right"))
        return following < len(self.starts) and int(self.starts[following]) < gap.offset + gap.size


@dataclass(frozen=True, slots=True)
class Tap:
    """A digest of ``start..stop``; ``stop`` is an offset, the name of the next tail, or None for the end of the file.

    Where late bytes are inside the range, a crc32 is combined when they are made; other kinds must say ``reread``, and
    the range is read back. With ``every`` there is one digest for each ``every`` bytes, with ``parts`` one for each
    part, and the result joins them.
    """

    name: str
    kind: TapKind
    start: int
    stop: int | str | None
    reread: bool = False
    every: int | None = None
    parts: Parts | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch of a file whose bytes are known last, such as a late piece of a plan."""

    name: str
    offset: int
    size: int


_LARGE = buffer_size(512 << 10)  # a part of a chunk that is worth a thread
_HUGE = buffer_size(32 << 20)  # a range that is worth several threads

_forked = False  # the threads of blake3 do not survive a fork, and it would wait for them


def _note_fork() -> None:
    global _forked
    _forked = True


after_fork(_note_fork)


class Hash(Protocol):
    """The methods that hashlib and blake3 share."""

    def update(self, data: Any, /) -> object:
        """Add bytes."""

    def digest(self) -> bytes:
        """The digest of the bytes so far."""


def new_hash(kind: str, size: int | None = None) -> Hash:
    """Make a hash of the kind that a tap names. A hash of many bytes divides them among the cores."""
    if kind == "sha256":
        return hashlib.sha256()
    from blake3 import blake3

    if _forked or (size is not None and size < _HUGE):
        return blake3()
    threads = thread_count()
    return blake3(max_threads=blake3.AUTO if threads == core_count() else threads)


class PagedHash:
    """A hash whose digest is those of every ``size`` bytes, joined; the last page may be shorter."""

    def __init__(self, kind: str, size: int) -> None:
        self._kind = kind
        self._size = size
        self._done: list[bytes] = []
        self._open: Hash | None = None
        self._filled = 0  # bytes of the open page

    def update(self, data: memoryview) -> None:
        """Add bytes, for any number of pages."""
        at = 0
        while at < len(data):
            take = min(len(data) - at, self._size - self._filled)
            if self._open is None:
                self._open = new_hash(self._kind, self._size)
            self._open.update(data[at : at + take])
            at, self._filled = at + take, self._filled + take
            if self._filled == self._size:
                self._close()

    def _close(self) -> None:
        if self._open is not None:
            self._done.append(self._open.digest())
        self._open, self._filled = None, 0

    def digest(self) -> bytes:
        """The digests of all pages, joined. No bytes may follow."""
        self._close()
        return b"".join(self._done)


class PartsHash:
    """A hash whose digest is those of parts of the bytes, joined. The first byte is at ``at`` of the file."""

    def __init__(self, kind: str, parts: Parts, at: int) -> None:
        self._kind = kind
        self._parts = parts
        self._at = at
        self._done = bytearray()
        self._open: Hash | None = None  # of the part that has begun and not ended

    def update(self, data: memoryview) -> None:
        """Add bytes, of any number of parts."""
        begin, self._at = self._at, self._at + len(data)
        parts, first = self._parts, len(self._done) // _DIGEST
        ended = int(parts.stops.searchsorted(self._at, side="right"))
        stops = parts.stops[first:ended].tolist()
        for start, stop in zip(parts.starts[first:ended].tolist(), stops, strict=True):
            digest = self._open or new_hash(self._kind, stop - start)
            digest.update(data[max(0, start - begin) : stop - begin])
            self._done += digest.digest()
            self._open = None
        if ended < len(parts.starts) and int(parts.starts[ended]) < self._at:
            start = int(parts.starts[ended])
            self._open = self._open or new_hash(self._kind, int(parts.stops[ended]) - start)
            self._open.update(data[max(0, start - begin) :])

    def digest(self) -> bytes:
        """The digests of all parts, joined."""
        self.update(memoryview(b""))  # parts without bytes at the end
        return bytes(self._done)


class RunningTap:
    """The state of one tap. It has a crc32 for each stretch between late pieces, which are combined at the end."""

    __slots__ = ("_digest", "_hash", "_next_late", "_runs", "lates", "start", "stop", "tap")

    def __init__(self, tap: Tap, lates: Sequence[Gap]) -> None:
        self.tap = tap
        self.start = tap.start
        self.stop = tap.stop if isinstance(tap.stop, int) else None  # None until the sink reaches it
        self.lates = lates  # inside the range, in file order
        self._hash: Hash | None = None  # takes 2 KB, so it exists only between the first byte of the range and its last
        self._digest: bytes | None = None
        self._runs: list[tuple[int, int]] = [(0, 0)] if tap.kind == "crc32" else []  # crc and length of each stretch
        self._next_late = 0

    @property
    def reads_back(self) -> bool:
        return bool(self.lates) and self.tap.kind != "crc32"

    def share(self, at: int, size: int) -> int:
        """Count the bytes in the range, of the ``size`` bytes from ``at`` on."""
        high = at + size if self.stop is None else min(at + size, self.stop)
        return 0 if self.reads_back else max(0, high - max(at, self.start))

    def feed(self, at: int, data: memoryview) -> None:
        """Digest the part of ``data``, which was written at ``at``, that is in the range."""
        end = at + len(data)
        low, high = max(at, self.start), end if self.stop is None else min(end, self.stop)
        if low >= high or self.reads_back:
            return
        window = data[low - at : high - at]
        if self.tap.kind == "crc32":
            self._feed_crc(low, window)
            return
        if self._hash is None:
            self._hash = self._new_hash()
        self._hash.update(window)
        if high == self.stop:
            self._digest, self._hash = self._hash.digest(), None

    def _new_hash(self) -> Hash:
        kind, every = self.tap.kind, self.tap.every
        if self.tap.parts is not None:
            return PartsHash(kind, self.tap.parts, self.start)
        return new_hash(kind, _span(self.tap)) if every is None else PagedHash(kind, every)

    def _feed_crc(self, at: int, window: memoryview) -> None:
        from isal.isal_zlib import crc32

        while window:
            late = self.lates[self._next_late] if self._next_late < len(self.lates) else None
            take = len(window) if late is None else min(len(window), max(0, late.offset - at))
            crc, length = self._runs[-1]
            if take:
                self._runs[-1] = (crc32(window[:take], crc), length + take)
            at, window = at + take, window[take:]
            if late is not None and at >= late.offset and window:
                skipped = min(len(window), late.offset + late.size - at)
                at, window = at + skipped, window[skipped:]
                if at == late.offset + late.size:
                    self._next_late += 1
                    self._runs.append((0, 0))

    def result(self, late_bytes: Callable[[str], bytes], read_back: Callable[[int, int], Iterator[memoryview]]) -> Any:
        """The digest. The range must be written, and every late piece in it made."""
        assert self.stop is not None
        if self.reads_back:
            digest = self._new_hash()
            for chunk in read_back(self.start, self.stop):
                digest.update(chunk)
            return digest.digest()
        if self.tap.kind != "crc32":
            return self._digest if self._digest is not None else (self._hash or self._new_hash()).digest()
        from isal.isal_zlib import crc32

        total, _ = self._runs[0]
        for late, (crc, length) in zip(self.lates, [*self._runs[1:], (0, 0)], strict=False):
            inside = late_bytes(late.name)[max(0, self.start - late.offset) : self.stop - late.offset]
            total = crc32(inside, total)
            total = crc32_combine(total, crc, length)
        return total


def _span(tap: Tap) -> int | None:
    """The size of the range, if it is known."""
    return tap.stop - tap.start if isinstance(tap.stop, int) else None


class RunningTaps:
    """All taps of a file, which take its bytes in order. ``late`` are the pieces whose bytes are known last."""

    def __init__(self, taps: Iterable[Tap], late: Iterable[Gap] = ()) -> None:
        lates = sorted(late, key=lambda gap: gap.offset)
        starts = [late.offset for late in lates]
        ends = [late.offset + late.size for late in lates]  # ascending too: pieces do not overlap
        self._taps = sorted((self._start(tap, lates, starts, ends) for tap in taps), key=lambda tap: tap.start)
        self._next = 0  # the first tap that has not begun
        self._active: list[RunningTap] = []  # taps that have begun and not ended
        self.by_name = {running.tap.name: running for running in self._taps}

    @staticmethod
    def _start(tap: Tap, lates: Sequence[Gap], starts: list[int], ends: list[int]) -> RunningTap:
        first = bisect_right(ends, tap.start)
        # An end that is not known yet lies after all late pieces.
        last = bisect_left(starts, tap.stop) if isinstance(tap.stop, int) else len(lates)
        inside = lates[first:last] if tap.parts is None else list(filter(tap.parts.touch, lates[first:last]))
        if inside and tap.kind != "crc32" and not tap.reread:
            raise AssertionError(f"tap {tap.name!r} covers late bytes and does not say that it reads them back")
        assert (tap.every is None and tap.parts is None) or tap.kind != "crc32", "pages are hashed, not summed"
        return RunningTap(tap, inside)

    def end(self, tail: str | None, at: int) -> None:
        """Set the end of the taps that end at ``tail``, or at the end of the file for None."""
        for running in self._taps:
            if running.stop is None and running.tap.stop == tail:
                running.stop = at

    def taps_in(self, at: int, size: int) -> list[RunningTap]:
        """The taps whose range has bytes of ``at..at+size``. ``at`` must not decrease."""
        while self._next < len(self._taps) and self._taps[self._next].start < at + size:
            self._active.append(self._taps[self._next])
            self._next += 1
        self._active = [tap for tap in self._active if tap.stop is None or tap.stop > at]
        return [tap for tap in self._active if tap.start < at + size]

    def jobs(self, at: int, data: memoryview) -> list[Callable[[], None]]:
        """Make the jobs that digest ``data``, which was written at ``at``. Large parts are jobs that cores can share.

        All jobs must be done before those of the next bytes start.
        """
        large: list[RunningTap] = []
        small: list[RunningTap] = []
        for tap in self.taps_in(at, len(data)):
            share = tap.share(at, len(data))
            if share:
                (large if share >= _LARGE else small).append(tap)

        def feed_small() -> None:
            for tap in small:
                tap.feed(at, data)

        jobs: list[Callable[[], None]] = [partial(tap.feed, at, data) for tap in large]
        return [*jobs, feed_small] if small else jobs


def run_jobs(jobs: Sequence[Callable[[], None]]) -> None:
    """Do the jobs of one chunk, in parallel."""
    for _ in map_in_order(lambda job: job(), jobs):
        pass


class HashThreads:
    """Does the jobs of chunks in the background, one chunk after the other."""

    def __init__(self) -> None:
        self._order = ThreadPoolExecutor(1, "holdall-hash")

    def submit(self, jobs: Sequence[Callable[[], None]]) -> Future[None]:
        """Do ``jobs`` in the background, or now if there is to be one thread only.

        The chunk that they read must not change before they are done.
        """
        if thread_count() > 1:
            return self._order.submit(copy_context().run, run_jobs, jobs)
        run_jobs(jobs)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def __enter__(self) -> HashThreads:
        return self

    def __exit__(self, *problem: object) -> None:
        self._order.shutdown()
