"""Source values on their way into a kernel: as float32 rows, finite, with their extremes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall import kernels
from holdall.errors import ContentError
from holdall.quant.parallel import rows_at_a_time

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.tensor import Tensor

__all__ = ["as_float32", "block_rows", "extremes", "row_blocks", "symmetric"]

_SMALL = {"float16": "f16", "bfloat16": "bf16"}
_FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def as_float32(values: NDArray[Any], name: str = "") -> NDArray[np.float32]:
    """``values`` as contiguous float32: exact for the smaller floats, rounded for float64."""
    if values.dtype.name not in _FLOATS:
        raise ContentError(f"{_called(name)}: {values.dtype} values are no floats and cannot be quantized")
    if values.dtype.name in _SMALL and values.dtype.isnative:
        codes = np.ascontiguousarray(values)
        out = np.empty(values.shape, np.float32)
        kernels.widen(_SMALL[values.dtype.name], codes.reshape(-1).view(np.uint8), out.reshape(-1).view(np.uint8))
        return out
    with np.errstate(over="ignore"):  # beyond float32 becomes infinity, which is refused by name and place
        return np.ascontiguousarray(values, np.float32)


def extremes(values: NDArray[np.float32], name: str, shape: Sequence[int], first: int) -> tuple[float, float]:
    """Smallest and largest of ``values``, which begin at flat element ``first`` of a tensor of ``shape``.

    NaN and infinities are refused naming the tensor and the position.
    """
    low, high = float(values.min()), float(values.max())
    if isfinite(low) and isfinite(high):
        return low, high
    flat = values.reshape(-1)
    at = int(np.argmin(np.isfinite(flat)))
    place = [int(index) for index in np.unravel_index(first + at, shape)]
    raise ContentError(f"{_called(name)}: the value at {place} is {flat[at]}, which cannot be quantized")


def symmetric(low: float, high: float) -> tuple[float, float]:
    """The clip bounds that the reference takes when it is given none."""
    top = max(abs(low), abs(high))
    return -top, top


def block_rows(cols: int) -> int:
    """Rows that are read and quantized as one piece: a multiple of 8, as packed types need."""
    return max(8, rows_at_a_time(cols) // 8 * 8)


def row_blocks(tensor: Tensor, cols: int) -> Iterator[NDArray[np.float32]]:
    """The values of ``tensor`` as rows of ``cols``, some at a time."""
    for block in tensor.blocks(block_rows(cols) * cols):
        yield as_float32(block, tensor.name).reshape(-1, cols)
        del block  # or its memory would look as if it were kept


def _called(name: str) -> str:
    return f"tensor {name!r}" if name else "the array"
