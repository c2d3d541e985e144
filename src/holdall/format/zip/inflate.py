"""Deflated entries of an archive, inflated when they are read and never beyond their stated size."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator

from holdall.base.buffer_sizes import buffer_size
from holdall.base.locks import make_lock
from holdall.errors import FormatError
from holdall.format.proof import Proof
from holdall.format.zip.layout import DEFLATE
from holdall.model.payload import Payload, SourceRange, Span
from holdall.source import CHUNK, Source
from holdall.source.buffers import regroup

__all__ = ["InflatedPayload", "read_part"]


class InflatedPayload(Payload):
    """The inflated bytes of a deflated range: exactly ``size`` of them, or an error.

    If the CRC-32 is not that of ``proof``, reading raises HashError after the last byte or, with ``first``, before
    the first one. Without a proof the CRC-32 is not checked.
    """

    __slots__ = ("_lock", "_place", "_proof", "_unproven", "_what", "size")
    in_order = True

    def __init__(
        self, place: SourceRange, size: int, what: str, proof: Proof | None = None, *, first: bool = False
    ) -> None:
        self.size = size
        self._place = place
        self._what = what
        self._proof = proof
        self._unproven = first and proof is not None
        self._lock = make_lock()

    @property
    def source(self) -> Source:
        """Where the deflated bytes are."""
        return self._place.source

    def spans(self) -> Iterator[Span]:
        return self._place.spans()

    def slice(self, start: int, stop: int) -> memoryview:
        self._prove()
        return self.peek(start, stop)

    def peek(self, start: int, stop: int) -> memoryview:
        """As :meth:`part`, but the CRC-32 is checked only if the range reaches the end: for parsing at open."""
        kept = bytearray()
        at = 0
        for piece in self._inflate_pieces(min(CHUNK, max(stop, buffer_size(4096)))):
            kept += piece[max(0, start - at) : max(0, stop - at)]
            at += len(piece)
            if at >= stop < self.size:  # the rest is not needed
                break
        return memoryview(bytes(kept))

    def chunks(self, piece: int = CHUNK) -> Iterator[memoryview]:
        self._prove()
        yield from regroup(self._inflate_pieces(CHUNK), piece)

    def _prove(self) -> None:
        """Check the CRC-32 once, if that has to come before the first byte."""
        with self._lock:
            if self._unproven:
                deque(self._inflate_pieces(CHUNK), 0)
                self._unproven = False

    def _inflate_pieces(self, step: int) -> Iterator[bytes]:
        """All inflated bytes in order, at most ``step`` at a time."""
        decoder = zlib.decompressobj(-zlib.MAX_WBITS)
        left, crc = self.size, 0
        for stored in self._place.chunks(step):
            feed: bytes | memoryview = stored
            most = 0
            # All of the input may be taken while bytes of the output are still to come: those beyond ``most``.
            while (feed or most) and not decoder.eof:
                most = min(step, left) or 1
                try:
                    made = decoder.decompress(feed, most)
                except zlib.error as error:
                    raise self._make_error(str(error)) from None
                if len(made) > left:
                    raise self._make_error(f"it inflates to more than the {self.size} bytes stated")
                left -= len(made)
                crc = zlib.crc32(made, crc)
                feed = decoder.unconsumed_tail
                if len(made) < most:
                    most = 0
                yield made
        if left or not decoder.eof or decoder.unused_data:
            raise self._make_error(f"{self.size - left} bytes came where {self.size} are stated")
        if self._proof is not None:
            self._proof.compare(crc)

    def _make_error(self, why: str) -> FormatError:
        return FormatError(DEFLATE.id, self._place.offset, f"{self._what}: {why}")


def read_part(payload: Payload, start: int, stop: int) -> bytes:
    """Read some bytes of an entry as a copy, by positioned reads: for content that is parsed at open."""
    if isinstance(payload, SourceRange):
        return payload.source.read(payload.offset + start, stop - start)
    return bytes(payload.peek(start, stop) if isinstance(payload, InflatedPayload) else payload.slice(start, stop))
