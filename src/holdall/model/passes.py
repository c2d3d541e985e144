"""Passes over the bytes of payloads, on all cores and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeGuard, TypeVar

from holdall.base.buffer_sizes import buffer_size
from holdall.base.memory import lend_memory
from holdall.base.parallel import map_in_order
from holdall.model.payload import InMemory, Joined, Payload, SourceRange
from holdall.source import Source

__all__ = ["PIECE", "Piece", "can_read_anywhere", "is_random_access", "map_pieces", "read_into"]
__all__ += ["reads_anywhere", "split_payload", "split_reads", "use_ranges"]

R = TypeVar("R")

# Bytes of one job: a thread reads and works on as many before it needs the interpreter lock again.
PIECE = buffer_size(4 << 20)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bytes of a payload, which were read already if the payload has to be read in order."""

    payload: Payload
    start: int
    size: int
    data: memoryview | None = None

    def work(self, work: Callable[[memoryview], R]) -> R:
        """``work(data)``, which keeps no view of the bytes. The calling thread reads them if they are not in memory."""
        if self.data is not None:
            return work(self.data)
        assert isinstance(self.payload, SourceRange)
        with lend_memory(self.size) as data:
            self.payload.source.read_into(self.payload.offset + self.start, data)
            return work(data)

    def peek(self, size: int) -> bytes:
        """The first ``size`` bytes."""
        if self.data is not None:
            return bytes(self.data[:size])
        assert isinstance(self.payload, SourceRange)
        return self.payload.source.read(self.payload.offset + self.start, size)


def can_read_anywhere(payload: Payload | None) -> TypeGuard[SourceRange]:
    """Whether several threads may read parts of the payload at the same time, each with a read of its own."""
    return type(payload) is SourceRange and reads_anywhere(payload.source)


def reads_anywhere(source: Source) -> bool:
    """Whether several threads may read parts of the source at the same time, each with a read of its own."""
    return not source.is_remote and not source.is_checked


def is_random_access(payload: Payload) -> bool:
    """Whether parts of the payload can be had at no more cost than in order: :func:`can_read_anywhere`, or memory."""
    if isinstance(payload, Joined):
        return all(map(is_random_access, payload.inputs))
    return can_read_anywhere(payload) or isinstance(payload, InMemory)


def split_payload(payload: Payload, piece: int = PIECE) -> Iterator[Piece]:
    """Yield pieces of ``piece`` bytes of the payload and a rest, in order. Each may be worked on by another thread.

    >>> [each.work(bytes) for each in split_payload(InMemory(b"holdall"), 4)]
    [b'hold', b'all']
    """
    if can_read_anywhere(payload):
        for start in range(0, payload.size, piece):
            yield Piece(payload, start, min(piece, payload.size - start))
        return
    start = 0
    for data in payload.chunks(piece):
        size = len(data)
        yield Piece(payload, start, size, data)
        start += size
        del data  # a buffer without references is used again


def map_pieces(payload: Payload, work: Callable[[memoryview], R], piece: int = PIECE) -> Iterator[R]:
    """Yield ``work(data)`` for pieces of ``piece`` bytes of the payload and a rest, in order.

    A thread reads its piece itself where the payload is a range of a local source. ``work`` keeps no view of the bytes.

    >>> list(map_pieces(InMemory(b"holdall"), bytes, 4))
    [b'hold', b'all']
    """
    if payload.size <= piece:  # another thread would cost more than it saves
        return map(work, payload.chunks(piece))
    return map_in_order(lambda each: each.work(work), split_payload(payload, piece))


def read_into(payload: SourceRange, buffer: memoryview) -> None:
    """Fill ``buffer`` with all bytes of the payload. Threads read its parts, and touch the fresh pages of their own."""
    for _ in map_in_order(lambda read: read(), split_reads(payload, buffer)):
        pass


def split_reads(payload: SourceRange, buffer: memoryview) -> Iterator[Callable[[], None]]:
    """Yield functions that each fill a part of ``buffer`` with bytes of the payload, for any threads."""
    for start in range(0, payload.size, PIECE):
        yield partial(payload.source.read_into, payload.offset + start, buffer[start : start + PIECE])


def use_ranges(payload: Payload, ranges: Sequence[tuple[int, int]], work: Callable[[Sequence[memoryview]], R]) -> R:
    """Return ``work(parts)`` for the bytes of ``ranges`` (start, stop) of a payload with random access.

    They are read into memory that this thread uses again, so ``work`` keeps no view of them.

    >>> from holdall.model.payload import InMemory
    >>> use_ranges(InMemory(b"holdall"), [(4, 7), (0, 4)], lambda parts: [bytes(part) for part in parts])
    [b'all', b'hold']
    """
    if not isinstance(payload, (SourceRange, Joined)):
        return work([payload.slice(*each) for each in ranges])
    with lend_memory(sum(stop - start for start, stop in ranges)) as memory:
        return work(list(_read_ranges(payload, ranges, memory)))


def _read_ranges(payload: Payload, ranges: Sequence[tuple[int, int]], memory: memoryview) -> Iterator[memoryview]:
    at = 0
    for start, stop in ranges:
        found = payload.find(start, stop) if isinstance(payload, Joined) else None
        owner, low, high = found or (payload, start, stop)
        if isinstance(owner, SourceRange):
            part = memory[at : at + high - low]
            owner.source.read_into(owner.offset + low, part)
            yield part
            at += high - low
        else:
            yield owner.slice(low, high)
