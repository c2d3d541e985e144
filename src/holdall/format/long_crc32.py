"""A long CRC-32 that several threads compute: each sums segments, and the sums are combined."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from holdall.base.buffer_sizes import buffer_size

if TYPE_CHECKING:
    from holdall.format.proof import Proof
    from holdall.source import Source

__all__ = ["SEGMENT", "Segment", "read_pieces", "split_crc32"]

SEGMENT = buffer_size(8 << 20)  # bytes that one thread sums


def split_crc32(proof: Proof) -> Iterator[Segment]:
    """Divide the work of a proof by CRC-32 into segments; the last one that is summed compares."""
    whole = _LongCrc32(proof)
    return (Segment(whole, start) for start in range(proof.start, proof.stop, SEGMENT))


class _LongCrc32:
    """A long CRC-32: threads add the sums of segments, and the last one combines them."""

    def __init__(self, proof: Proof) -> None:
        self.proof = proof
        self._sums: dict[int, tuple[int, int]] = {}  # crc and length of each segment, by its start
        self._left = proof.stop - proof.start
        self._lock = threading.Lock()

    def add(self, start: int, length: int, crc: int) -> None:
        """Add the sum of a segment."""
        from holdall.binary.crc32 import crc32_combine

        with self._lock:
            self._sums[start] = crc, length
            self._left -= length
            if self._left:
                return
        total = 0
        for _, (part, size) in sorted(self._sums.items()):
            total = crc32_combine(total, part, size)
        self.proof.compare(total)


class Segment:
    """One segment of a long CRC-32."""

    def __init__(self, whole: _LongCrc32, start: int) -> None:
        self._whole = whole
        self._start = start

    def run(self, buffer: memoryview, step: Callable[[int], object]) -> None:
        """Sum it; ``step`` takes the number of bytes read."""
        from isal.isal_zlib import crc32

        proof, start = self._whole.proof, self._start
        stop, crc = min(start + SEGMENT, proof.stop), 0
        for piece in read_pieces(proof.source, start, stop, buffer):
            crc = crc32(piece, crc)
            step(len(piece))
        self._whole.add(start, stop - start, crc)


def read_pieces(source: Source, start: int, stop: int, buffer: memoryview) -> Iterator[memoryview]:
    """Read the bytes in pieces, all through one buffer."""
    while start < stop:
        piece = buffer[: min(len(buffer), stop - start)]
        source.read_into(start, piece)
        yield piece
        start += len(piece)
