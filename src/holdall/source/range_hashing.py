"""Many digests of one source in a single pass, with positioned reads, all cores and a fixed number of buffers.

>>> from holdall.source import BytesSource
>>> found = digest_ranges(BytesSource(b"hold" * 8), [Tap("all", "sha256", 0, 32)])
>>> found["all"].hex()[:8]
'42abb0b1'
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from holdall.base.buffer_sizes import buffer_size
from holdall.base.parallel import Job, stop_jobs, thread_count
from holdall.source import CHUNK, Source
from holdall.source.buffers import Buffers
from holdall.source.digests import RunningTaps, Tap, run_jobs

__all__ = ["digest_ranges"]

_SMALL = buffer_size(1 << 16)  # up to this many bytes are hashed in this thread
_AHEAD = 2  # pieces of a local file that are read ahead of the hashes
_SHARE = buffer_size(2 << 20)  # bytes of a piece for each thread that reads and hashes it
_LONGEST = 8 * CHUNK


def digest_ranges(
    source: Source, taps: Sequence[Tap], on_progress: Callable[[int], None] = lambda count: None
) -> dict[str, Any]:
    """Compute the results of all taps over ``source``, by name. Bytes in several ranges are read once.

    ``on_progress`` receives the number of bytes of each read.
    """
    running = RunningTaps(taps)
    pieces = list(_split_pieces(taps, CHUNK if source.is_remote else _choose_step()))
    if sum(stop - start for start, stop in pieces) <= _SMALL and not source.is_remote:  # threads would cost more
        for start, stop in pieces:
            for job in running.jobs(start, memoryview(source.read(start, stop - start))):
                job()
            on_progress(stop - start)
    else:
        _digest_in_threads(source, pieces, running, on_progress)
    return {name: tap.result(_refuse_late, _refuse_reading) for name, tap in running.by_name.items()}


def _digest_in_threads(
    source: Source, pieces: Sequence[tuple[int, int]], running: RunningTaps, on_progress: Callable[[int], None]
) -> None:
    for start, data in _read_ahead(source, pieces):
        run_jobs(running.jobs(start, data))
        on_progress(len(data))


def _choose_step() -> int:
    """How many bytes of a local file are hashed at a time: some for each thread, in whole chunks."""
    return min(_LONGEST, max(1, thread_count() * _SHARE // CHUNK) * CHUNK)


def _split_pieces(taps: Sequence[Tap], step: int) -> Iterator[tuple[int, int]]:
    """Return the ranges of all taps together, each byte once, in order and in pieces of ``step`` bytes."""
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
        for at in range(start, stop, step):
            yield at, min(stop, at + step)


def _read_ahead(source: Source, pieces: Sequence[tuple[int, int]]) -> Iterator[tuple[int, memoryview]]:
    """Read the pieces with their offsets. The next ones are read while one is in use, each by several threads."""
    threads = source.parallel_reads if source.is_remote else thread_count()
    ahead = 2 * threads if source.is_remote else min(threads - 1, _AHEAD)
    buffers = Buffers(max((stop - start for start, stop in pieces), default=0), ahead + 2)
    begun: deque[tuple[int, memoryview, list[Job[None]]]] = deque()

    def fill(place: tuple[int, memoryview]) -> None:
        source.read_into(*place)

    try:
        for start, stop in pieces:
            window = buffers.take(stop - start)
            parts = ((start + at, window[at : at + CHUNK]) for at in range(0, stop - start, CHUNK))
            if threads == 1:
                fill((start, window))
            begun.append((start, window, [Job(fill, part, threads) for part in parts if threads > 1]))
            del window  # a buffer without references is used again
            if len(begun) > ahead:
                yield _wait_for(begun)
        while begun:
            yield _wait_for(begun)
    finally:
        stop_jobs(job for _, _, jobs in begun for job in jobs)


def _wait_for(begun: deque[tuple[int, memoryview, list[Job[None]]]]) -> tuple[int, memoryview]:
    """Take the first piece when it has been read."""
    start, window, jobs = begun[0]
    for job in jobs:
        job.result()
    begun.popleft()
    return start, window


def _refuse_late(name: str) -> bytes:
    raise AssertionError(name)


def _refuse_reading(start: int, stop: int) -> Iterator[memoryview]:
    raise AssertionError((start, stop))
