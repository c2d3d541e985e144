"""Memory for pieces of a stream, used again only when nothing looks into it any more."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

__all__ = ["Buffers", "regroup"]


class Buffers:
    """Hands out memory for one piece after the other, and uses again what has been let go of.

    A piece belongs to its caller for as long as he keeps it or anything made of it: a slice, a numpy array. So a
    loop over pieces runs in two buffers, while pieces that are collected each have memory of their own. At most
    ``keep`` buffers are remembered to be used again.

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
        """``size`` bytes that nothing else looks into, with any content. One thread at a time may ask."""
        for _ in range(len(self._buffers)):
            self._buffers.rotate(-1)
            if _is_free(self._buffers[-1]):
                return memoryview(self._buffers[-1])[:size]
        if len(self._buffers) == self._keep:
            self._buffers.popleft()  # it lives as long as what looks into it
        self._buffers.append(bytearray(self._size))
        return memoryview(self._buffers[-1])[:size]


def _is_free(buffer: bytearray) -> bool:
    """Whether nothing looks into ``buffer``: CPython refuses to resize a bytearray of which there are views."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True


def regroup(pieces: Iterable[bytes | bytearray | memoryview], size: int) -> Iterator[memoryview]:
    """The same bytes ``size`` at a time, but for the last. Slices of ``pieces`` are passed on without a copy.

    >>> [bytes(piece) for piece in regroup([b"ab", b"cdefg"], 3)]
    [b'abc', b'def', b'g']
    """
    buffers = Buffers(size)
    pending, filled = memoryview(b""), 0
    for piece in pieces:
        window = memoryview(piece).cast("B")
        while window:
            if not filled and len(window) >= size:
                yield window[:size]
                window = window[size:]
                continue
            if not filled:
                pending = buffers.take(size)
            step = min(size - filled, len(window))
            pending[filled : filled + step] = window[:step]
            window, filled = window[step:], filled + step
            if filled == size:
                yield pending
                pending, filled = memoryview(b""), 0
    if filled:
        yield pending[:filled]
