"""The bins of a histogram, counted exactly between borders that are true.

Where all values are at hand, the bins are equal. Of more values only the codes of their distances from an origin were
counted, so the borders are those between two codes that are nearest to equal bins: a code tells a distance to 1 in 128.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, frexp, inf, nextafter
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.binary import kernels
from holdall.binary.kernels.measure_reference import CODES, LAST_PLACE, code_distances, distance_at, places_of
from holdall.operations.stats.measures import Bin, Number

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CodedValues", "count_bins", "count_weighted_bins"]

# Float64 has multiples of 2^-1074; half of one, divided by a scale of at most 2^1000, is a multiple of this.
_UNIT = 2100
_ONE = 1 << _UNIT
_LARGEST_FIXED = int(np.finfo(np.float32).max) << _UNIT
_SINGLE_VALUES = 20  # integers that span no more than this are counted one by one


def count_bins(values: NDArray[Any], low: Number, high: Number, bins: int) -> tuple[Bin, ...]:
    """Count finite ``values``, which lie from ``low`` to ``high``, in equal bins."""
    pairs = _divide(low, high, bins, values.dtype)
    above = np.zeros(len(pairs) - 1, np.uint64)
    borders = _first_from([border for border, _ in pairs[1:]], high, values.dtype)
    kernels.count_reached(f"{values.dtype.kind}{8 * values.dtype.itemsize}", values, borders, above[: borders.size])
    return _join(pairs, [values.size, *above.tolist()])


def count_weighted_bins(
    values: NDArray[Any], counts: NDArray[np.int64], bins: int, dtype: np.dtype[Any]
) -> tuple[Bin, ...]:
    """Count ascending ``values``, each as often as ``counts`` says, in equal bins. They are of ``dtype``."""
    pairs = _divide(values[0].item(), values[-1].item(), bins, dtype)
    below = np.searchsorted(values, [border for border, _ in pairs[1:]])
    sums = np.concatenate([[0], np.cumsum(counts)])
    return _join(pairs, [int(sums[-1] - sums[at]) for at in (0, *below)])


def _divide(low: Number, high: Number, bins: int, dtype: np.dtype[Any]) -> list[tuple[Number, Number]]:
    """The ends of single values, or of equal bins."""
    if low == high:
        return [(low, high)]
    if _has_single_values(low, high, dtype):
        return [(value, value) for value in range(int(low), int(high) + 1)]
    inner = _divide_equally(low, high, bins, dtype)
    return list(pairwise([low, *inner, high]))


def _has_single_values(low: Number, high: Number, dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iub" and high - low <= _SINGLE_VALUES


def _divide_equally(low: Number, high: Number, bins: int, dtype: np.dtype[Any]) -> list[float]:
    """The borders between equal bins, rounded once: the quotient of two integers is."""
    if is_single(dtype):
        borders, exact = divide_singles(np.float64(low), np.float64(high), bins)
        if exact.all():
            found: list[float] = borders.tolist()
            return found
    (start, below), (stop, above) = low.as_integer_ratio(), high.as_integer_ratio()
    whole = below * above * bins
    return [(start * above * (bins - part) + stop * below * part) / whole for part in range(1, bins)]


def is_single(dtype: np.dtype[Any]) -> bool:
    """Whether all values of a type are float32 too, with at most 24 bits."""
    return dtype.kind not in "iub" and dtype.itemsize <= 4


def divide_singles(low: Any, high: Any, bins: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The borders between equal bins along the last axis, and which of them are exact quotients, rounded once.

    ``low`` and ``high`` are float32 as float64, so that their multiples are exact; the sum of two need not be.
    """
    parts = np.arange(1, bins)
    first, second = low * (bins - parts), high * parts
    total = first + second
    back = total - first
    return total / bins, (first - (total - back)) + (second - back) == 0


def _join(pairs: Sequence[tuple[Number, Number]], reached: Sequence[int]) -> tuple[Bin, ...]:
    """The bins that are not empty; ``reached`` has the elements at or above the start of each."""
    counts = (at - after for at, after in pairwise([*reached, 0]))
    return tuple(Bin(low, high, count) for (low, high), count in zip(pairs, counts, strict=True) if count)


