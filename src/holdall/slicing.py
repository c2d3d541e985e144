"""Basic slices of a tensor that read only the bytes they need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from holdall.dtypes import DType
from holdall.sizes import tuned

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["index_of", "normalize", "read_slice"]

_PAGE = tuned(4096)  # the least that the kernel reads anyway: needed bytes this close together are read in one go

Axis = tuple[int, int, int, bool]  # first index, step, count, and whether the axis goes (an integer index)


def normalize(key: Any, shape: Sequence[int]) -> list[Axis]:
    """A basic index (integers, slices, ``...``) as one :data:`Axis` a dimension.

    >>> normalize((1, slice(None, None, 2)), (3, 4))
    [(1, 1, 1, True), (0, 2, 2, False)]
    """
    keys = list(key) if isinstance(key, tuple) else [key]
    if sum(item is Ellipsis for item in keys) > 1:
        raise IndexError("an index can have a single ellipsis ('...')")
    if not any(item is Ellipsis for item in keys):
        keys.append(Ellipsis)
    gap = next(i for i, item in enumerate(keys) if item is Ellipsis)
    missing = len(shape) - (len(keys) - 1)
    if missing < 0:
        raise IndexError(f"too many indices: the tensor has {len(shape)} dimensions, {len(keys) - 1} were given")
    keys[gap : gap + 1] = [slice(None)] * missing
    return [_axis(item, size, number) for number, (item, size) in enumerate(zip(keys, shape, strict=True))]


def _axis(item: Any, size: int, number: int) -> Axis:
    if isinstance(item, slice):
        start, stop, step = item.indices(size)
        return start, step, len(range(start, stop, step)), False
    try:
        if isinstance(item, bool):
            raise TypeError  # to numpy a mask, not the index 1
        index = item.__index__()
    except (AttributeError, TypeError):
        raise IndexError(f"only integers, slices and ... index a tensor, not {type(item).__name__}") from None
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of bounds for dimension {number} of size {size}")
    return index % size, 1, 1, True


def index_of(axes: Sequence[Axis], origin: int = 0) -> tuple[int | slice, ...]:
    """``axes`` as a numpy index again, the first one counted from row ``origin``."""
    index: list[int | slice] = []
    for first, step, count, gone in axes:
        if not count:  # a first of -1 would be taken for the last
            index.append(slice(0, 0))
            origin = 0
            continue
        start, stop = first - origin, first - origin + step * count
        index.append(start if gone else slice(start, None if stop < 0 else stop, step))
        origin = 0
    return tuple(index)


def read_slice(
    dtype: DType, shape: Sequence[int], axes: Sequence[Axis], fetch: Callable[[int, int], memoryview]
) -> NDArray[Any]:
    """The elements that ``axes`` choose, as a fresh array. ``fetch(start, stop)`` gives payload bytes."""
    import numpy as np

    counts = [count for _, _, count, _ in axes]
    out: NDArray[Any] = np.empty(counts, dtype.numpy)
    if out.size:
        strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        _fill(out, dtype, 0, axes, strides, fetch)
    return out.reshape([count for _, _, count, gone in axes if not gone])


def _fill(
    out: NDArray[Any],
    dtype: DType,
    origin: int,
    axes: Sequence[Axis],
    strides: Sequence[int],
    fetch: Callable[[int, int], memoryview],
) -> None:
    """Fill ``out`` from the elements at ``origin``: in one read when they lie close together, else row by row."""
    import numpy as np

    # The hull: from the first needed element to the last, counted from the origin.
    low = high = origin
    for (first, step, count, _), stride in zip(axes, strides, strict=True):
        ends = (first * stride, (first + step * (count - 1)) * stride)
        low += min(ends)
        high += max(ends)
    span = high - low + 1
    if not axes or span == out.size or span * dtype.bits <= 8 * _PAGE:
        flat = _elements(dtype, low, span, fetch)
        corner = origin - low + sum(first * stride for (first, *_), stride in zip(axes, strides, strict=True))
        steps = [step * stride * flat.itemsize for (_, step, _, _), stride in zip(axes, strides, strict=True)]
        out[...] = np.ndarray(out.shape, flat.dtype, flat.view(np.uint8), corner * flat.itemsize, steps)
        return
    (first, step, count, _), *inner = axes
    for row in range(count):
        _fill(out[row : row + 1].reshape(out.shape[1:]), dtype, origin + (first + row * step) * strides[0], inner,
              strides[1:], fetch)  # fmt: skip


def _elements(dtype: DType, first: int, count: int, fetch: Callable[[int, int], memoryview]) -> NDArray[Any]:
    """``count`` elements from ``first`` on, flat; a packed type may start in the middle of a byte."""
    start = first * dtype.bits // 8
    stop = -(-(first + count) * dtype.bits // 8)
    data = fetch(start, stop)
    if not dtype.packed:
        return dtype.decode_flat(data, 0, count)
    return dtype.decode_bits(data, first * dtype.bits - start * 8, count)
