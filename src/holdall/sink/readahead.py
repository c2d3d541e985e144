"""Reads and makes the next bytes while the sink writes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TypeAlias, TypeGuard

from holdall.base.buffer_sizes import buffer_size
from holdall.base.parallel import Job, count_ahead, stop_jobs, thread_count
from holdall.base.platform import after_fork
from holdall.model.payload import Computed, Payload, SourceRange
from holdall.sink.plan import Constant, Late, Piece, Plan, Run, Stream
from holdall.source import CHUNK, Source
from holdall.source.buffers import Buffers

__all__ = ["SMALL", "Prefetcher", "begin_payloads", "make_ahead", "read_ahead", "sources_of"]

# The offset of a piece or a payload, and the job that makes it, if that was begun.
Step: TypeAlias = "tuple[int, Constant | Late | Payload, Job[list[memoryview]] | None]"

SMALL = buffer_size(256 << 10)  # payloads up to this are gathered into one write
_TINY = buffer_size(4096)  # payloads up to this are made sooner than a thread begins with them
_HELD = 24 << 20  # bytes of payloads that are made before their turn,
_HELD_BY_THREAD = 4 << 20  # and for each thread
_AT_ONCE = buffer_size(16 << 20)  # bytes of small payloads that one prefetch asks for


class Prefetcher:
    """Asks remote sources for small payloads shortly before they are read, many in one request."""

    def __init__(self, plan: Plan) -> None:
        remote = any(source.is_remote for source in sources_of(plan))
        self._ahead = (payload for _, payload in plan.payloads() if payload.size <= SMALL) if remote else None
        self._asked = 0  # small payloads that have been asked for and not read

    def reach(self) -> None:
        """Make sure that the next small payload, which is read now, has been asked for."""
        if self._ahead is None:
            return
        if not self._asked:
            self._ask(self._ahead)
        self._asked -= 1

    def _ask(self, ahead: Iterator[Payload]) -> None:
        ranges: dict[int, tuple[Source, list[tuple[int, int]]]] = {}
        size = 0
        for payload in ahead:
            self._asked += 1
            if isinstance(payload, SourceRange) and payload.source.is_remote:
                ranges.setdefault(id(payload.source), (payload.source, []))[1].append(payload.reach)
                size += payload.size
            if size >= _AT_ONCE:
                break
        for source, spans in ranges.values():
            source.prefetch(spans)


def sources_of(plan: Plan) -> Iterator[Source]:
    """The sources that a plan reads from, each once."""
    seen: set[int] = set()
    for source in _list_sources(plan):
        if id(source) not in seen:
            seen.add(id(source))
            yield source


def _list_sources(plan: Plan) -> Iterator[Source]:
    for piece in plan.pieces:
        if isinstance(piece, Run):
            yield from piece.table.sources()
        elif isinstance(piece, Stream) and isinstance(piece.payload, SourceRange):
            yield piece.payload.source


class _Budget:
    """Bytes of payloads that all writers together may make before their turn."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin again, in a forked process: a thread that is not in it may have the lock."""
        self._lock = threading.Lock()
        self._used = 0

    def take(self, size: int) -> bool:
        """Take ``size`` bytes if there are as many."""
        with self._lock:
            fits = self._used + size <= _HELD + _HELD_BY_THREAD * thread_count()
            self._used += size if fits else 0
            return fits

    def give_back(self, size: int) -> None:
        with self._lock:
            self._used -= size


_budget = _Budget()
after_fork(_budget.reset)


def begin_payloads(pieces: Iterable[Piece]) -> Generator[Step, None, None]:
    """Yield the pieces of a plan in order, and begin to make some payloads before their turn.

    So a thread that has no work left in one tensor has some in the next. This is for payloads that are made in memory
    anyway, and for small ones; others are made while they are written.
    """
    most = count_ahead()
    waiting: deque[Step] = deque()
    try:
        for at, piece in _list_steps(pieces):
            computed = piece if most > 1 and _may_begin(piece) else None
            if computed is None and not waiting:  # the way of most plans
                yield at, piece, None
                continue
            while len(waiting) >= most:
                yield from _take_first(waiting)
            while computed and not _budget.take(computed.size):
                if not waiting:  # other writers have all of it
                    computed = None
                yield from _take_first(waiting)
            waiting.append((at, piece, Job(_make_all, computed) if computed else None))
        while waiting:
            yield from _take_first(waiting)
    finally:
        stop_jobs(made for _, _, made in waiting if made is not None)
        _budget.give_back(sum(piece.size for _, piece, made in waiting if made is not None))


def _take_first(waiting: deque[Step]) -> Iterator[Step]:
    """Yield the first step, if there is one, and forget it when the next is asked for."""
    if waiting:
        yield waiting[0]
        _, piece, made = waiting.popleft()
        if made is not None:
            _budget.give_back(piece.size)


def _list_steps(pieces: Iterable[Piece]) -> Iterator[tuple[int, Constant | Late | Payload]]:
    for piece in pieces:
        if isinstance(piece, Run):
            for at, step in piece.steps():
                yield at, Constant(at, step) if isinstance(step, bytes) else step
        elif isinstance(piece, Stream):
            yield piece.offset, piece.payload
        else:
            yield piece.offset, piece


def _may_begin(piece: Constant | Late | Payload) -> TypeGuard[Computed]:
    # What is computed from no payload may be an index, which is made from results of what was written before it.
    return type(piece) is Computed and (piece.is_held or (_TINY < piece.size <= SMALL and bool(piece.inputs)))


def _make_all(payload: Computed) -> list[memoryview]:
    return list(payload.chunks())


def read_ahead(payload: SourceRange, pool: ThreadPoolExecutor, buffers: Buffers) -> Iterator[memoryview]:
    """Read the payload in pieces. The next ones are read into ``buffers`` while one is in use."""
    reads: deque[Future[memoryview]] = deque()

    def fill(window: memoryview, start: int) -> memoryview:
        payload.source.read_into(payload.offset + start, window)
        return window

    ahead = payload.source.parallel_reads if payload.source.is_remote or thread_count() > 1 else 0
    for start in range(0, payload.size, CHUNK):
        window = buffers.take(min(CHUNK, payload.size - start))
        if not ahead:
            yield fill(window, start)
            continue
        reads.append(pool.submit(fill, window, start))
        if len(reads) > ahead:
            yield reads.popleft().result()
    while reads:
        yield reads.popleft().result()


def make_ahead(payload: Payload, pool: ThreadPoolExecutor) -> Iterator[memoryview]:
    """Make the payload in pieces. The next one is made while one is in use, if there may be two threads."""
    pieces = payload.chunks()
    if thread_count() == 1:
        yield from pieces
        return
    make_next = partial(copy_context().run, next, pieces, None)  # with the number of threads that the caller has chosen
    following = pool.submit(make_next)
    while (piece := following.result()) is not None:
        following = pool.submit(make_next)
        yield piece
        del piece  # a piece that is still referenced is not used again
