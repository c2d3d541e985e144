"""Memory that each thread uses again: to get fresh pages takes longer than most work on them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from holdall.base.platform import new_memory

__all__ = ["is_unreferenced", "lend_memory"]

_KEPT = 8 << 20  # bytes that a thread keeps for later blocks


class _Memory(threading.local):
    """The memory of one thread that nothing uses now."""

    def __init__(self) -> None:
        self.free: list[bytearray] = []  # by size

    def take(self, size: int) -> bytearray:
        """Take ``size`` bytes or more."""
        at = next((at for at, memory in enumerate(self.free) if len(memory) >= size), None)
        return new_memory(size) if at is None else self.free.pop(at)

    def keep(self, memory: bytearray) -> None:
        """Keep ``memory``, and as much of the rest as there is room for, the largest first."""
        self.free = sorted([*self.free, memory], key=len)
        while sum(map(len, self.free)) > _KEPT:
            del self.free[0]


_memory = _Memory()


@contextmanager
def lend_memory(size: int) -> Iterator[memoryview]:
    """A block with ``size`` bytes of any content, which no view should outlive.

    The thread uses them again in later blocks: to get fresh pages takes longer than most work on them.
    """
    found = _memory.take(max(size, 1))
    view = memoryview(found)[:size]
    try:
        yield view
    finally:
        view.release()
        if len(found) <= _KEPT and is_unreferenced(found):
            _memory.keep(found)


def is_unreferenced(buffer: bytearray) -> bool:
    """Whether no view or array is on ``buffer``: CPython refuses to resize a bytearray that has one."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
