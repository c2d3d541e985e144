"""Digests over ranges of a file, fed as its bytes are written."""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache, partial
from typing import Any, Protocol

from holdall.plan import Late, Plan, Tap
from holdall.sizes import tuned

__all__ = ["HashThreads", "RunningTaps", "crc32_combine"]


_LARGE = tuned(512 << 10)  # a share of a chunk that is worth a thread
_HUGE = tuned(32 << 20)  # a range that is worth threads of its own

_forked = False  # the threads that blake3 divides its work among do not survive a fork, and it would wait for them


def _in_child() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_in_child)


class Hash(Protocol):
    """What hashlib and blake3 have in common."""

    def update(self, data: Any, /) -> object:
        """Feed bytes."""

    def digest(self) -> bytes:
        """The value so far."""


def new_hash(kind: str, size: int | None = None) -> Hash:
    """A fresh hash of the kind that a tap names. One that is to see many bytes may divide them among the cores."""
    if kind == "sha256":
        return hashlib.sha256()
    from blake3 import blake3

    many = (size is None or size >= _HUGE) and not _forked
    return blake3(max_threads=blake3.AUTO) if many else blake3()


class Pages:
    """A digest of every ``size`` bytes, the last ones being fewer; together they behave as one hash."""

    def __init__(self, kind: str, size: int) -> None:
        self._kind = kind
        self._size = size
        self._done: list[bytes] = []
        self._open: Hash | None = None
        self._held = 0  # bytes of the page that is open

    def update(self, data: memoryview) -> None:
        """Feed bytes, across as many pages as they are."""
        at = 0
        while at < len(data):
            take = min(len(data) - at, self._size - self._held)
            if self._open is None:
                self._open = new_hash(self._kind, self._size)
            self._open.update(data[at : at + take])
            at, self._held = at + take, self._held + take
            if self._held == self._size:
                self._close()

    def _close(self) -> None:
        if self._open is not None:
            self._done.append(self._open.digest())
        self._open, self._held = None, 0

    def digest(self) -> bytes:
        """The digests of all pages, joined. Nothing is fed afterwards."""
        self._close()
        return b"".join(self._done)


class _Running:
    """One tap at work. A crc32 is kept for each stretch between late pieces, to be combined at the end."""

    __slots__ = ("_digest", "_hash", "_next_late", "_runs", "lates", "start", "stop", "tap")

    def __init__(self, tap: Tap, lates: list[Late]) -> None:
        self.tap = tap
        self.start = tap.start
        self.stop = tap.stop if isinstance(tap.stop, int) else None  # None until the sink gets there
        self.lates = lates  # inside the range, in file order
        self._hash: Hash | None = None  # of two kilobytes: from the first byte of the range until its last
        self._digest: bytes | None = None
        self._runs: list[tuple[int, int]] = [(0, 0)] if tap.kind == "crc32" else []  # crc and length of each stretch
        self._next_late = 0

    @property
    def by_reading_back(self) -> bool:
        return bool(self.lates) and self.tap.kind != "crc32"

    def share(self, at: int, size: int) -> int:
        """How many of ``size`` bytes from ``at`` on are to be digested."""
        high = at + size if self.stop is None else min(at + size, self.stop)
        return 0 if self.by_reading_back else max(0, high - max(at, self.start))

    def feed(self, at: int, data: memoryview) -> None:
        """Take the part of ``data``, written at ``at``, that lies in the range."""
        end = at + len(data)
        low, high = max(at, self.start), end if self.stop is None else min(end, self.stop)
        if low >= high or self.by_reading_back:
            return
        window = data[low - at : high - at]
        if self.tap.kind == "crc32":
            self._feed_crc(low, window)
            return
        if self._hash is None:
            self._hash = self._fresh()
        self._hash.update(window)
        if high == self.stop:
            self._digest, self._hash = self._hash.digest(), None

    def _fresh(self) -> Hash:
        """A hash that has seen nothing."""
        kind, every = self.tap.kind, self.tap.every
        return new_hash(kind, _span(self.tap)) if every is None else Pages(kind, every)

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
        """The digest, once the range has passed and every late piece in it is made."""
        assert self.stop is not None
        if self.by_reading_back:
            digest = self._fresh()
            for chunk in read_back(self.start, self.stop):
                digest.update(chunk)
            return digest.digest()
        if self.tap.kind != "crc32":
            return self._digest if self._digest is not None else (self._hash or self._fresh()).digest()
        from isal.isal_zlib import crc32

        total, _ = self._runs[0]
        for late, (crc, length) in zip(self.lates, [*self._runs[1:], (0, 0)], strict=False):
            inside = late_bytes(late.name)[max(0, self.start - late.offset) : self.stop - late.offset]
            total = crc32(inside, total)
            total = crc32_combine(total, crc, length)
        return total


def _span(tap: Tap) -> int | None:
    """Bytes of the tap's range, where they are known."""
    return tap.stop - tap.start if isinstance(tap.stop, int) else None


