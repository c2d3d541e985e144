"""The few float32 steps that every mode is made of."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["ALMOST_HALF", "F32", "HALF_MAX", "Floats", "half_to_nearest", "half_truncated", "magnitudes", "rounded"]

F32 = np.float32
Floats: TypeAlias = NDArray[np.float32]

# The float32 before 1/2. Added before truncation it rounds half away from zero exactly; 1/2 itself would carry its
# own predecessor up to 1.
ALMOST_HALF = F32(0.49999997)

HALF_MAX = F32(65504)


def rounded(x: Floats) -> Floats:
    """``x``, which is not negative and below 2^22, to the nearest integer, half away from zero."""
    whole: Floats = np.trunc(x + ALMOST_HALF)
    return whole


def magnitudes(a: Floats, step: Floats, qmax: F32) -> Floats:
    """The codes of the magnitudes ``a`` without their signs: ``a`` times the rounded reciprocal of its step."""
    return coded(a, np.where(step > 0, F32(1) / step, F32(0)), qmax)


def coded(a: Floats, inverse: Floats, qmax: F32) -> Floats:
    """``a * inverse`` to the nearest integer up to ``qmax``; NaN counts as ``qmax``."""
    x = a * inverse
    return rounded(np.where(x < qmax, x, qmax))


def half_to_nearest(x: Floats) -> NDArray[np.float16]:
    """``x``, which is not negative, as half precision, to nearest even, subnormals and all; no infinity."""
    half: NDArray[np.float16] = np.where(x < HALF_MAX, x, HALF_MAX).astype(np.float16)
    return half


def half_truncated(x: Floats) -> NDArray[np.float16]:
    """``x``, not negative, as the reference stores it: towards zero, below 2^-14 nothing, from 2^16 infinity."""
    bits = x.view(np.uint32)
    code = np.where(bits < 0x47800000, (bits - 0x38000000) >> 13, 0x7C00)
    half: NDArray[np.float16] = np.where(bits < 0x38800000, 0, code).astype(np.uint16).view(np.float16)
    return half
