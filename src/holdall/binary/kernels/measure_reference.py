"""The Python twins of the kernels that measure values: what numbers are like, and how often each code occurs.

Elements of four or eight bytes are measured in blocks of 1,024. What is not finite is counted and taken out; the others
become distances from an origin, in float64. Element i of a block is summed in lane i % 8 and the lanes in order, so
that C and Python get the same sums; blocks are merged in order.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from holdall.binary.kernels.buffers import array_of, check_size

if TYPE_CHECKING:
    from holdall.binary.kernels.buffers import Bytes

__all__ = [
    "BLOCK",
    "CODES",
    "LANES",
    "LAST_PLACE",
    "code_distances",
    "count_codes",
    "count_reached",
    "distance_at",
    "measure",
    "merge_moments",
    "places_of",
]

CODES = 1 << 16
LANES, BLOCK = 8, 1024
_KINDS = {"f32": "<f4", "f64": "<f8", "i32": "<i4", "u32": "<u4", "i64": "<i8", "u64": "<u8"}

# A code is the sign and the upper bits of a float that has 8 bits of exponent and 7 of mantissa.
_MANTISSA, LAST_PLACE, _SIGN = 7, 0x7FFF, 0x8000
_SHIFT, _BIAS = 52 - _MANTISSA, (1023 - 127) << _MANTISSA


@np.errstate(over="ignore", invalid="ignore", under="ignore")  # of a scale that does not fit the values
def measure(
    kind: str, data: Bytes, origin: Bytes, scale: float, counts: Bytes, /
) -> tuple[int, int, int, int, Any, Any, float, float]:
    """Measure elements of a kind: f32, f64, i32, u32, i64 or u64.

    Returns how many are finite, NaN, infinite and zero, the smallest and the largest finite one (None without any), and
    the mean of their distances from ``origin``, an element, and the sum of squared distances from that mean. Floats are
    first multiplied by ``scale``, a power of two. How often the code of each distance occurs is added to ``counts``,
    65,536 times uint64, unless that is empty.
    """
    stream, table = array_of(data, "u1"), array_of(counts, "u1", writable=True)
    dtype = _find_kind(kind)
    first = array_of(origin, "u1")
    if stream.size % dtype.itemsize or first.size != dtype.itemsize:
        raise ValueError(
            f"{stream.size} bytes and an origin of {first.size} are not elements of {dtype.itemsize} bytes"
        )
    values, start = stream.view(dtype), first.view(dtype)[0]
    if not np.isfinite(start):
        raise ValueError("an origin must be finite")
    if table.size:
        _check_counts(table.size, CODES)
    count, mean, spread, nan, inf, zeros = 0, 0.0, 0.0, 0, 0, 0
    low: Any = None
    high: Any = None
    for at in range(0, values.size, BLOCK):
        block = values[at : at + BLOCK]
        finite = block[np.isfinite(block)]
        missing = int(np.isnan(block).sum())
        nan += missing
        inf += block.size - finite.size - missing
        if not finite.size:
            continue
        zeros += finite.size - int(np.count_nonzero(finite))
        bottom, top = finite.min().item() + 0, finite.max().item() + 0  # a zero without its sign
        low, high = (bottom, top) if low is None else (min(low, bottom), max(high, top))
        distances = _measure_distances(finite, start, scale)
        count, mean, spread = merge_moments((count, mean, spread), _measure_block(distances))
        if table.size:
            table.view("<u8")[:] += np.bincount(code_distances(distances), minlength=CODES).astype(np.uint64)
    return count, nan, inf, zeros, low, high, mean, spread


def _measure_distances(values: NDArray[Any], origin: Any, scale: float) -> NDArray[np.float64]:
    """How far finite elements are from ``origin``. Integers are subtracted exactly before they are rounded."""
    found: NDArray[np.float64]
    if values.dtype.kind == "f":
        found = values.astype(np.float64) * scale - float(origin) * scale
        return found
    start, below = values.dtype.type(origin), values < origin
    kind = f"<u{values.dtype.itemsize}"
    wide, base = values.view(kind), np.array([start]).view(kind)
    sizes = np.where(below, base - wide, wide - base).astype(np.float64)  # unsigned differences never wrap
    found = np.where(below, -sizes, sizes)
    return found


def code_distances(distances: NDArray[np.float64]) -> NDArray[np.int64]:
    """The code of each distance; below the range it is that of zero, above it the last."""
    bits = distances.view(np.int64)
    upper = (bits >> _SHIFT & (1 << 11 + _MANTISSA) - 1) - _BIAS
    codes: NDArray[np.int64] = np.clip(upper, 0, LAST_PLACE) | (bits >> 48 & _SIGN)
    return codes


def places_of(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of codes in the order of distances, from -:data:`LAST_PLACE` on; both zeros are at place 0.

    >>> places_of(code_distances(np.array([-1.0, -0.0, 0.0, 1.0]))).tolist()
    [-16256, 0, 0, 16256]
    """
    sizes = codes & LAST_PLACE
    found: NDArray[np.int64] = np.where(codes & _SIGN, -sizes, sizes)
    return found


