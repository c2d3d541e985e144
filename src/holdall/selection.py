"""The median of more elements than fit in memory, by radix selection on keys that keep the order of the values."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.sizes import tuned

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Median", "keys_of", "middle", "not_finite", "ordered_halves", "upper_halves", "values_of"]

_FEW = tuned(1 << 20)  # elements that are collected and sorted instead of counted once more


def middle(low: int | float, high: int | float) -> float:
    """Between the two middle elements, without overflow and rounded once."""
    return float((Fraction(low) + Fraction(high)) / 2)


def upper_halves(block: NDArray[Any]) -> NDArray[np.uint16]:
    """The upper 16 bits of each element."""
    halves: NDArray[np.uint16] = np.ascontiguousarray(block).view("<u2")
    return halves[block.dtype.itemsize // 2 - 1 :: block.dtype.itemsize // 2]


def not_finite(dtype: np.dtype[Any]) -> Any:
    """The upper halves that only NaN and infinities have."""
    exponent = 0x7F80 if dtype.itemsize == 4 else 0x7FF0
    halves = np.arange(1 << 16)
    return ((halves & exponent) == exponent).nonzero()[0]


def keys_of(values: NDArray[Any]) -> Any:
    """Unsigned integers in the order of ``values``."""
    bits = values.dtype.itemsize * 8
    raw = np.ascontiguousarray(values).view(f"<u{bits // 8}")
    sign = raw.dtype.type(1 << bits - 1)
    if values.dtype.kind == "u":
        return raw
    if values.dtype.kind == "i":
        return raw ^ sign
    return np.where(raw & sign, ~raw, raw | sign)  # negative floats grow downwards


def values_of(keys: NDArray[Any], dtype: np.dtype[Any]) -> Any:
    """The inverse of :func:`keys_of`."""
    sign = keys.dtype.type(1 << dtype.itemsize * 8 - 1)
    if dtype.kind == "u":
        return keys.view(dtype)
    if dtype.kind == "i":
        return (keys ^ sign).view(dtype)
    return np.where(keys & sign, keys ^ sign, ~keys).view(dtype)


def ordered_halves(dtype: np.dtype[Any]) -> Any:
    """All upper halves in the order of the values that have them."""
    halves = np.arange(1 << 16)
    if dtype.kind == "u":
        return halves
    if dtype.kind == "i":
        return halves ^ 0x8000
    return np.where(halves & 0x8000, halves ^ 0x8000, 0xFFFF - halves)


@dataclass(slots=True)
class _Search:
    """The element of one rank: the upper bits of its key that are known, and its rank among those that share them."""

    prefix: int
    rank: int
    among: int


class Median:
    """The two middle elements by radix selection: 16 more bits of their keys each pass, until few are left."""

    def __init__(self, counts: NDArray[np.int64], dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self.left = dtype.itemsize * 8 - 16  # bits of the key that are not known yet
        order = ordered_halves(dtype)
        total = int(counts.sum())
        self.searches = [_step(counts[order], rank, 0) for rank in ((total - 1) // 2, total // 2)]
        self.buckets = order[[search.prefix for search in self.searches]]
        self._begin()

    def _begin(self) -> None:
        self.gathered: dict[int, list[NDArray[Any]]] = {}
        self.counted: dict[int, NDArray[np.int64]] = {}
        for search in self.searches:
            if search.among <= _FEW:
                self.gathered[search.prefix] = []
            else:
                self.counted[search.prefix] = np.zeros(1 << 16, np.int64)

    def add(self, block: NDArray[Any]) -> None:
        keys = keys_of(block)
        upper = keys >> keys.dtype.type(self.left)
        for prefix, parts in self.gathered.items():
            parts.append(keys[upper == keys.dtype.type(prefix)])
        for prefix, counts in self.counted.items():
            here = keys[upper == keys.dtype.type(prefix)]
            counts += np.bincount((here >> here.dtype.type(self.left - 16)).astype(np.uint16), minlength=1 << 16)

    def settled(self) -> bool:
        """True when both elements are known; otherwise another pass over all elements is due."""
        if not self.counted:
            return True
        gathered = {prefix: np.concatenate(parts) for prefix, parts in self.gathered.items()}
        if self.left == 16:
            self.found = [self._last(search, gathered) for search in self.searches]
            self.left = 0
            return True
        self.searches = [self._deeper(search, gathered) for search in self.searches]
        self.left -= 16
        self._begin()
        return False

    def _deeper(self, search: _Search, gathered: dict[int, NDArray[Any]]) -> _Search:
        counts = self.counted.get(search.prefix)
        if counts is None:
            digits = gathered[search.prefix] >> gathered[search.prefix].dtype.type(self.left - 16)
            counts = np.bincount(digits.astype(np.uint16), minlength=1 << 16)
        return _step(counts, search.rank, search.prefix)

    def _last(self, search: _Search, gathered: dict[int, NDArray[Any]]) -> int:
        return self._deeper(search, gathered).prefix

    def value(self) -> float:
        if self.left == 0:
            keys = self.found
        else:
            keys = []
            for search in self.searches:
                few = np.concatenate(self.gathered[search.prefix])
                keys.append(int(np.partition(few, search.rank)[search.rank]))
        return middle(*values_of(np.array(keys, f"u{self.dtype.itemsize}"), self.dtype).tolist())


def _step(counts: NDArray[np.int64], rank: int, prefix: int) -> _Search:
    """Sixteen bits more of a key: the digit whose elements the ``rank`` falls among."""
    ends = np.cumsum(counts)
    digit = int(np.searchsorted(ends, rank, "right"))
    return _Search(prefix << 16 | digit, rank - int(ends[digit] - counts[digit]), int(counts[digit]))
