"""int8 and int4: one scale for the whole tensor, and for activations one zero point.

Weights are symmetric: ``scale = top / qmax``. Mode ``best`` tries ``top / (qmax * (1 + k/16))`` for k = 0..24, adds up
the squared errors of pieces of 65,536 values in order (float64), and keeps the first of the least.

Activations map ``low..high``, widened to hold 0, onto all codes: ``scale = (high - low) / (2^bits - 1)``, and the zero
point is the whole number nearest to the code of 0. Bounds that the caller gives are used as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from holdall.quant.engine import dequantize_flat, quantize_flat
from holdall.quant.methods import ACTIVATIONS, ALIGN, Method
from holdall.sizes import tuned

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FlatScale", "flat_scale"]

_TRIES = 25
_PIECE = tuned(1 << 16)
F32 = np.float32


class FlatScale:
    """Scale and zero point of a tensor, the values cut to ``low..high``, and what follows from them."""

    def __init__(self, method: Method, domain: int, scale: float, zero: float, clip: tuple[float, float]) -> None:
        self.method = method
        self.domain = domain
        self.scale = float(F32(scale))
        self.zero = float(F32(zero))
        self.clip = clip
        with np.errstate(divide="ignore", over="ignore"):
            inverse = float(F32(1) / F32(scale)) if self.scale > 0 else 0.0
        self.inverse = inverse if np.isfinite(inverse) else 0.0  # such a scale cannot tell its values from 0
        self.lowest = -method.qmax - (1 if domain == ACTIVATIONS else 0)

    def head(self) -> bytes:
        """What lies before the codes."""
        head = struct.pack("<f", self.scale).ljust(ALIGN, b"\0")
        return head + struct.pack("<f", self.zero).ljust(ALIGN, b"\0") if self.domain == ACTIVATIONS else head

    def codes(self, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        """The packed codes of a flat run of values."""
        out = np.empty((values.size * self.method.bits + 7) // 8, np.uint8)
        bits, (low, high) = self.method.bits, self.clip
        quantize_flat(bits, values.size, self.inverse, self.zero, self.lowest, values, low, high, out)
        return out

    def error(self, values: NDArray[np.float32]) -> float:
        """The squared error of a flat run of values."""
        decoded = np.empty_like(values)
        dequantize_flat(self.method.bits, values.size, self.scale, self.zero, self.codes(values), decoded)
        miss = np.subtract(np.clip(values, F32(self.clip[0]), F32(self.clip[1])), decoded, dtype=np.float64)
        return float(np.square(miss).sum())


def flat_scale(
    method: Method,
    domain: int,
    mode: str,
    clip: tuple[float, float],
    given: bool,
    blocks: Callable[[], Iterable[NDArray[np.float32]]],
) -> FlatScale:
    """The scale of a tensor whose clip bounds are ``clip`` (by the caller, if ``given``) and values ``blocks()``."""
    low, high = clip
    if domain == ACTIVATIONS:
        if not given:
            low, high = min(low, 0.0), max(high, 0.0)
        scale = float(F32((high - low) / ((1 << method.bits) - 1)))
        if scale == 0:  # one value only: it is its own scale
            return FlatScale(method, domain, abs(high), 0.0, clip)
        return FlatScale(method, domain, scale, round(-(1 << (method.bits - 1)) - low / scale), clip)
    top = max(abs(low), abs(high))
    plain = FlatScale(method, domain, float(F32(top) / F32(method.qmax)), 0.0, clip)
    if mode != "best" or plain.scale == 0:
        return plain
    steps = [F32(top) / (F32(method.qmax) * F32(1 + number / 16)) for number in range(_TRIES)]
    tries = [FlatScale(method, domain, float(step), 0.0, clip) for step in steps]
    errors = [0.0] * len(tries)
    for block in blocks():
        flat = block.reshape(-1)
        for start in range(0, flat.size, _PIECE):
            piece = flat[start : start + _PIECE]
            errors = [error + each.error(piece) for error, each in zip(errors, tries, strict=True)]
    return tries[errors.index(min(errors))]