def distance_at(place: int) -> float:
    """The smallest distance of a place above 0.

    >>> distance_at(16256), distance_at(16257)
    (1.0, 1.0078125)
    """
    return float(np.array(place + _BIAS << _SHIFT, np.int64).view(np.float64))


def merge_moments(before: tuple[int, float, float], after: tuple[int, float, float]) -> tuple[int, float, float]:
    """Merge count, mean and sum of squared distances of two samples (Chan's formula).

    >>> merge_moments((2, 1.0, 2.0), (2, 3.0, 2.0))
    (4, 2.0, 8.0)
    """
    share = after[0] / (before[0] + after[0])
    apart = after[1] - before[1]
    spread = before[2] + (after[2] + apart * apart * (before[0] * share))
    return before[0] + after[0], before[1] + apart * share, spread


def count_codes(data: Bytes, width: int, counts: Bytes, /) -> None:
    """Add to ``counts`` how often each code of 1 or 2 bytes occurs: 256 or 65,536 times uint64."""
    check_size(width)
    stream, table = array_of(data, "u1"), array_of(counts, "u1", writable=True)
    if width not in (1, 2) or stream.size % width:
        raise ValueError(f"{stream.size} bytes are not codes of {width} bytes, which may be 1 or 2")
    codes = 1 << 8 * width
    _check_counts(table.size, codes)
    table.view("<u8")[:] += np.bincount(stream.view(f"<u{width}"), minlength=codes).astype(np.uint64)


def count_reached(kind: str, data: Bytes, borders: Bytes, counts: Bytes, /) -> None:
    """Add to ``counts`` how many elements are at or above each border, an element of the same kind; a NaN never is."""
    stream, table = array_of(data, "u1"), array_of(counts, "u1", writable=True)
    edges = array_of(borders, "u1")
    dtype = _find_kind(kind)
    if stream.size % dtype.itemsize or edges.size % dtype.itemsize:
        raise ValueError(f"{stream.size} bytes and borders of {edges.size} are not elements of {dtype.itemsize} bytes")
    _check_counts(table.size, edges.size // dtype.itemsize)
    values, reached = stream.view(dtype), table.view("<u8")
    for number, edge in enumerate(edges.view(dtype)):
        reached[number] += np.uint64(np.count_nonzero(values >= edge))


def _find_kind(kind: str) -> np.dtype[Any]:
    if kind not in _KINDS:
        raise ValueError(f"no kind {kind!r} is measured")
    return np.dtype(_KINDS[kind])


def _check_counts(size: int, codes: int) -> None:
    if size != 8 * codes:
        raise ValueError(f"{codes} counts need {8 * codes} bytes, not {size}")


def _measure_block(distances: NDArray[np.float64]) -> tuple[int, float, float]:
    """Count, mean and sum of squared distances of a block. Squares are those of distances from its first element."""
    count, first = distances.size, float(distances[0])
    apart = np.zeros(-(-count // LANES) * LANES)
    apart[:count] = distances - first
    # Not sum(): from Python 3.12 on it keeps what the additions of floats round away.
    total, squares = (
        reduce(add, lanes.reshape(-1, LANES).sum(axis=0).tolist(), 0.0) for lanes in (apart, apart * apart)
    )
    middle = total / count
    return count, first + middle, max(0.0, squares - total * middle)
