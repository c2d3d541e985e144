"""The Python twins of encoder.c: what a transformer computes between its matrix products, to the same bits.

Each works in place on rows of float32 and computes in float64. Sums go into eight lanes, element i into lane i % 8, and
the lanes are added in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from holdall.base.buffer_sizes import buffer_size
from holdall.binary.kernels.buffers import array_of, check_size

if TYPE_CHECKING:
    from holdall.binary.kernels.buffers import Bytes

__all__ = ["add_norm", "bias_gelu", "softmax"]

_BLOCK = buffer_size(1 << 16)  # elements at a time, so that the temporaries stay small
_LANES = 8

# erf(x / sqrt 2) / (2 x), a Chebyshev series over x * x from 0 to 32, as powers of x * x / 16 - 1.
_GELU_LIMIT = 32.0
_GELU = (
    0.12499208218954172, -0.0624291268654255, 0.046554184346405555, -0.03808133925181934,
    0.03189367707379952, -0.02642121698726254, 0.021173545201756024, -0.016173056850281958,
    0.011686103364580638, -0.007977068971378828, 0.005084464958560431, -0.002964207309077846,
    0.001688198521146655, -0.001028738847867285, 0.000498564232322849, -0.00011508858855206514,
    6.124593941009172e-05, -8.712333354954225e-05, 3.324749759395837e-05,
)  # fmt: skip

_EXP = (1.0, 1.0, 1 / 2, 1 / 6, 1 / 24, 1 / 120, 1 / 720, 1 / 5040, 1 / 40320, 1 / 362880)
_FLOOR = -104.0
_LOG2_E = 1.4426950408889634
_LN2 = 0.6931471805599453


def bias_gelu(values: Bytes, bias: Bytes, /) -> None:
    """Replace ``values``, rows as long as ``bias``, by x * Phi(x) of x = values + bias (Phi: normal distribution)."""
    flat, added = array_of(values, "u1", writable=True), array_of(bias, "u1")
    if added.size % 4 or not added.size or flat.size % added.size:
        raise ValueError(f"{flat.size} bytes are no rows of float32 as long as {added.size} bytes")
    with np.errstate(all="ignore"):
        for rows in _split_rows(flat, added.size // 4):
            x = (rows + added.view("<f4")).astype(np.float64)
            square = x * x
            h = _evaluate(_GELU, np.where(square > _GELU_LIMIT, _GELU_LIMIT, square) * 0.0625 - 1.0)
            rows[:] = x * np.where(square > _GELU_LIMIT, np.where(x > 0, 1.0, 0.0), 0.5 + x * h)


def add_norm(values: Bytes, residual: Bytes, bias: Bytes, weight: Bytes, shift: Bytes, eps: float, /) -> None:
    """Replace ``values`` by values + bias + residual, normalized to mean 0 and variance 1, times weight plus shift."""
    flat, other = array_of(values, "u1", writable=True), array_of(residual, "u1")
    b, w, s = (array_of(part, "u1") for part in (bias, weight, shift))
    if w.size % 4 or not w.size or flat.size % w.size or other.size != flat.size or {b.size, s.size} != {w.size}:
        raise ValueError(
            f"{flat.size} and {other.size} bytes are no rows of float32 as long as bias, weight and shift: "
            f"{b.size}, {w.size}, {s.size}"
        )
    width = w.size // 4
    with np.errstate(all="ignore"):
        for rows, added in zip(_split_rows(flat, width), _split_rows(other, width), strict=True):
            rows += b.view("<f4")
            rows += added
            apart = rows.astype(np.float64)
            apart -= (_sum_rows(apart) / width)[:, None]
            apart *= (1.0 / np.sqrt(_sum_rows(apart * apart) / width + eps))[:, None]
            rows[:] = apart
            rows *= w.view("<f4")
            rows += s.view("<f4")


def softmax(values: Bytes, width: int, /) -> None:
    """Replace ``values``, rows of ``width``, by their exponentials divided by the sum of the row."""
    check_size(width)
    flat = array_of(values, "u1", writable=True)
    if not width or flat.size % 4 or flat.size // 4 % width:
        raise ValueError(f"{flat.size} bytes are no rows of {width} float32")
    with np.errstate(all="ignore"):
        for rows in _split_rows(flat, width):
            rows -= rows.max(axis=1, keepdims=True)
            rows[:] = _exp(rows.astype(np.float64))
            rows *= (1.0 / _sum_rows(rows.astype(np.float64))).astype(np.float32)[:, None]


def _split_rows(flat: NDArray[np.uint8], width: int) -> Iterator[NDArray[np.float32]]:
    """Split the array into rows, a block of rows at a time."""
    rows = flat.view("<f4").reshape(-1, width)
    step = max(1, _BLOCK // width)
    return (rows[start : start + step] for start in range(0, len(rows), step))


def _evaluate(coefficients: tuple[float, ...], x: NDArray[np.float64]) -> NDArray[np.float64]:
    total: NDArray[np.float64] = np.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total *= x
        total += coefficient
    return total


def _sum_rows(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum of each row, lane by lane."""
    width = -(-rows.shape[1] // _LANES) * _LANES
    filled = np.zeros((len(rows), width))
    filled[:, : rows.shape[1]] = rows
    lanes = np.zeros((len(rows), _LANES))
    for start in range(0, width, _LANES):
        lanes += filled[:, start : start + _LANES]
    total = np.zeros(len(rows))
    for lane in range(_LANES):
        total += lanes[:, lane]
    return total


def _exp(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """For x up to 0: 2^k * exp(r), |r| <= ln(2) / 2, by the Taylor series."""
    x = np.where(x < _FLOOR, _FLOOR, x)
    whole = np.rint(x * _LOG2_E)
    powers = np.ldexp(_evaluate(_EXP, x - whole * _LN2), np.nan_to_num(whole).astype(np.int32))
    return np.where(np.isnan(x), x, powers)
