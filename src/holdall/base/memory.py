"""Memory that each thread uses again: to get fresh pages takes longer than most work on them."""

from __future__ import annotations

import sys
import sysconfig
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any

from holdall.base.buffer_sizes import buffer_size
from holdall.base.platform import after_fork, new_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["is_unreferenced", "lend_memory", "make_floats"]

_KEPT = 8 << 20  # bytes that a thread keeps for later blocks
_RESULT = (buffer_size(1 << 20), 32 << 20)  # bytes of an array of results whose memory is used again
_RESULTS = 2  # of them are kept: in a loop, one is in use while the next one is made
_COUNTS = not sysconfig.get_config_var("Py_GIL_DISABLED")  # without the lock a count is an estimate


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


class _Results:
    """Memory of arrays that were handed out, for the next ones of their size. Every array on it refers to it."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin again, in a forked process: a thread that is not in it may have the lock."""
        self._lock = threading.Lock()
        self._kept: list[NDArray[Any]] = []
        self._free = _count_references([object()], 0)  # of what only a list refers to

    def take(self, size: int) -> NDArray[Any]:
        """An array on ``size`` bytes that no other array is on."""
        import numpy as np

        with self._lock:
            for at in range(len(self._kept)):
                if self._kept[at].size == size and _count_references(self._kept, at) == self._free:
                    self._kept.append(self._kept.pop(at))
                    return self._kept[-1][:]
            made = np.empty(size, np.uint8)
            self._kept = [*self._kept, made][-_RESULTS:]
            return made[:]


def _count_references(items: list[Any], at: int) -> int:
    return sys.getrefcount(items[at])


_results = _Results()
after_fork(_results.reset)


def make_floats(shape: Sequence[int]) -> NDArray[Any]:
    """Make an array of float32 with any content, which the caller may hand out.

    Its memory is used again when no array is on it any more: decoding tensors one after the other, each into new pages,
    takes longer than the decoding. At most 64 MB are kept.
    """
    import numpy as np

    size = 4 * prod(shape)
    if not _COUNTS or not _RESULT[0] <= size <= _RESULT[1]:
        return np.empty(tuple(shape), np.float32)
    return _results.take(size).view(np.float32).reshape(tuple(shape))


def is_unreferenced(buffer: bytearray) -> bool:
    """Whether no view or array is on ``buffer``: CPython refuses to resize a bytearray that has one."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
