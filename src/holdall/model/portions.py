"""Parts of a tensor for the jobs of a pass: the thread that works on one reads and decodes it by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any, TypeVar

from holdall.base.buffer_sizes import buffer_size
from holdall.base.memory import lend_memory
from holdall.base.parallel import map_in_order
from holdall.model.dtypes import DType
from holdall.model.encodings import Encoding
from holdall.model.passes import is_random_access, use_ranges
from holdall.model.tensor import Tensor
from holdall.source.buffers import shared_buffers

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Portion", "fill_in_order", "split"]

R = TypeVar("R")

_MOST = buffer_size(1 << 23)  # values of a portion whose rows are read together
_BYTE = 8  # that many values of any type end on a byte


@dataclass(frozen=True, slots=True)
class Portion:
    """The ``count`` values of ``tensor`` from flat element ``first`` on.

    ``read`` are the values where one thread has to read the tensor in order, else None.
    """

    tensor: Tensor
    first: int
    count: int
    read: NDArray[Any] | None = None

    def use(self, work: Callable[[NDArray[Any]], R]) -> R:
        """Return ``work(values)`` for the values, flat, in memory that is used again: ``work`` keeps no view of it."""
        if self.read is not None:
            return work(self.read)
        dtype = self.tensor.dtype
        if isinstance(dtype, DType):
            stop = self.first + self.count
            span = self.first * dtype.bits // 8, (stop * dtype.bits + 7) // 8
            return self._use_ranges([span], lambda parts: work(dtype.decode_flat(parts[0], 0, self.count)))
        with lend_memory(4 * self.count) as memory:
            return work(self._decode(memory))

    def decode_into(self, out: NDArray[Any]) -> None:
        """Decode the values of an encoded tensor into the float32 of ``out``."""
        encoding = self.tensor.dtype
        assert isinstance(encoding, Encoding)
        if self.read is not None:
            out[:] = self.read
            return
        row = self.tensor.count // self.tensor.shape[0]
        first = self.first // row
        ranges = encoding.rows(self.tensor.shape, first, (self.first + self.count) // row)
        assert ranges is not None, "split() gives whole rows where rows can be decoded alone"
        rows = out.reshape(-1, *self.tensor.shape[1:])
        self._use_ranges(ranges, lambda parts: encoding.decode_rows_into(parts, rows, first))

    def _decode(self, memory: memoryview) -> NDArray[Any]:
        import numpy as np

        out = np.frombuffer(memory, np.float32)
        self.decode_into(out)
        return out

    def _use_ranges(self, ranges: Sequence[tuple[int, int]], work: Callable[[Sequence[memoryview]], R]) -> R:
        (payload,) = self.tensor.payloads
        return use_ranges(payload, ranges, work)


def split(tensor: Tensor, count: int) -> Iterator[Portion]:
    """Yield all values of ``tensor`` in order, about ``count`` at a time, each portion but the last a multiple of 8.

    >>> import numpy as np
    >>> parts = split(Tensor.of("w", np.arange(20, dtype=np.int16)), 8)
    >>> [part.use(lambda values: int(values.sum())) for part in parts]
    [28, 92, 70]
    """
    count = max(_BYTE, count // _BYTE * _BYTE)
    step = _step_of(tensor, count)
    if step is None:
        first = 0
        for block in tensor.blocks(count):
            yield Portion(tensor, first, block.size, block)
            first += block.size
            del block  # a buffer without references is used again
        return
    for first in range(0, tensor.count, step):
        yield Portion(tensor, first, min(step, tensor.count - first))


def _step_of(tensor: Tensor, count: int) -> int | None:
    """Return how many values a thread can read by itself; None where the tensor has to be read in order."""
    if tensor.payload is None or not is_random_access(tensor.payload):
        return None
    if isinstance(tensor.dtype, DType):
        return count
    if not tensor.shape or not tensor.count or tensor.dtype.rows(tensor.shape, 0, 1) is None:
        return None
    row = tensor.count // tensor.shape[0]
    multiple = _BYTE // gcd(row, _BYTE)  # of rows, whose values end on a byte in any type
    rows = max(count // row, min(tensor.dtype.rows_at_once, _MOST // row))
    return max(multiple, rows // multiple * multiple) * row


def fill_in_order(
    portions: Iterable[Portion],
    size_of: Callable[[int], int],
    fill: Callable[[Portion, memoryview], R],
    threads: int | None = None,
) -> Iterator[tuple[memoryview, R]]:
    """Yield memory of ``size_of(count)`` bytes that ``fill(portion, memory)`` has filled, with what it returned.

    Portions come in order and are filled on several threads. Memory is used again when nothing refers to it any more.
    """

    def work(job: tuple[Portion, memoryview]) -> tuple[memoryview, R]:
        return job[1], fill(*job)

    with shared_buffers.hold():
        jobs = ((portion, shared_buffers.take(size_of(portion.count))) for portion in portions)
        yield from map_in_order(work, jobs, threads)