class RunningTaps:
    """All taps of a plan, fed in file order."""

    def __init__(self, plan: Plan) -> None:
        lates = sorted((p for p in plan.pieces if isinstance(p, Late)), key=lambda late: late.offset)
        starts = [late.offset for late in lates]
        ends = [late.offset + late.size for late in lates]  # ascending too: pieces do not overlap
        self._taps = sorted((self._start(tap, lates, starts, ends) for tap in plan.taps), key=lambda tap: tap.start)
        self._next = 0  # taps from this one on have not begun
        self._active: list[_Running] = []  # the others, but for those past their range
        self.by_name = {running.tap.name: running for running in self._taps}

    @staticmethod
    def _start(tap: Tap, lates: list[Late], starts: list[int], ends: list[int]) -> _Running:
        first = bisect_right(ends, tap.start)
        # an end that is not known lies after all late pieces
        last = bisect_left(starts, tap.stop) if isinstance(tap.stop, int) else len(lates)
        inside = lates[first:last]
        if inside and tap.kind != "crc32" and not tap.reread:
            raise AssertionError(f"tap {tap.name!r} covers late bytes and does not say that it reads them back")
        assert tap.every is None or tap.kind != "crc32", "pages are hashed, not summed"
        return _Running(tap, inside)

    def end(self, tail: str | None, at: int) -> None:
        """Say where the taps end that end at ``tail``, or at the end of the file."""
        for running in self._taps:
            if running.stop is None and running.tap.stop == tail:
                running.stop = at

    def touching(self, at: int, size: int) -> list[_Running]:
        """The taps that want bytes of ``at..at+size``; ``at`` never goes back."""
        while self._next < len(self._taps) and self._taps[self._next].start < at + size:
            self._active.append(self._taps[self._next])
            self._next += 1
        self._active = [tap for tap in self._active if tap.stop is None or tap.stop > at]
        return [tap for tap in self._active if tap.start < at + size]

    def jobs(self, at: int, data: memoryview) -> list[Callable[[], None]]:
        """What is to be done with ``data``, written at ``at``: large shares apart, so that cores can divide them.

        All jobs must be done before the next bytes come.
        """
        large: list[_Running] = []
        small: list[_Running] = []
        for tap in self.touching(at, len(data)):
            share = tap.share(at, len(data))
            if share:
                (large if share >= _LARGE else small).append(tap)

        def feed_small() -> None:
            for tap in small:
                tap.feed(at, data)

        jobs: list[Callable[[], None]] = [partial(tap.feed, at, data) for tap in large]
        return [*jobs, feed_small] if small else jobs


class HashThreads:
    """Does the jobs of one chunk after those of another, in the order in which they come, and each chunk's at once."""

    def __init__(self) -> None:
        self._order = ThreadPoolExecutor(1, "holdall-hash-order")
        self._pool = ThreadPoolExecutor(os.cpu_count() or 1, "holdall-hash")

    def submit(self, jobs: Sequence[Callable[[], None]]) -> Future[None]:
        """Have ``jobs`` done; the chunk they look at must stay as it is until then."""
        return self._order.submit(self.run, jobs)

    def run(self, jobs: Sequence[Callable[[], None]]) -> None:
        """Do ``jobs`` now, one of them here and the others beside it."""
        others = [self._pool.submit(job) for job in jobs[1:]]
        try:
            for job in jobs[:1]:
                job()
        finally:
            wait(others)
        for done in others:
            done.result()

    def __enter__(self) -> HashThreads:
        return self

    def __exit__(self, *problem: object) -> None:
        self._order.shutdown()
        self._pool.shutdown()


@lru_cache(maxsize=256)
def _zeros_operator(length: int) -> tuple[int, ...]:
    """The 32x32 bit matrix that appends ``length`` zero bytes to a CRC-32 (columns as integers)."""
    odd = (0xEDB88320, *(1 << n for n in range(31)))  # one zero bit
    matrix = odd
    for _ in range(3):  # 2, 4, 8 zero bits: one byte
        matrix = _multiply(matrix, matrix)
    result = tuple(1 << n for n in range(32))
    while length:
        if length & 1:
            result = _multiply(matrix, result)
        matrix = _multiply(matrix, matrix)
        length >>= 1
    return result


def _apply(matrix: tuple[int, ...], vector: int) -> int:
    total = 0
    for column in matrix:
        if vector & 1:
            total ^= column
        vector >>= 1
        if not vector:
            break
    return total


def _multiply(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(_apply(left, column) for column in right)


def crc32_combine(first: int, second: int, length: int) -> int:
    """The CRC-32 of A + B from those of A and of B, where B has ``length`` bytes.

    >>> import zlib
    >>> crc32_combine(zlib.crc32(b"hold"), zlib.crc32(b"all"), 3) == zlib.crc32(b"holdall")
    True
    """
    return _apply(_zeros_operator(length), first) ^ second
