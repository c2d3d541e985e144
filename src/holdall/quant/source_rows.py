"""Source values for the kernels: float32 rows, their extremes, and the refusal of values that are not finite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import gcd, isfinite
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.base.memory import lend_memory
from holdall.binary import kernels
from holdall.errors import ContentError
from holdall.model.portions import Portion, split

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.tensor import Tensor

__all__ = ["as_float32", "describe", "find_extremes", "rows_per_piece", "split_rows", "symmetric_bounds"]
__all__ += ["use_float32", "use_rows"]

R = TypeVar("R")

_PIECE = buffer_size(1 << 18)  # values of one job: some milliseconds of work in mode best
_SMALL = {"float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8_e4m3", "float8_e5m2": "f8_e5m2"}
_FLOATS = ("float64", "float32", *_SMALL)


def rows_per_piece(cols: int, piece: int = _PIECE) -> int:
    """Choose how many rows of ``cols`` columns one job takes: so many that they end on a byte in any type."""
    rows = piece // max(1, cols)
    least = 8 // gcd(cols, 8)
    return rows // 8 * 8 or max(least, rows // least * least)


def use_float32(values: NDArray[Any], name: str, work: Callable[[NDArray[np.float32]], R]) -> R:
    """Return ``work(floats)`` for ``values`` as contiguous float32: exact for the smaller floats, rounded for float64.

    ``work`` keeps no view of them: the smaller floats are widened into memory that this thread uses again.
    """
    kind = _SMALL.get(values.dtype.name)
    if kind is None or not values.dtype.isnative:
        return work(as_float32(values, name))
    with lend_memory(4 * values.size) as memory:
        return work(_widen(kind, values, memory))


def _widen(kind: str, values: NDArray[Any], memory: memoryview | NDArray[np.float32]) -> NDArray[np.float32]:
    kernels.widen(kind, np.ascontiguousarray(values).reshape(-1).view(np.uint8), memory)
    return np.frombuffer(memory, np.float32).reshape(values.shape)


def as_float32(values: NDArray[Any], name: str = "") -> NDArray[np.float32]:
    """Return ``values`` as contiguous float32, as :func:`use_float32` has them, to be kept."""
    if values.dtype.name not in _FLOATS:
        raise ContentError(f"{describe(name)}: {values.dtype} values are no floats and cannot be quantized")
    kind = _SMALL.get(values.dtype.name)
    if kind is not None and values.dtype.isnative:
        return _widen(kind, values, np.empty(values.size, np.float32))
    with np.errstate(over="ignore"):  # a number beyond float32 becomes infinity, which find_extremes refuses
        return np.ascontiguousarray(values, np.float32)


def find_extremes(values: NDArray[Any], name: str, shape: Sequence[int], first: int) -> tuple[float, float]:
    """Find the smallest and largest of ``values``, which begin at flat element ``first`` of a tensor of ``shape``.

    ContentError for NaN and infinities, naming the tensor and the position.
    """
    kind = _SMALL.get(values.dtype.name)
    if kind is None or not values.dtype.isnative:
        kind, values = "f32", as_float32(values, name)
    low, high = kernels.extremes(kind, np.ascontiguousarray(values).reshape(-1).view(np.uint8))
    if isfinite(low) and isfinite(high):
        return low + 0.0, high + 0.0  # a negative zero becomes a positive one
    flat = as_float32(values, name).reshape(-1)
    at = int(np.argmin(np.isfinite(flat)))
    place = [int(index) for index in np.unravel_index(first + at, shape)]
    raise ContentError(f"{describe(name)}: the value at {place} is {flat[at]}, which cannot be quantized")


def symmetric_bounds(low: float, high: float) -> tuple[float, float]:
    """Return the clip bounds that the reference uses if none are given."""
    top = max(abs(low), abs(high))
    return -top, top


def split_rows(tensor: Tensor, cols: int, piece: int = _PIECE) -> Iterator[Portion]:
    """Yield portions of complete rows of ``cols`` values, some at a time."""
    return split(tensor, rows_per_piece(cols, piece) * cols)


def use_rows(portion: Portion, cols: int, work: Callable[[NDArray[np.float32]], R]) -> R:
    """Return ``work(rows)`` for the values of a portion as float32 rows, of which ``work`` keeps no view."""
    name = portion.tensor.name
    return portion.use(lambda values: use_float32(values.reshape(-1, cols), name, work))


def describe(name: str) -> str:
    """Describe the subject of a message: the tensor called ``name``, or an array without a name."""
    return f"tensor {name!r}" if name else "the array"
