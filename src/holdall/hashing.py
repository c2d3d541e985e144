"""Many digests over one source in a single pass: positioned reads, all cores, a fixed number of buffers.

>>> from holdall.plan import Tap
>>> from holdall.source import BytesSource
>>> found = digest_ranges(BytesSource(b"hold" * 8), [Tap("all", "sha256", 0, 32)])
>>> found["all"].hex()[:8]
'42abb0b1'
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from holdall.plan import Plan, Tap
from holdall.sink.digests import HashThreads, RunningTaps
from holdall.sizes import tuned
from holdall.source import CHUNK, Source
from holdall.source.buffers import Buffers

__all__ = ["digest_ranges"]

_SMALL = tuned(1 << 16)  # bytes in all that are hashed here and now
_FEW_CORES = 2  # are busy with the hash itself: a disk is then read in between


def digest_ranges(
    source: Source, taps: Sequence[Tap], tick: Callable[[int], None] = lambda count: None
) -> dict[str, Any]:
    """The result of every tap over ``source``, by name. Bytes in several ranges are read once.

    ``tick`` is told of every byte read.
    """
    running = RunningTaps(Plan(taps=list(taps)))
    pieces = list(_pieces(taps))
    if sum(stop - start for start, stop in pieces) <= _SMALL and not source.far:  # threads would cost more
        for start, stop in pieces:
            for job in running.jobs(start, memoryview(source.read(start, stop - start))):
                job()
            tick(stop - start)
    else:
        _digest_in_threads(source, pieces, running, tick)
    return {name: tap.result(_no_late, _no_reading) for name, tap in running.by_name.items()}


def _digest_in_threads(
    source: Source, pieces: Sequence[tuple[int, int]], running: RunningTaps, tick: Callable[[int], None]
) -> None:
    with ThreadPoolExecutor(source.lanes, "holdall-read") as readers, HashThreads() as threads:
        for start, data in _read_ahead(source, pieces, readers):
            threads.run(running.jobs(start, data))
            tick(len(data))


def _pieces(taps: Sequence[Tap]) -> Iterator[tuple[int, int]]:
    """The bytes that any tap wants, in order and each once, in pieces."""
    reached = 0
    spans: list[list[int]] = []
    for tap in sorted(taps, key=lambda tap: tap.start):
        assert isinstance(tap.stop, int), "a source has no tails"
        start = max(tap.start, reached)
        if start < tap.stop:
            if spans and start == spans[-1][1]:
                spans[-1][1] = tap.stop
            else:
                spans.append([start, tap.stop])
            reached = tap.stop
    for start, stop in spans:
        for at in range(start, stop, CHUNK):
            yield at, min(stop, at + CHUNK)


def _read_ahead(
    source: Source, pieces: Sequence[tuple[int, int]], pool: ThreadPoolExecutor
) -> Iterator[tuple[int, memoryview]]:
    """The pieces, the next ones being read while one is in use."""
    lanes = source.lanes
    buffers = Buffers(max((stop - start for start, stop in pieces), default=0), lanes + 3)
    reads: deque[Future[tuple[int, memoryview]]] = deque()

    def fill(start: int, window: memoryview) -> tuple[int, memoryview]:
        source.read_into(start, window)
        return start, window

    if lanes <= _FEW_CORES and (os.cpu_count() or 1) <= _FEW_CORES:
        yield from (fill(start, buffers.take(stop - start)) for start, stop in pieces)
        return
    try:
        for start, stop in pieces:
            reads.append(pool.submit(fill, start, buffers.take(stop - start)))
            if len(reads) > lanes:
                yield reads.popleft().result()
        while reads:
            yield reads.popleft().result()
    finally:
        wait(reads)


def _no_late(name: str) -> bytes:
    raise AssertionError(name)


def _no_reading(start: int, stop: int) -> Iterator[memoryview]:
    raise AssertionError((start, stop))
