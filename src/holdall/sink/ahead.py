"""Reading while writing: what a sink has under way before it needs it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from holdall.payload import Held, Payload, Range
from holdall.plan import Plan, Stream
from holdall.sizes import tuned
from holdall.source import CHUNK, Source
from holdall.source.buffers import Buffers

__all__ = ["SMALL", "Announced", "make_ahead", "read_ahead", "sources_of"]

SMALL = tuned(256 << 10)  # payloads up to this are gathered into one write
_TOGETHER = tuned(16 << 20)  # bytes of small payloads that one prefetch asks for


class Announced:
    """Tells sources for which a read is not cheap which small payloads come next."""

    def __init__(self, plan: Plan) -> None:
        self._pieces = plan.pieces
        self._told = 0 if any(source.far for source in sources_of(plan)) else len(plan.pieces)

    def reach(self, number: int) -> None:
        """The piece ``number`` is read next."""
        if number < self._told:
            return
        ranges: dict[int, tuple[Source, list[tuple[int, int]]]] = {}
        size = 0
        while number < len(self._pieces) and size < _TOGETHER:
            piece = self._pieces[number]
            payload = piece.payload if isinstance(piece, Stream) and piece.size <= SMALL else None
            if isinstance(payload, Range) and payload.source.far:
                ranges.setdefault(id(payload.source), (payload.source, []))[1].append(payload.reach)
                size += payload.size
            number += 1
        self._told = number
        for source, spans in ranges.values():
            source.prefetch(spans)


def sources_of(plan: Plan) -> Iterator[Source]:
    """The sources that a plan reads from, each once."""
    seen: set[int] = set()
    for piece in plan.pieces:
        if not isinstance(piece, Stream) or isinstance(piece.payload, Held):  # most of them
            continue
        if isinstance(piece.payload, Range) and id(piece.payload.source) not in seen:
            seen.add(id(piece.payload.source))
            yield piece.payload.source


def read_ahead(payload: Range, pool: ThreadPoolExecutor, buffers: Buffers) -> Iterator[memoryview]:
    """The payload in pieces, the next ones being read into ``buffers`` while one is in use."""
    lanes = payload.source.lanes
    reads: deque[Future[memoryview]] = deque()

    def fill(window: memoryview, start: int) -> memoryview:
        payload.source.read_into(payload.offset + start, window)
        return window

    for start in range(0, payload.size, CHUNK):
        reads.append(pool.submit(fill, buffers.take(min(CHUNK, payload.size - start)), start))
        if len(reads) > lanes:
            yield reads.popleft().result()
    while reads:
        yield reads.popleft().result()


def make_ahead(payload: Payload, pool: ThreadPoolExecutor) -> Iterator[memoryview]:
    """The payload's pieces, the next one being made while one is in use."""
    pieces = payload.chunks()
    coming = pool.submit(next, pieces, None)
    while (piece := coming.result()) is not None:
        coming = pool.submit(next, pieces, None)
        yield piece
        del piece  # or it would look as if it were kept
