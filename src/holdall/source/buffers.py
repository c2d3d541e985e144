"""Memory for the pieces of a stream, which is used again when nothing refers to it any more."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdall.base.memory import is_unreferenced, lend_memory
from holdall.base.parallel import count_ahead
from holdall.base.platform import after_fork, new_memory

if TYPE_CHECKING:
    from holdall.source.base import Source

__all__ = ["Buffers", "SharedBuffers", "lend_pieces", "regroup", "shared_buffers"]

_LARGER = 4  # times as large as a piece may its memory be: a small piece that is kept should not keep much more
_TAKEN = 8  # pieces that a writer may still use, to digest them, when the next ones are made


class Buffers:
    """Provides memory for one piece after the other, and uses the memory of pieces again that are no longer referenced.

    A piece belongs to the caller while it, a slice of it or an array on it is referenced. So a loop over pieces needs
    two buffers, while pieces that are collected do not share memory. At most ``keep`` buffers are remembered.

    >>> buffers = Buffers(4)
    >>> kept, passing = buffers.take(4), buffers.take(4)
    >>> kept[:], passing[:] = b"kept", b"gone"
    >>> del passing
    >>> buffers.take(3)[:] = b"new"
    >>> bytes(kept)
    b'kept'
    """

    def __init__(self, size: int, keep: int = 3) -> None:
        self._size = max(size, 1)
        self._keep = keep
        self._buffers: deque[bytearray] = deque()

    def take(self, size: int) -> memoryview:
        """Take ``size`` bytes with any content that nothing else refers to. Only one thread at a time may call this."""
        for _ in range(len(self._buffers)):
            self._buffers.rotate(-1)
            if is_unreferenced(self._buffers[-1]):
                return memoryview(self._buffers[-1])[:size]
        if len(self._buffers) == self._keep:
            self._buffers.popleft()  # it lives as long as its views
        self._buffers.append(new_memory(self._size))
        return memoryview(self._buffers[-1])[:size]


class SharedBuffers:
    """Memory for the pieces of all streams of this process, used again as by :class:`Buffers`.

    It is forgotten when the last :meth:`hold` ends. A writer holds it while it writes, so that the payloads of many
    tensors are made in the same memory: to get fresh pages takes longer than to cast their values.

    >>> buffers = SharedBuffers()
    >>> with buffers.hold():
    ...     buffers.take(3)[:] = b"one"
    ...     bytes(buffers.take(3))
    b'one'
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin again, in a forked process: a thread that is not in it may have the lock."""
        self._lock = threading.Lock()
        self._holders = 0
        self._buffers: deque[bytearray] = deque()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """A block in which memory is kept for later pieces."""
        with self._lock:
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if not self._holders:
                    self._buffers.clear()

    def take(self, size: int) -> memoryview:
        """Take ``size`` bytes with any content that nothing else refers to."""
        with self._lock:
            return memoryview(self._find(max(size, 1)))[:size]

    def _find(self, size: int) -> bytearray:
        for _ in range(len(self._buffers)):
            self._buffers.rotate(-1)
            found = self._buffers[-1]
            if size <= len(found) <= _LARGER * size and is_unreferenced(found):
                return found
        while len(self._buffers) >= count_ahead() + _TAKEN:
            self._buffers.popleft()  # it lives as long as its views
        self._buffers.append(new_memory(size))
        return self._buffers[-1]


shared_buffers = SharedBuffers()
after_fork(shared_buffers.reset)


def regroup(pieces: Iterable[bytes | bytearray | memoryview], size: int) -> Iterator[memoryview]:
    """Yield the same bytes in pieces of ``size``, the last one shorter. A piece inside one of ``pieces`` is not copied.

    >>> [bytes(piece) for piece in regroup([b"ab", b"cdefg"], 3)]
    [b'abc', b'def', b'g']
    """
    with shared_buffers.hold():
        pending, filled = memoryview(b""), 0
        for piece in pieces:
            window = memoryview(piece).cast("B")
            while window:
                if not filled and len(window) >= size:
                    yield window[:size]
                    window = window[size:]
                    continue
                if not filled:
                    pending = shared_buffers.take(size)
                step = min(size - filled, len(window))
                pending[filled : filled + step] = window[:step]
                window, filled = window[step:], filled + step
                if filled == size:
                    yield pending
                    pending, filled = memoryview(b""), 0
        if filled:
            yield pending[:filled]


def lend_pieces(source: Source, start: int, stop: int, size: int) -> Iterator[memoryview]:
    """Yield the bytes ``start..stop`` in pieces of ``size`` bytes, all in the same memory: one ends with the next."""
    with lend_memory(min(size, stop - start)) as memory:
        for at in range(start, stop, size):
            piece = memory[: stop - at]
            try:
                source.read_into(at, piece)
                yield piece
            finally:
                piece.release()
