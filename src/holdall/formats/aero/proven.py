"""Payloads that have hashes: proven before they are handed out, always so when they come from afar."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdall.check import Check
from holdall.errors import FormatError
from holdall.formats.aero import rules
from holdall.formats.aero.chunks import Chunk, Container
from holdall.formats.aero.integrity import Pages, read_pages
from holdall.locks import Lock
from holdall.payload import Range
from holdall.sizes import tuned
from holdall.source import CHUNK, Source
from holdall.source.buffers import regroup

__all__ = ["PageProof", "Proven"]

_HELD = tuned(64 << 20)  # the largest page, and the largest tensor, that is held in memory to be proven


class PageProof:
    """The page hashes of one shard, read when they are first needed."""

    def __init__(self, container: Container, chunk: Chunk, shard: Chunk) -> None:
        self._container = container
        self._chunk = chunk
        self._shard = shard
        self._pages: Pages | None = None
        self._lock = Lock()

    @property
    def usable(self) -> bool:
        """Whether its pages are small enough to be held one at a time."""
        return self._read().page_size <= _HELD

    def _read(self) -> Pages:
        with self._lock:
            if self._pages is None:
                self._pages = read_pages(self._container, self._chunk, {self._shard.name: self._shard}, Check())
            return self._pages

    def reach(self, start: int, stop: int) -> tuple[int, int]:
        """The whole pages around a range of the file."""
        page, first = self._read().page_size, self._shard.offset
        low, high = (start - first) // page * page, -(-(stop - first) // page) * page
        return first + low, first + min(high, self._shard.length)

    def view(self, source: Source, start: int, stop: int) -> memoryview:
        """The range, every page of it proven."""
        if start == stop:
            return memoryview(b"")
        low, high = self.reach(start, stop)
        data = source.view(low, high - low)
        self._prove(low, data)
        return data[start - low : stop - low]

    def chunks(self, source: Source, start: int, stop: int, piece: int) -> Iterator[memoryview]:
        """The range in pieces, every page proven before any of it is given."""
        return regroup(self._proven(source, start, stop), piece)

    def _proven(self, source: Source, start: int, stop: int) -> Iterator[memoryview]:
        """The range in parts of pages that are proven."""
        if start == stop:
            return
        at, high = self.reach(start, stop)
        for data in source.chunks(at, high - at, self._read().page_size):
            self._prove(at, data)
            yield data[max(0, start - at) : stop - at]
            at += len(data)
            del data  # or it would look as if it were kept

    def _prove(self, at: int, data: memoryview) -> None:
        """``data`` begins with a page and ends with one."""
        from blake3 import blake3

        pages = self._read()
        for start in range(0, len(data), pages.page_size):
            number = (at + start - self._shard.offset) // pages.page_size
            found = blake3(data[start : start + pages.page_size]).digest()
            if found != pages.digests[32 * number : 32 * number + 32]:
                message = f"aero: page {number} of {self._shard.name!r} does not have the BLAKE3 that PHSH says"
                raise FormatError(rules.PAGE.id, at + start, message)


@dataclass(frozen=True, slots=True)
class Proven(Range):
    """A stretch of a file that has a hash: whoever takes all of it gets it proven; from afar, any part of it.

    ``stored`` bytes have the hash ``digest``, where there is one; the first ``size`` of them are the payload. A part
    is proven by its ``pages``, or, where only the whole has a hash, by passing over the whole.
    """

    digest: bytes = b""
    stored: int = 0
    name: str = ""
    pages: PageProof | None = None

    @property
    def reach(self) -> tuple[int, int]:
        if self.digest or self.pages is None or not self.pages.usable or not self.size:
            return self.offset, self.offset + max(self.size, self.stored)
        return self.pages.reach(self.offset, self.offset + self.size)

    def part(self, start: int, stop: int) -> memoryview:
        if self.digest and start == 0 and stop == self.size:
            data = self.source.view(self.offset, self.stored)
            self._compare(_blake3(data))
            return data[: self.size]
        if not self.source.far or start == stop:
            return Range.part(self, start, stop)
        if self.pages is not None and self.pages.usable:
            return self.pages.view(self.source, self.offset + start, self.offset + stop)
        return self._passed(start, stop) if self.digest else Range.part(self, start, stop)

    def chunks(self, piece: int = CHUNK) -> Iterator[memoryview]:
        if self.source.far and self.pages is not None and self.pages.usable:
            yield from self.pages.chunks(self.source, self.offset, self.offset + self.size, piece)
            return
        if self.source.far and self.digest and self.stored <= _HELD:
            data = self.part(0, self.size)
            yield from (data[at : at + piece] for at in range(0, self.size, piece))
            return
        yield from self._running(piece)

    def _running(self, piece: int) -> Iterator[memoryview]:
        """Pieces as they come; the hash is known, and compared, after the last."""
        from blake3 import blake3

        running = blake3()
        for taken in Range.chunks(self, piece):
            running.update(taken)
            yield taken
            del taken  # or it would look as if it were kept
        if self.digest:
            running.update(self.source.read(self.offset + self.size, self.stored - self.size))
            self._compare(running.digest())

    def _passed(self, start: int, stop: int) -> memoryview:
        """A part, taken while passing over the whole: nothing is given before the hash is known to be right."""
        if self.stored <= _HELD:
            return self.part(0, self.size)[start:stop]
        found = bytearray()
        at = 0
        for taken in self._running(CHUNK):
            found += taken[max(0, start - at) : max(0, stop - at)]
            at += len(taken)
        return memoryview(found).toreadonly()

    def _compare(self, found: bytes) -> None:
        if found != self.digest:
            message = f"aero: tensor {self.name!r}: its BLAKE3 is {found.hex()}, hash_b3 says {self.digest.hex()}"
            raise FormatError(rules.TENSOR_HASH.id, self.offset, message)


def _blake3(data: memoryview) -> bytes:
    from blake3 import blake3

    return blake3(data).digest()
