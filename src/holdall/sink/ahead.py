"""Reading while writing: what a sink has under way before it needs it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from holdall.payload import Held, Payload, Range
from holdall.plan import Plan, Stream
from holdall.source import CHUNK, Source

__all__ = ["SMALL", "Announced", "Ring", "make_ahead", "read_ahead", "sources_of"]

SMALL = 256 << 10  # payloads up to this are gathered into one write
_TOGETHER = 16 << 20  # bytes of small payloads that a source is told of at once


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


class Ring:
    """Buffers that are used again and again: fresh memory costs as much as what is read into it."""

    def __init__(self) -> None:
        self._buffers: deque[memoryview] = deque()

    def next(self, count: int) -> memoryview:
        """The buffer that was used longest ago, and not for the last ``count - 1``."""
        fresh = len(self._buffers) < count
        buffer = memoryview(bytearray(CHUNK)) if fresh else self._buffers.popleft()
        self._buffers.append(buffer)
        return buffer


def read_ahead(payload: Range, pool: ThreadPoolExecutor, ring: Ring, lag: int) -> Iterator[memoryview]:
    """The payload through a ring of buffers, the next being read while one is in use; ``lag`` more stay untouched."""
    lanes = payload.source.lanes
    reads: deque[Future[memoryview]] = deque()

    def fill(buffer: memoryview, start: int) -> memoryview:
        window = buffer[: min(CHUNK, payload.size - start)]
        payload.source.read_into(payload.offset + start, window)
        return window

    for start in range(0, payload.size, CHUNK):
        reads.append(pool.submit(fill, ring.next(lanes + 1 + lag), start))
        if len(reads) > lanes:
            yield reads.popleft().result()
    while reads:
        yield reads.popleft().result()


def make_ahead(payload: Payload, pool: ThreadPoolExecutor) -> Iterator[memoryview]:
    """The payload's pieces, the next one being made while one is in use."""
    pieces = payload.chunks()

    def make() -> memoryview | None:
        piece = next(pieces, None)
        # A piece is good only until the next is asked for, which happens while this one is being written.
        return None if piece is None else memoryview(bytes(piece))

    coming = pool.submit(make)
    while (piece := coming.result()) is not None:
        coming = pool.submit(make)
        yield piece
