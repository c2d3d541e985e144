"""The float32 operations that all modes share."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["ALMOST_HALF", "F32", "HALF_MAX", "Floats", "code_by_inverse", "code_by_step", "round_half_away"]
__all__ += ["round_to_half", "truncate_to_half"]

F32 = np.float32
Floats: TypeAlias = NDArray[np.float32]

# The float32 before 1/2. Adding it and truncating rounds half away from zero exactly; 1/2 itself would round its own
# predecessor up to 1.
ALMOST_HALF = F32(0.49999997)

HALF_MAX = F32(65504)  # the largest number of half precision


def round_half_away(x: Floats) -> Floats:
    """Round ``x``, which is not negative and below 2^22, to the nearest integer, half away from zero."""
    whole: Floats = np.trunc(x + ALMOST_HALF)
    return whole


def code_by_step(a: Floats, step: Floats, qmax: F32) -> Floats:
    """The codes of the magnitudes ``a``, without signs: ``a`` times the rounded reciprocal of its step."""
    return code_by_inverse(a, np.where(step > 0, F32(1) / step, F32(0)), qmax)


def code_by_inverse(a: Floats, inverse: Floats, qmax: F32) -> Floats:
    """Round ``a * inverse`` to the nearest integer up to ``qmax``; NaN counts as ``qmax``."""
    x = a * inverse
    return round_half_away(np.where(x < qmax, x, qmax))


def round_to_half(x: Floats) -> NDArray[np.float16]:
    """Round ``x``, which is not negative, to half precision, nearest even, subnormals included, at most 65504."""
    half: NDArray[np.float16] = np.where(x < HALF_MAX, x, HALF_MAX).astype(np.float16)
    return half


def truncate_to_half(x: Floats) -> NDArray[np.float16]:
    """``x``, which is not negative, as the reference stores it: truncated, 0 below 2^-14, infinity from 2^16."""
    bits = x.view(np.uint32)
    code = np.where(bits < 0x47800000, (bits - 0x38000000) >> 13, 0x7C00)
    half: NDArray[np.float16] = np.where(bits < 0x38800000, 0, code).astype(np.uint16).view(np.float16)
    return half
