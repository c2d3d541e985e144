"""Digests over ranges of a file, fed as its bytes are written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Protocol

from holdall.plan import Late, Plan, Tap

__all__ = ["RunningTaps", "crc32_combine"]


class Hash(Protocol):
    """What hashlib and blake3 have in common."""

    def update(self, data: Any, /) -> object:
        """Feed bytes."""

    def digest(self) -> bytes:
        """The value so far."""


def new_hash(kind: str) -> Hash:
    """A fresh hash of the kind that a tap names."""
    if kind == "sha256":
        return hashlib.sha256()
    from blake3 import blake3

    return blake3()


class _Running:
    """One tap at work. A crc32 is kept for each stretch between late pieces, to be combined at the end."""

    def __init__(self, tap: Tap, lates: list[Late]) -> None:
        self.tap = tap
        self.start = tap.start
        self.stop = tap.stop if isinstance(tap.stop, int) else None  # None until the sink gets there
        self.lates = lates  # inside the range, in file order
        self._hash = None if tap.kind == "crc32" else new_hash(tap.kind)
        self._runs: list[tuple[int, int]] = [(0, 0)]  # crc and length of each stretch
        self._next_late = 0

    @property
    def by_reading_back(self) -> bool:
        return bool(self.lates) and self._hash is not None

    def feed(self, at: int, data: memoryview) -> None:
        """Take the part of ``data``, written at ``at``, that lies in the range."""
        end = at + len(data)
        low, high = max(at, self.start), end if self.stop is None else min(end, self.stop)
        if low >= high or self.by_reading_back:
            return
        window = data[low - at : high - at]
        if self._hash is not None:
            self._hash.update(window)
        else:
            self._feed_crc(low, window)

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

    def result(
        self, late_bytes: Callable[[str], bytes], read_back: Callable[[int, int], Iterator[memoryview]]
    ) -> Any:
        """The digest, once the range has passed and every late piece in it is made."""
        assert self.stop is not None
        if self.by_reading_back:
            digest = new_hash(self.tap.kind)
            for chunk in read_back(self.start, self.stop):
                digest.update(chunk)
            return digest.digest()
        if self._hash is not None:
            return self._hash.digest()
        from isal.isal_zlib import crc32

        total, _ = self._runs[0]
        for late, (crc, length) in zip(self.lates, [*self._runs[1:], (0, 0)], strict=False):
            inside = late_bytes(late.name)[max(0, self.start - late.offset) : self.stop - late.offset]
            total = crc32(inside, total)
            total = crc32_combine(total, crc, length)
        return total


class RunningTaps:
    """All taps of a plan, fed in file order."""

    def __init__(self, plan: Plan) -> None:
        lates = sorted((p for p in plan.pieces if isinstance(p, Late)), key=lambda late: late.offset)
        self._taps = sorted((self._start(tap, lates) for tap in plan.taps), key=lambda tap: tap.start)
        self._first = 0  # taps before this one are past their range
        self.by_name = {running.tap.name: running for running in self._taps}

    @staticmethod
    def _start(tap: Tap, lates: list[Late]) -> _Running:
        stop = tap.stop if isinstance(tap.stop, int) else None  # an end that is not known lies after all late pieces
        inside = [x for x in lates if x.offset + x.size > tap.start and (stop is None or x.offset < stop)]
        if inside and tap.kind != "crc32" and not tap.reread:
            raise AssertionError(f"tap {tap.name!r} covers late bytes and does not say that it reads them back")
        return _Running(tap, inside)

    def end(self, tail: str | None, at: int) -> None:
        """Say where the taps end that end at ``tail``, or at the end of the file."""
        for running in self._taps:
            if running.stop is None and running.tap.stop == tail:
                running.stop = at

    def touching(self, at: int, size: int) -> list[_Running]:
        """The taps that want bytes of ``at..at+size``."""
        while self._first < len(self._taps):
            stop = self._taps[self._first].stop
            if stop is None or stop > at:
                break
            self._first += 1
        found = []
        for tap in self._taps[self._first :]:
            if tap.start >= at + size:
                break
            if tap.stop is None or tap.stop > at:
                found.append(tap)
        return found


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
