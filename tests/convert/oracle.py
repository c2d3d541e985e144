"""The expected results of conversions, in plain numpy, without any arithmetic of holdall.

Casts round to nearest, ties to even, from the exact value. Numbers beyond a float type become infinite, or NaN in
f8_e4m3, which has no infinity; so does an infinity in f8_e4m3. A NaN stays a NaN, and its sign and payload are not
defined: the bits that were written count from then on. An integer that the new type does not hold stops a cast.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tests.convert.readers import NUMPY, Found, bits_of

__all__ = ["FLOATS", "RANGES", "Stop", "Truth", "cast", "compare", "is_float"]

FLOATS = ("f64", "f32", "f16", "bf16", "f8_e4m3", "f8_e5m2")
_COMPLEX = ("c64", "c128")
_SMALL = ("f16", "bf16", "f8_e4m3", "f8_e5m2")

Array = np.ndarray[Any, Any]

RANGES = {
    name: (-(1 << bits - 1), (1 << bits - 1) - 1) if name[0] == "i" else (0, (1 << bits) - 1)
    for name in NUMPY
    if name[0] in "iu"
    for bits in [int(name[1:])]
}


class Stop(Exception):
    """The conversion has to stop here."""


@dataclass(frozen=True)
class Truth:
    """The expected dtype and values of a tensor. An encoded one (``mcf.k4``) has its decoded values."""

    dtype: str
    values: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def encoded(self) -> bool:
        return "." in self.dtype

    @property
    def found(self) -> Found:
        return self.dtype, self.shape, bits_of(self.values)

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


def is_float(truth: Truth) -> bool:
    """Whether a cast without a pattern applies to it."""
    return truth.dtype in FLOATS


def cast(truth: Truth, dtype: str) -> Truth:
    """``truth`` in another dtype. Raises Stop where holdall has to refuse."""
    if truth.dtype == dtype:
        return truth
    if truth.encoded:
        raise Stop("encoded")
    old, new = truth.dtype, dtype
    values = truth.values
    if old in _COMPLEX and new not in _COMPLEX:
        if values.size:  # values are refused, not types
            raise Stop("complex")
        return Truth(new, np.zeros(values.shape, NUMPY[new]))
    if new in RANGES or new == "bool":
        return Truth(new, _to_integers(values, new))
    if old in FLOATS or old in _COMPLEX:
        return Truth(new, _round(values, new))
    made = _from_integers(values, new)
    return Truth(new, made)


def _to_integers(values: Array, dtype: str) -> Array:
    low, high = RANGES.get(dtype, (0, 1))
    if values.dtype.kind not in "iub":
        values = values.astype(np.float64)
        if not np.all(np.isfinite(values)) or np.any(values != np.trunc(values)):
            raise Stop("fractions")
    numbers = [int(value) for value in values.reshape(-1).tolist()] if values.size < 5000 else []
    if values.size >= 5000:
        numbers = [int(values.min()), int(values.max())]
    if numbers and (min(numbers) < low or max(numbers) > high):
        raise Stop("range")
    return values.astype(NUMPY[dtype])


def _from_integers(values: Array, dtype: str) -> Array:
    wide = values.astype(np.float64)
    made = _round(wide, dtype)
    back = made.real.astype(np.float64) if made.dtype.kind == "c" else made.astype(np.float64)
    for number, value in zip(values.reshape(-1).tolist(), back.reshape(-1).tolist(), strict=True):
        if not np.isfinite(value) or int(value) != int(number):
            raise Stop("integers change")
    return made


def _round(values: Array, dtype: str) -> Array:
    """Floats or complex numbers in a type of floats or complex numbers."""
    kind = NUMPY[dtype]
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype not in _SMALL:
            if values.dtype.kind not in "fc":  # a type of ml_dtypes: exact in float32
                values = values.astype(np.float32)
            return values.astype(kind)
        return _round_small(values.astype(np.float64), dtype)


@cache
def _table(dtype: str) -> tuple[Array, Array, int]:
    """Magnitudes of a small type by their codes, the points between them, and the code beyond the largest."""
    kind = np.dtype(NUMPY[dtype])
    code = np.uint8 if kind.itemsize == 1 else np.uint16
    codes = np.arange(1 << (8 * kind.itemsize - 1), dtype=code)
    with np.errstate(invalid="ignore"):
        values = codes.view(kind).astype(np.float64)
    finite = int(np.argmin(np.isfinite(values)))  # codes of positive numbers are in order
    values = values[:finite]
    step = values[-1] - values[-2]
    between = np.append((values[:-1] + values[1:]) / 2, values[-1] + step / 2)
    return values, between, finite


def _round_small(values: Array, dtype: str) -> Array:
    """Nearest of all the numbers that the type has, which are few enough to look at each."""
    kind = np.dtype(NUMPY[dtype])
    code = np.uint8 if kind.itemsize == 1 else np.uint16
    _, between, beyond = _table(dtype)
    flat = values.reshape(-1)
    size = np.abs(flat)
    row = np.searchsorted(between, size, side="left")  # between[row - 1] < size <= between[row]
    tie = (row < len(between)) & (between[np.minimum(row, len(between) - 1)] == size)
    row += tie & (row % 2 == 1)
    codes = np.minimum(row, beyond).astype(code)
    sign = code(1 << (8 * kind.itemsize - 1))
    codes |= np.where(np.signbit(flat), sign, code(0))
    made = codes.view(kind).copy()
    made[np.isnan(flat)] = np.nan
    return made.reshape(values.shape)


def compare(expected: Truth, found: Found, *, loose: bool) -> tuple[Truth, str | None]:
    """``expected`` with the bits that count from now on, and what is wrong with ``found``.

    ``loose`` allows any NaN for a NaN.
    """
    dtype, shape, bits = found
    if (dtype, shape) != (expected.dtype, expected.shape):
        return expected, f"{dtype}{list(shape)} instead of {expected!r}"
    if bits == bits_of(expected.values):
        return expected, None
    if len(bits) != expected.values.nbytes:
        return expected, f"{len(bits)} bytes instead of {expected.values.nbytes}"
    values = np.frombuffer(bits, expected.values.dtype).reshape(shape)
    raw = np.dtype((np.void, values.dtype.itemsize))
    differs = np.ascontiguousarray(values).view(raw) != np.ascontiguousarray(expected.values).view(raw)
    if loose and values.dtype.kind not in "iub":
        differs &= ~(np.isnan(values) & np.isnan(expected.values))
    if not differs.any():
        return Truth(dtype, values), None
    at = int(np.flatnonzero(differs)[0])
    was, now = expected.values.reshape(-1)[at], values.reshape(-1)[at]
    return expected, f"element {at} is {now!r} instead of {was!r} ({int(differs.sum())} differ)"
