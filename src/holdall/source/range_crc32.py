"""The CRC-32 of a range of a source. Threads sum segments of it, so that it is as fast as memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdall.base.buffer_sizes import buffer_size
from holdall.base.parallel import map_in_order
from holdall.binary.crc32 import crc32_combine
from holdall.source.buffers import lend_pieces

if TYPE_CHECKING:
    from holdall.source import Source

__all__ = ["crc32_of"]

_PIECE = buffer_size(4 << 20)  # bytes of one read: more of them would wait for the interpreter lock more often
_SEGMENT = 2 * _PIECE  # bytes that one thread sums at a time; the sums are combined in order


def crc32_of(source: Source, start: int, stop: int, on_progress: Callable[[int], None] = lambda count: None) -> int:
    """The CRC-32 of bytes ``start..stop``; ``on_progress`` receives the bytes of each part that is done.

    >>> import zlib
    >>> from holdall.source import BytesSource
    >>> crc32_of(BytesSource(b"xx123456789"), 2, 11) == zlib.crc32(b"123456789")
    True
    """
    from isal.isal_zlib import crc32

    def sum_segment(at: int) -> tuple[int, int]:
        end, total = min(at + _SEGMENT, stop), 0
        for piece in lend_pieces(source, at, end, _PIECE):
            total = crc32(piece, total)
        return total, end - at

    total = 0
    for crc, length in map_in_order(sum_segment, range(start, stop, _SEGMENT)):
        total = crc32_combine(total, crc, length)
        on_progress(length)
    return total
