"""int8 and int4: one scale for the whole tensor, and for activations one zero point.

Weights are symmetric: ``scale = top / qmax``. Mode ``best`` tries ``top / (qmax * (1 + k/16))`` for k = 0..24, adds up
the squared errors of pieces of 65,536 values in order (float64), and keeps the first minimum.

Activations map ``low..high``, widened to hold 0, onto all codes: ``scale = (high - low) / (2^bits - 1)``, and the zero
point is the whole number nearest to the code of 0. Bounds that the caller gives are not widened.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.quant.engine import dequantize_flat, quantize_flat
from holdall.quant.methods import ACTIVATIONS, ALIGN, Method

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FLAT_PIECE", "FlatScale", "choose_scale"]

_TRIES = 25
_PIECE = buffer_size(1 << 16)
FLAT_PIECE = 4 * _PIECE  # values of one job, whose squared errors are added up in pieces that do not depend on it
F32 = np.float32

Errors: TypeAlias = "list[list[float]]"
MapFloats: TypeAlias = "Callable[[Callable[[NDArray[np.float32], int], Errors]], Iterable[Errors]]"


class FlatScale:
    """Scale and zero point of a tensor, whose values are cut to ``clip`` before they are encoded."""

    def __init__(self, method: Method, domain: int, scale: float, zero: float, clip: tuple[float, float]) -> None:
        self.method = method
        self.domain = domain
        self.scale = float(F32(scale))
        self.zero = float(F32(zero))
        self.clip = clip
        with np.errstate(divide="ignore", over="ignore"):
            inverse = float(F32(1) / F32(scale)) if self.scale > 0 else 0.0
        self.inverse = inverse if np.isfinite(inverse) else 0.0  # the reciprocal overflowed: encode zeros
        self.lowest = -method.qmax - (1 if domain == ACTIVATIONS else 0)

    def encode_head(self) -> bytes:
        """Encode the bytes before the codes."""
        head = struct.pack("<f", self.scale).ljust(ALIGN, b"\0")
        return head + struct.pack("<f", self.zero).ljust(ALIGN, b"\0") if self.domain == ACTIVATIONS else head

    def encode_into(self, values: NDArray[np.float32], out: memoryview | NDArray[np.uint8]) -> None:
        """Encode a flat array as packed codes at the beginning of ``out``."""
        bits, (low, high) = self.method.bits, self.clip
        codes = out[: (values.size * bits + 7) // 8]
        quantize_flat(bits, values.size, self.inverse, self.zero, self.lowest, values, low, high, codes)

    def measure_error(self, values: NDArray[np.float32]) -> float:
        """Measure the squared error of a flat array."""
        codes, decoded = np.empty(values.size, np.uint8), np.empty_like(values)
        self.encode_into(values, codes)
        stored = codes[: (values.size * self.method.bits + 7) // 8]
        dequantize_flat(self.method.bits, values.size, self.scale, self.zero, stored, decoded)
        miss = np.subtract(np.clip(values, F32(self.clip[0]), F32(self.clip[1])), decoded, dtype=np.float64)
        return float(np.square(miss, out=miss).sum())


def choose_scale(
    method: Method,
    domain: int,
    mode: str,
    clip: tuple[float, float],
    given: bool,
    map_floats: MapFloats,
) -> FlatScale:
    """Choose the scale of the values, cut to ``clip``; ``given``: the caller stated these bounds.

    ``map_floats(work)`` yields ``work(values, first)`` for all values, some at a time and in order.
    """
    low, high = clip
    if domain == ACTIVATIONS:
        if not given:
            low, high = min(low, 0.0), max(high, 0.0)
        scale = float(F32((high - low) / ((1 << method.bits) - 1)))
        if scale == 0:  # the bounds are equal: their magnitude is the scale
            return FlatScale(method, domain, abs(high), 0.0, clip)
        return FlatScale(method, domain, scale, round(-(1 << (method.bits - 1)) - low / scale), clip)
    top = max(abs(low), abs(high))
    plain = FlatScale(method, domain, float(F32(top) / F32(method.qmax)), 0.0, clip)
    if mode != "best" or plain.scale == 0:
        return plain
    steps = [F32(top) / (F32(method.qmax) * F32(1 + number / 16)) for number in range(_TRIES)]
    tries = [FlatScale(method, domain, float(step), 0.0, clip) for step in steps]
    errors = [0.0] * len(tries)
    for pieces in map_floats(lambda values, _: _measure_pieces(tries, values.reshape(-1))):
        for piece in pieces:
            errors = [error + more for error, more in zip(errors, piece, strict=True)]
    return tries[errors.index(min(errors))]


def _measure_pieces(tries: Sequence[FlatScale], flat: NDArray[np.float32]) -> list[list[float]]:
    """Measure the squared error of each try, piece by piece: they are added in order, whatever thread made them."""
    pieces = (flat[start : start + _PIECE] for start in range(0, flat.size, _PIECE))
    return [[each.measure_error(piece) for each in tries] for piece in pieces]
