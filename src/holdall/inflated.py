"""Deflated entries of an archive: inflated when asked for, never beyond the size they state."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator

from holdall.errors import FormatError
from holdall.locks import Lock
from holdall.payload import Payload, Range, Span
from holdall.proof import Proof
from holdall.sizes import tuned
from holdall.source import CHUNK, Source
from holdall.source.buffers import regroup
from holdall.ziplayout import DEFLATE

__all__ = ["Inflated", "read_part"]


class Inflated(Payload):
    """What a deflated range inflates to: exactly ``size`` bytes, or an error.

    Bytes that do not have the CRC-32 of ``proof`` raise HashError after the last of them; with ``first``, before any
    of them is given. Without a proof they are not checked.
    """

    __slots__ = ("_lock", "_place", "_proof", "_unproven", "_what", "size")

    def __init__(self, place: Range, size: int, what: str, proof: Proof | None = None, *, first: bool = False) -> None:
        self.size = size
        self._place = place
        self._what = what
        self._proof = proof
        self._unproven = first and proof is not None
        self._lock = Lock()

    @property
    def source(self) -> Source:
        """Where the deflated bytes are."""
        return self._place.source

    def spans(self) -> Iterator[Span]:
        return self._place.spans()

    def part(self, start: int, stop: int) -> memoryview:
        self._prove()
        return self.peek(start, stop)

    def peek(self, start: int, stop: int) -> memoryview:
        """As :meth:`part`, for what is parsed while a file is opened: unproven, unless it is read to its end."""
        kept = bytearray()
        at = 0
        for piece in self._pieces(min(CHUNK, max(stop, tuned(4096)))):
            kept += piece[max(0, start - at) : max(0, stop - at)]
            at += len(piece)
            if at >= stop < self.size:  # who asks for the front does not pay for the rest
                break
        return memoryview(bytes(kept))

    def chunks(self, piece: int = CHUNK) -> Iterator[memoryview]:
        self._prove()
        yield from regroup(self._pieces(CHUNK), piece)

    def _prove(self) -> None:
        """Pass over all of it once, where that has to come first."""
        with self._lock:
            if self._unproven:
                deque(self._pieces(CHUNK), 0)
                self._unproven = False

    def _pieces(self, step: int) -> Iterator[bytes]:
        """All of it in order, ``step`` bytes at a time."""
        decoder = zlib.decompressobj(-zlib.MAX_WBITS)
        left, crc = self.size, 0
        for stored in self._place.chunks(step):
            feed: bytes | memoryview = stored
            while feed and not decoder.eof:
                try:
                    made = decoder.decompress(feed, min(step, left) or 1)
                except zlib.error as error:
                    raise self._broken(str(error)) from None
                if len(made) > left:
                    raise self._broken(f"it inflates to more than the {self.size} bytes stated")
                left -= len(made)
                crc = zlib.crc32(made, crc)
                feed = decoder.unconsumed_tail
                yield made
        if left or not decoder.eof or decoder.unused_data:
            raise self._broken(f"{self.size - left} bytes came where {self.size} are stated")
        if self._proof is not None:
            self._proof.compare(crc)

    def _broken(self, why: str) -> FormatError:
        return FormatError(DEFLATE.id, self._place.offset, f"{self._what}: {why}")


def read_part(payload: Payload, start: int, stop: int) -> bytes:
    """Some bytes of an entry by positioned reads: for what is parsed, and not kept as a view."""
    if isinstance(payload, Range):
        return payload.source.read(payload.offset + start, stop - start)
    return bytes(payload.peek(start, stop) if isinstance(payload, Inflated) else payload.part(start, stop))
