"""CRC-32 of a range of a source, at the speed of memory: positioned reads and sums overlap on a few threads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING

from holdall.sizes import tuned

if TYPE_CHECKING:
    from holdall.source import Source

__all__ = ["crc32_of"]

_PIECE = tuned(1 << 20)  # what it reads at a time: small enough to be summed while still in the cache
_SEGMENT = 8 * _PIECE  # what one thread sums at a time; the sums are combined in order


def crc32_of(source: Source, start: int, stop: int, tick: Callable[[int], None] = lambda count: None) -> int:
    """The CRC-32 of bytes ``start..stop``; ``tick`` is told how many more bytes have been through.

    >>> import zlib
    >>> from holdall.source import BytesSource
    >>> crc32_of(BytesSource(b"xx123456789"), 2, 11) == zlib.crc32(b"123456789")
    True
    """
    from holdall.sink.digests import crc32_combine

    if stop - start <= _PIECE:  # a thread would cost more than the sum
        alone: SimpleQueue[memoryview] = SimpleQueue()
        alone.put(memoryview(bytearray(stop - start)))
        total = _segment(source, start, stop, alone)
        tick(stop - start)
        return total
    workers = min(4, os.cpu_count() or 1, -(-(stop - start) // _SEGMENT) or 1)
    buffers: SimpleQueue[memoryview] = SimpleQueue()
    for _ in range(workers):
        buffers.put(memoryview(bytearray(min(_PIECE, stop - start))))
    starts = iter(range(start, stop, _SEGMENT))
    total = 0
    running: deque[tuple[Future[int], int]] = deque()
    with ThreadPoolExecutor(workers, "holdall-crc") as pool:
        while True:
            while len(running) <= 2 * workers and (at := next(starts, None)) is not None:
                end = min(at + _SEGMENT, stop)
                running.append((pool.submit(_segment, source, at, end, buffers), end - at))
            if not running:
                return total
            part, length = running.popleft()
            total = crc32_combine(total, part.result(), length)
            tick(length)


def _segment(source: Source, start: int, stop: int, buffers: SimpleQueue[memoryview]) -> int:
    from isal.isal_zlib import crc32

    buffer = buffers.get()
    try:
        total = 0
        while start < stop:
            piece = buffer[: min(len(buffer), stop - start)]
            source.read_into(start, piece)
            total = crc32(piece, total)
            start += len(piece)
        return total
    finally:
        buffers.put(buffer)
