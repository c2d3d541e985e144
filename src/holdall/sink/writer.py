"""Carries out one plan on one open file: bytes are moved once, and digested as they pass."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

from holdall.base.buffer_sizes import buffer_size
from holdall.base.parallel import Job
from holdall.base.progress import Progress
from holdall.errors import ContentError
from holdall.model.payload import InMemory, Payload, SourceRange
from holdall.sink.output import Output
from holdall.sink.plan import Constant, Late, Placed, Plan
from holdall.sink.readahead import SMALL, Prefetcher, begin_payloads, make_ahead, read_ahead, sources_of
from holdall.source import CHUNK, FileSource
from holdall.source.buffers import Buffers, lend_pieces, shared_buffers
from holdall.source.digests import Gap, HashThreads, RunningTaps

__all__ = ["PlanWriter"]


_ZEROS = memoryview(bytes(buffer_size(1 << 16)))
_PAGE = 4096  # bytes of a page of memory
_GATHERED = buffer_size(1 << 20)  # bytes of small payloads that are written at once
_CACHED = buffer_size(1 << 20)  # bytes that stay in the processor's cache between reading and writing them
_LAG = 3  # chunks whose digests may still be under way


class PlanWriter:
    """Writes one plan to one open file: known pieces in order, then tails, then late pieces.

    ``known`` are the results of other files of the same folder. The first ``written`` bytes are in the file already,
    from a write that was interrupted.
    """

    def __init__(
        self, output: Output, plan: Plan, known: Mapping[str, Any], progress: Progress | None, written: int = 0
    ) -> None:
        self._output = output
        self._plan = plan
        self._results: dict[str, Any] = dict(known)
        self._known = known
        self._progress = progress
        self._taps = RunningTaps(
            plan.taps, (Gap(piece.name, piece.offset, piece.size) for piece in plan.pieces if isinstance(piece, Late))
        )
        self._hashing = HashThreads()
        self._lagging: deque[Future[None]] = deque()
        self._written = written
        self._at = 0
        self._batch = bytearray()

    def run(self) -> Mapping[str, Any]:
        """Write everything. Returns the results of this plan."""
        plan = self._plan
        reads = max((source.parallel_reads for source in sources_of(plan)), default=1)
        self._prefetcher = Prefetcher(plan)
        # Enough for chunks that are read ahead, in use, or still being digested: fresh memory costs as much as reading.
        self._buffers = Buffers(CHUNK, reads + 2 + _LAG + 1)
        steps = begin_payloads(plan.skip(self._written))
        with ThreadPoolExecutor(reads, "holdall-read") as pool, self._hashing, shared_buffers.hold(), closing(steps):
            self._pool = pool
            self._digest_written()
            for at, piece, made in steps:
                match piece:
                    case Constant():
                        self._write_zeros(at - self._position)
                        self._gather(memoryview(piece.data))
                    case Late():
                        self._write_zeros(at + piece.size - self._position)
                    case _:
                        self._write_payload(at, piece, made)
            self._write_zeros(plan.cursor - self._position)
            self._flush()
            self._finish()
        return {name: result for name, result in self._results.items() if name not in self._known}

    def _write_payload(self, at: int, payload: Payload, made: Job[list[memoryview]] | None) -> None:
        """Write zeros up to ``at``, and the payload there, which ``made`` has if it was begun before its turn."""
        size, gap = payload.size, at - self._position
        if gap:
            self._write_zeros(gap)
        if size > SMALL:
            self._flush()
            if made is None:
                self._write_large(payload)
            else:
                for chunk in made.result():
                    self._put(chunk)
        else:
            self._prefetcher.reach()
            if type(payload) is InMemory:
                self._batch += payload.copy()
                if len(self._batch) >= _GATHERED:
                    self._flush()
            else:
                for chunk in payload.chunks() if made is None else made.result():
                    self._gather(chunk)
        if self._position != at + size:
            wrong = f"{self._position - at} bytes came for a piece of {size} at {at}"
            raise ContentError(f"the plan does not hold: {wrong}")

    @property
    def _position(self) -> int:
        return self._at + len(self._batch)

    def _gather(self, data: memoryview) -> None:
        if len(data) > CHUNK:
            self._flush()
            self._put(data)
            return
        self._batch += data
        if len(self._batch) >= _GATHERED:
            self._flush()

    def _flush(self) -> None:
        if self._batch:
            batch, self._batch = self._batch, bytearray()
            self._put(memoryview(batch))

    def _write_zeros(self, count: int) -> None:
        while count > 0:
            step = min(count, len(_ZEROS))
            self._gather(_ZEROS[:step])
            count -= step

    def _write_large(self, payload: Payload) -> None:
        if isinstance(payload, InMemory):
            for chunk in payload.chunks():
                self._put(chunk)
        elif type(payload) is SourceRange and not payload.source.is_checked:  # a checked source is read in order
            moved = self._copy_in_kernel(payload)
            rest = SourceRange(payload.source, payload.offset + moved, payload.size - moved)
            for chunk in read_ahead(rest, self._pool, self._buffers):
                self._put(chunk)
        else:
            for chunk in make_ahead(payload, self._pool):
                self._put(chunk)

    def _copy_in_kernel(self, payload: SourceRange) -> int:
        """Copy a range between files if no tap needs the bytes. Returns the bytes copied.

        The kernel is fast if both offsets are the same in their pages. If they differ, a small buffer that stays
        in the processor's cache is faster.
        """
        if not isinstance(payload.source, FileSource) or self._taps.taps_in(self._at, payload.size):
            return 0
        if (payload.offset - self._at) % _PAGE:
            return self._copy_by_buffer(payload)
        done = 0
        with payload.source.lend() as fd:
            while done < payload.size:
                moved = self._output.copy(fd, payload.offset + done, min(payload.size - done, 8 * CHUNK), self._at)
                if not moved:  # reading the rest raises the error
                    break
                done += moved
                self._advance(moved)
        return done

    def _copy_by_buffer(self, payload: SourceRange) -> int:
        for window in lend_pieces(payload.source, payload.offset, payload.offset + payload.size, _CACHED):
            self._output.write(window, self._at)
            self._advance(len(window))
        return payload.size

    def _digest_written(self) -> None:
        """Feed the digests with the bytes that are in the file already."""
        for data in self._read_back(0, self._written):
            for job in self._taps.jobs(self._at, data):
                job()
            self._advance(len(data))

    def _put(self, data: memoryview) -> None:
        """Write one chunk while digests of the last few are still under way, so that disk and cores both work."""
        jobs = self._taps.jobs(self._at, data)
        if len(data) < SMALL and not self._lagging:
            for job in jobs:
                job()
        elif jobs:
            self._lagging.append(self._hashing.submit(jobs))
        self._output.write(data, self._at)
        while len(self._lagging) > _LAG:
            self._lagging.popleft().result()
        self._advance(len(data))

    def _wait_for_digests(self) -> None:
        """Wait until all digests have taken all bytes so far."""
        while self._lagging:
            self._lagging.popleft().result()

    def _advance(self, count: int) -> None:
        self._at += count
        if self._progress is not None:
            self._progress(self._at, self._plan.size)

    def _finish(self) -> None:
        waiting = {piece.name: piece for piece in self._plan.pieces if isinstance(piece, Late)}
        for tail in self._plan.tails:
            self._write_zeros(-self._position % tail.align)
            self._flush()
            self._wait_for_digests()
            offset = self._at
            self._taps.end(tail.name, offset)
            self._write_late(waiting)
            self._check_needs(tail.name, tail.needs)
            data = tail.make(self._results)
            self._put(memoryview(data))
            self._results[tail.name] = Placed(offset, data)
        self._wait_for_digests()
        self._taps.end(None, self._at)
        self._write_late(waiting)
        for late in waiting.values():
            self._check_needs(late.name, late.needs)

    def _write_late(self, waiting: dict[str, Late]) -> None:
        """Write every late piece whose needs are known, until none is left that can be made now."""
        while True:
            self._collect_results(waiting)
            ready = [late for late in waiting.values() if all(need in self._results for need in late.needs)]
            if not ready:
                return
            for late in ready:
                data = late.make(self._results)
                assert len(data) == late.size, f"late piece {late.name!r}: {len(data)} bytes, planned {late.size}"
                self._output.write(memoryview(data), late.offset)
                self._results[late.name] = Placed(late.offset, data)
                del waiting[late.name]

    def _check_needs(self, name: str, needs: tuple[str, ...]) -> None:
        missing = [need for need in needs if need not in self._results]
        assert not missing, f"the piece {name!r} needs {missing}, which cannot be known before it is written"

    def _collect_results(self, waiting: Mapping[str, Late]) -> None:
        """Take the results of the taps whose bytes have all been written."""
        for name, running in self._taps.by_name.items():
            complete = running.stop is not None and running.stop <= self._at
            if name in self._results or not complete or any(late.name in waiting for late in running.lates):
                continue
            self._results[name] = running.result(lambda late: self._results[late].data, self._read_back)

    def _read_back(self, start: int, stop: int) -> Iterator[memoryview]:
        buffers = Buffers(min(CHUNK, stop - start))
        while start < stop:
            piece = buffers.take(min(CHUNK, stop - start))
            got = self._output.read_into(piece, start)
            yield piece[:got]
            del piece  # a piece that is still referenced is not used again
            start += got
