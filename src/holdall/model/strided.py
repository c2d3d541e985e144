"""Elements that a file stores in another order or byte order than the tensor: rearranged when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from holdall.errors import UnsupportedError
from holdall.model.payload import Computed, Payload
from holdall.source import CHUNK

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Arrangement", "contiguous_strides", "extent_of", "merge_axes"]

_AXES = 63  # numpy allows 64, and one is needed for the bytes of an element


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides, in elements, of an array whose last axis runs fastest.

    >>> contiguous_strides((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def extent_of(shape: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements an array of non-negative strides spans, from its first element to its last.

    >>> extent_of((2, 3), (1, 2)), extent_of((5, 0), (9, 9))
    (6, 0)
    """
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def merge_axes(shape: Sequence[int], strides: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of the same elements in the same order, with as few axes as possible.

    >>> merge_axes((2, 1, 3, 4), (12, 7, 4, 1)), merge_axes((3, 2), (1, 3)), merge_axes((1, 1), (5, 5))
    (((24,), (1,)), ((3, 2), (1, 3)), ((1,), (1,)))
    """
    axes: list[tuple[int, int]] = []
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if axes and axes[-1][1] == size * stride:
            axes[-1] = axes[-1][0] * size, stride
        else:
            axes.append((size, stride))
    axes = axes or [(1, 1)]
    return tuple(size for size, _ in axes), tuple(stride for _, stride in axes)


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How elements are arranged in a payload: ``strides`` and ``first`` count elements of ``width`` bytes.

    ``swap`` is the width of big-endian numbers, whose bytes are swapped; 0 when there are none. The caller has checked
    that all elements are inside the payload.
    """

    stored: Payload
    width: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    first: int = 0
    swap: int = 0

    def payload(self) -> Computed:
        """The elements in order, as little-endian bytes, computed when asked for."""
        return Computed(prod(self.shape) * self.width, self._make_blocks, (self.stored,))

    def _make_blocks(self) -> Iterator[memoryview]:
        import numpy as np

        count = prod(self.shape)
        if not count:
            return
        start = self.first * self.width
        data = self.stored.slice(start, start + extent_of(self.shape, self.strides) * self.width)
        shape, strides = merge_axes(self.shape, self.strides)
        if len(shape) > _AXES:
            raise UnsupportedError(f"a tensor of {len(self.shape)} axes in another order: {_AXES} are put in order")
        steps = (*(stride * self.width for stride in strides), 1)
        yield from self._make_rows(np.ndarray((*shape, self.width), np.uint8, data, 0, steps))

    def _make_rows(self, grid: NDArray[np.uint8]) -> Iterator[memoryview]:
        """Make some rows of the first axis at a time; a row that is too large is split along the next axis."""
        import numpy as np

        row = grid[0].size if grid.ndim > 1 else 1
        if grid.ndim > 1 and row > CHUNK:
            for part in grid:
                yield from self._make_rows(part)
            return
        step = max(1, CHUNK // max(row, 1)) if grid.ndim > 1 else grid.shape[0]
        for start in range(0, grid.shape[0], step):
            block = np.ascontiguousarray(grid[start : start + step]).reshape(-1)
            if self.swap > 1:
                block = np.ascontiguousarray(block.reshape(-1, self.swap)[:, ::-1]).reshape(-1)
            yield block.data
