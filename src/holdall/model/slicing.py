"""Basic slices of a tensor that read only the bytes they need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from holdall.base.buffer_sizes import buffer_size
from holdall.model.dtypes import DType

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["count_runs", "index_of", "normalize", "read_slice", "stream_slice"]

_BAND = buffer_size(4 << 20)  # bytes of neighbouring rows that are decoded at once when a tensor is streamed
_PAGE = buffer_size(4096)  # the operating system reads whole pages: needed bytes this close together take one read

Axis = tuple[int, int, int, bool]  # first index, step, count, and whether the axis is dropped (an integer index)


def normalize(key: Any, shape: Sequence[int]) -> list[Axis]:
    """A basic index (integers, slices, ``...``) as one :data:`Axis` for each dimension.

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
    return [_normalize_axis(item, size, number) for number, (item, size) in enumerate(zip(keys, shape, strict=True))]


def _normalize_axis(item: Any, size: int, number: int) -> Axis:
    if isinstance(item, slice):
        start, stop, step = item.indices(size)
        count = len(range(start, stop, step))
        return start, step if count > 1 else 1, count, False  # a step that is not taken may pass all integer types
    try:
        if isinstance(item, bool):
            raise TypeError  # numpy takes True as a mask, not as the index 1
        index = item.__index__()
    except (AttributeError, TypeError):
        raise IndexError(f"only integers, slices and ... index a tensor, not {type(item).__name__}") from None
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of bounds for dimension {number} of size {size}")
    return index % size, 1, 1, True


def index_of(axes: Sequence[Axis], origin: int = 0) -> tuple[int | slice, ...]:
    """``axes`` as a numpy index, whose first axis is counted from row ``origin``."""
    index: list[int | slice] = []
    for first, step, count, gone in axes:
        if not count:  # an empty slice may begin at -1, which numpy takes for the last element
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
    """Read the elements that ``axes`` select, as a fresh array. ``fetch(start, stop)`` gives payload bytes."""
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
    """Fill ``out`` from the elements at ``origin``: in one read when they are close together, else row by row."""
    import numpy as np

    # The hull: from the first needed element to the last, counted from the origin.
    low = high = origin
    for (first, step, count, _), stride in zip(axes, strides, strict=True):
        ends = (first * stride, (first + step * (count - 1)) * stride)
        low += min(ends)
        high += max(ends)
    span = high - low + 1
    if not axes or span == out.size or span * dtype.bits <= 8 * _PAGE:
        flat = _read_elements(dtype, low, span, fetch)
        corner = origin - low + sum(first * stride for (first, *_), stride in zip(axes, strides, strict=True))
        steps = [step * stride * flat.itemsize for (_, step, _, _), stride in zip(axes, strides, strict=True)]
        out[...] = np.ndarray(out.shape, flat.dtype, flat.view(np.uint8), corner * flat.itemsize, steps)
        return
    (first, step, count, _), *inner = axes
    for row in range(count):
        _fill(out[row : row + 1].reshape(out.shape[1:]), dtype, origin + (first + row * step) * strides[0], inner,
              strides[1:], fetch)  # fmt: skip


def _read_elements(dtype: DType, first: int, count: int, fetch: Callable[[int, int], memoryview]) -> NDArray[Any]:
    """Read ``count`` elements from ``first`` on, flat; a packed type may start in the middle of a byte."""
    start = first * dtype.bits // 8
    stop = -(-(first + count) * dtype.bits // 8)
    data = fetch(start, stop)
    if not dtype.packed:
        return dtype.decode_flat(data, 0, count)
    return dtype.decode_bits(data, first * dtype.bits - start * 8, count)


def count_runs(axes: Sequence[Axis], shape: Sequence[int]) -> int:
    """Count the stretches of elements next to each other that ``axes`` select.

    >>> count_runs(normalize((slice(None), 0), (5, 3)), (5, 3)), count_runs(normalize(slice(1, 3), (5, 3)), (5, 3))
    (5, 1)
    """
    parted = len(axes)
    while parted and axes[parted - 1][:3] == (0, 1, shape[parted - 1]):
        parted -= 1
    if not parted:
        return 1
    _, step, count, _ = axes[parted - 1]
    return (1 if step == 1 else count) * prod(count for _, _, count, _ in axes[: parted - 1])


def stream_slice(
    dtype: DType, shape: Sequence[int], axes: Sequence[Axis], pieces: Iterator[memoryview]
) -> NDArray[Any]:
    """Take the elements that ``axes`` select, as a fresh array, from a payload that comes in order, in one pass.

    Bytes that can only be made from the start would else be made again for every row. The pass ends where the last
    element is found, and memory holds a few rows beside the result.
    """
    import numpy as np

    counts = [count for _, _, count, _ in axes]
    out: NDArray[Any] = np.empty(counts, dtype.numpy)
    if out.size:
        strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        # What is asked for backwards is read forwards, into a view that is turned around.
        back: list[Any] = [slice(None, None, 1 if step > 0 else -1) for _, step, _, _ in axes]
        turned = out[(..., *back)]
        forward = [axis if axis[1] > 0 else (axis[0] + axis[1] * (axis[2] - 1), -axis[1], *axis[2:]) for axis in axes]
        _fill_in_order(turned, dtype, 0, forward, strides, shape, _ForwardReader(pieces).fetch)
    return out.reshape([count for _, _, count, gone in axes if not gone])


def _fill_in_order(
    out: NDArray[Any],
    dtype: DType,
    origin: int,
    axes: Sequence[Axis],
    strides: Sequence[int],
    shape: Sequence[int],
    fetch: Callable[[int, int], memoryview],
) -> None:
    """Fill ``out`` from the elements at ``origin``, some rows of the first axis at a time; large rows are split."""
    if not axes:
        out[...] = _read_elements(dtype, origin, 1, fetch)[0]
        return
    (first, step, count, _), *inner = axes
    stride = strides[0]
    if inner and stride * dtype.bits > 8 * _BAND:
        for row in range(count):
            at = origin + (first + row * step) * stride
            _fill_in_order(out[row : row + 1].reshape(out.shape[1:]), dtype, at, inner, strides[1:], shape[1:], fetch)
        return
    rows = max(1, 8 * _BAND // (stride * dtype.bits))
    most = (rows - 1) // step + 1  # those of ``rows`` that are wanted
    chosen = tuple(slice(low, low + every * (number - 1) + 1, every) for low, every, number, _ in inner)
    for start in range(0, count, most):
        taken = min(most, count - start)
        span = (taken - 1) * step + 1
        flat = _read_elements(dtype, origin + (first + start * step) * stride, span * stride, fetch)
        out[start : start + taken] = flat.reshape(span, *shape[1:])[(slice(None, None, step), *chosen)]


class _ForwardReader:
    """Bytes that come in order, in pieces: ranges of them, each beginning after the one before or at its last byte."""

    def __init__(self, pieces: Iterator[memoryview]) -> None:
        self._pieces = pieces
        self._piece = memoryview(b"")
        self._at = 0  # of the first byte of the piece

    def fetch(self, start: int, stop: int) -> memoryview:
        """The bytes ``start..stop``."""
        parts: list[memoryview] = []
        while start < stop:
            end = self._at + len(self._piece)
            if start < end:
                parts.append(self._piece[start - self._at : stop - self._at])
                start += len(parts[-1])
            else:
                self._at, self._piece = end, next(self._pieces)
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