def _first_from(borders: Sequence[Number], high: Number, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The smallest value of ``dtype`` that is not below each border, up to ``high``: others may be beyond the type."""
    if dtype.kind in "iub":
        return np.array([first for border in borders if (first := ceil(border)) <= high], dtype)
    exact = np.array(borders, np.float64)
    found = exact.astype(dtype)
    below = found < exact
    if below.any():
        found[below] = np.nextafter(found[below], dtype.type(inf))
    return found


def _first_at(border: int, dtype: np.dtype[Any], *, beyond: bool = False) -> Number:
    """Return the smallest value of ``dtype`` that is not below ``border``, in units, or above it if ``beyond``."""
    if dtype.kind in "iub":
        return (border >> _UNIT) + 1 if beyond else -(-border >> _UNIT)
    if dtype == np.float32:
        if border > _LARGEST_FIXED:
            return inf
        rounded = np.float32(max(border, -_LARGEST_FIXED) / _ONE)
        found = float(rounded)
        misses = _fix(found) <= border if beyond else _fix(found) < border
        return float(np.nextafter(rounded, np.float32(inf))) if misses else found
    found = border / _ONE  # rounded once: both are integers
    return nextafter(found, inf) if (_fix(found) <= border if beyond else _fix(found) < border) else found


def _fix(value: Number) -> int:
    """Return ``value`` as a multiple of a unit that is smaller than any number here: exact, and sooner than fractions.

    >>> _fix(0.5) == _ONE // 2
    True
    """
    above, below = value.as_integer_ratio()
    return above << _UNIT - below.bit_length() + 1


class CodedValues:
    """How often the code of each distance from an origin occurs, as the kernel counts them."""

    def __init__(self, counts: NDArray[np.uint64], origin: Number, scale: float, dtype: np.dtype[Any]) -> None:
        self._origin = _fix(origin)
        self._exponent = frexp(scale)[1] - 1  # the scale is a power of two
        self._dtype = dtype
        codes = (counts != 0).nonzero()[0]  # of booleans they are found ten times as fast
        below = int(np.searchsorted(codes, CODES // 2))  # codes are ascending; places are so below zero backwards
        order = np.concatenate([codes[below:][::-1], codes[:below]])
        places, found = places_of(order), counts[order].astype(np.int64)
        zeros = codes.size - below  # where zero is, if it occurs with both signs
        if 0 < zeros < codes.size and places[zeros - 1] == places[zeros]:
            found[zeros - 1] += found[zeros]
            places, found = np.delete(places, zeros), np.delete(found, zeros)
        self._places = places
        self._sums = np.zeros(places.size + 1, np.int64)  # how many are at places before each
        np.cumsum(found, out=self._sums[1:])

    def count_bins(self, low: Number, high: Number, bins: int) -> tuple[Bin, ...]:
        """Count all in bins whose borders are as near to those of equal bins as the codes allow."""
        if low == high:
            return (Bin(low, high, int(self._sums[-1])),)
        if _has_single_values(low, high, self._dtype):
            singles = range(int(low), int(high) + 1)
            reached = [self._count_from(place) for place in self._find_places(singles)]
            return _join([(value, value) for value in singles], reached)
        borders: dict[Number, int] = {low: -LAST_PLACE}
        wanted = _divide_equally(low, high, bins, self._dtype)
        for border, place in zip(wanted, self._find_places(wanted), strict=True):
            below, above = self._start_of(place), self._start_of(place + 1)
            is_below = border - below <= above - border
            found = below if is_below else above
            if low < found <= high:
                borders[found] = place if is_below else place + 1
        pairs = list(pairwise([*sorted(borders), high]))
        return _join(pairs, [self._count_from(borders[start]) for start, _ in pairs])

    def find_span(self, first: int, last: int) -> tuple[int, Number, Number]:
        """Find where the elements of the ranks ``first`` to ``last`` are: a rank and two ends.

        The rank is that of the first element at or above the first end. All that are wanted are below the second.
        """
        low, high = np.searchsorted(self._sums, [first, last], "right") - 1
        start, stop = self._start_of(int(self._places[low])), self._start_of(int(self._places[high]) + 1)
        return int(self._sums[low]), start, stop

    def _find_places(self, values: Sequence[Number]) -> list[int]:
        distances = [_scale(_fix(value) - self._origin, self._exponent) / _ONE for value in values]
        places: list[int] = places_of(code_distances(np.array(distances))).tolist()
        return places

    def _count_from(self, place: int) -> int:
        return int(self._sums[-1] - self._sums[np.searchsorted(self._places, place)])

    def _start_of(self, place: int) -> Number:
        """The smallest element of a place.

        A distance was rounded to float64, half to even, and the distances between two places are even. So those that
        reach the upper place begin half a step below it, or just beyond if that place is the one nearer to zero.
        """
        if not -LAST_PLACE < place <= LAST_PLACE:
            return inf if place > 0 else -inf
        size = distance_at(place if place > 0 else 1 - place)
        exact = _scale((_fix(size) + _fix(nextafter(size, 0))) >> 1, -self._exponent)
        return _first_at(self._origin + (exact if place > 0 else -exact), self._dtype, beyond=place <= 0)


def _scale(number: int, exponent: int) -> int:
    """Multiply by a power of two; the units are small enough that no bit is lost."""
    return number << exponent if exponent > 0 else number >> -exponent
