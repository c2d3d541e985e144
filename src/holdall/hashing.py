"""Many digests over one source in a single pass: positioned reads, all cores, a fixed number of buffers.

>>> from holdall.plan import Tap
>>> from holdall.source import BytesSource
>>> found = digest_ranges(BytesSource(b"hold" * 8), [Tap("all", "sha256", 0, 32)])
>>> found["all"].hex()[:8]
'42abb0b1'
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from holdall.plan import Plan, Tap
from holdall.sink.digests import HashThreads, RunningTaps
from holdall.source import CHUNK, Source

__all__ = ["digest_ranges"]

_LAG = 1  # pieces that are read but not yet hashed


def digest_ranges(
    source: Source, taps: Sequence[Tap], tick: Callable[[int], None] = lambda count: None
) -> dict[str, Any]:
    """The result of every tap over ``source``, by name. Bytes in several ranges are read once.

    ``tick`` is told of every byte read.
    """
    running = RunningTaps(Plan(taps=list(taps)))
    lagging: deque[Future[None]] = deque()
    with ThreadPoolExecutor(source.lanes, "holdall-read") as readers, HashThreads() as threads:
        for start, data in _read_ahead(source, list(_pieces(taps)), readers):
            jobs = running.jobs(start, data)
            if jobs:
                lagging.append(threads.submit(jobs))
            while len(lagging) > _LAG:
                lagging.popleft().result()
            tick(len(data))
        for done in lagging:
            done.result()
    return {name: tap.result(_no_late, _no_reading) for name, tap in running.by_name.items()}


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
    """The pieces through a ring of buffers, the next ones being read while one is in use."""
    largest = max((stop - start for start, stop in pieces), default=0)
    lanes = source.lanes
    ring = [memoryview(bytearray(largest)) for _ in range(lanes + 1 + _LAG)]
    reads: deque[Future[tuple[int, memoryview]]] = deque()

    def fill(number: int) -> tuple[int, memoryview]:
        start, stop = pieces[number]
        window = ring[number % len(ring)][: stop - start]
        source.read_into(start, window)
        return start, window

    try:
        for number in range(len(pieces)):
            reads.append(pool.submit(fill, number))
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
