"""The quantization parameters of a version 2 tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from holdall.errors import ContentError
from holdall.format.oinf.layout import QUANT, align_up, pad

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["QuantParams", "decode", "encode", "find_breach", "stored_size"]

_SCHEMES = {1: "symmetric", 2: "asymmetric"}
_MODES = {1: "per_tensor", 2: "per_channel"}


@dataclass(frozen=True, slots=True)
class QuantParams:
    """Scale and zero point of a quantized tensor: real = scale * (stored - zero_point).

    With ``axis`` None the tensor has one scale; otherwise it has one scale for each index of that axis.

    >>> QuantParams(scale=[0.5]).scheme
    'symmetric'
    """

    scale: Sequence[float]
    zero_point: Sequence[int] | None = None
    axis: int | None = None
    scheme: Literal["symmetric", "asymmetric"] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _to_floats(self.scale))
        if self.zero_point is not None:
            object.__setattr__(self, "zero_point", _to_ints(self.zero_point))
        if self.scheme is None:
            object.__setattr__(self, "scheme", "symmetric" if self.zero_point is None else "asymmetric")
        if self.scheme not in _SCHEMES.values():
            raise ContentError(f"a scheme is symmetric or asymmetric, not {self.scheme!r}")
        if self.axis is not None and self.axis < 0:
            raise ContentError(f"a quant axis counts from 0 on, and is {self.axis}")

    def dequantize(self, values: NDArray[Any], shape: Sequence[int], start: int = 0) -> NDArray[Any]:
        """The float32 that stored elements stand for, computed in float64 and rounded once.

        ``values`` are flat elements of a tensor of ``shape``, the first of which is element ``start`` of it.

        >>> QuantParams.per_channel(0, [0.5, 2.0], [1, 0]).dequantize(np.int8([1, 2, 3, 4]), (2, 2)).tolist()
        [0.0, 0.5, 6.0, 8.0]
        """
        scale, zero = np.asarray(self.scale, np.float64), np.asarray(self.zero_point or (0,), np.float64)
        if self.axis is not None:
            run = prod(shape[self.axis + 1 :])
            channel = (start + np.arange(values.size)) // max(1, run) % max(1, shape[self.axis])
            scale, zero = scale[channel], zero[channel] if self.zero_point else zero
        with np.errstate(over="ignore", invalid="ignore"):  # scales may be infinite or NaN
            return ((values.astype(np.float64) - zero) * scale).astype(np.float32)

    @classmethod
    def per_tensor(cls, scale: float, zero_point: int | None = None) -> QuantParams:
        """One scale, and optionally one zero point, for the whole tensor."""
        return cls((scale,), None if zero_point is None else (zero_point,))

    @classmethod
    def per_channel(cls, axis: int, scale: Sequence[float], zero_point: Sequence[int] | None = None) -> QuantParams:
        """A scale, and optionally a zero point, for each index of ``axis``."""
        return cls(scale, zero_point, axis)

    @property
    def scale_mode(self) -> str:
        """ "per_tensor" or "per_channel"."""
        return "per_tensor" if self.axis is None else "per_channel"

    @property
    def zero_point_mode(self) -> str:
        """ "none", "per_tensor" or "per_channel"."""
        return "none" if self.zero_point is None else self.scale_mode


def _to_floats(values: Sequence[float] | float) -> tuple[float, ...]:
    wide = np.atleast_1d(np.asarray(values, np.float64))
    with np.errstate(over="ignore"):
        scales = wide.astype(np.float32)
    if wide.ndim > 1 or np.any(np.isinf(scales) & np.isfinite(wide)):
        raise ContentError("scales are numbers that f32 can hold, in one dimension")
    return tuple(scales.tolist())


def _to_ints(values: Sequence[int] | int) -> tuple[int, ...]:
    items = tuple(map(index, np.atleast_1d(np.asarray(values, object)).tolist()))
    if any(not -(1 << 31) <= v < 1 << 31 for v in items):
        raise ContentError("a zero point does not fit i32")
    return items


def stored_size(scale_count: int, zp_count: int) -> int:
    """Bytes of a quant payload, padding included."""
    return align_up(QUANT.size + 4 * scale_count + 4 * zp_count)


def find_breach(head: bytes, shape: tuple[int, ...]) -> str | None:
    """Find the first fault of a quant head for a tensor of ``shape``; None when it has none."""
    q = QUANT.read(head, 0)
    if q.reserved:
        return f"reserved is {q.reserved}, not 0"
    if q.scheme not in _SCHEMES:
        return f"scheme {q.scheme} is unknown"
    if q.scale_mode not in _MODES:
        return f"scale mode {q.scale_mode} is unknown"
    if q.zp_mode not in (0, q.scale_mode):
        known = q.zp_mode in _MODES
        return f"zero point mode {q.zp_mode} {'differs from the scale mode' if known else 'is unknown'}"
    if q.scheme == 1 and q.zp_mode:
        return "a symmetric scheme has no zero point"
    if q.scale_mode == 1 and (q.scale_axis, q.scale_count) != (0, 1):
        return f"a scale per tensor has axis 0 and count 1, not axis {q.scale_axis} and count {q.scale_count}"
    if q.scale_mode == 2 and q.scale_axis >= len(shape):
        return f"scale axis {q.scale_axis} does not exist in {len(shape)} dimensions"
    if q.scale_mode == 2 and q.scale_count != shape[q.scale_axis]:
        return f"{q.scale_count} scales for axis {q.scale_axis} of size {shape[q.scale_axis]}"
    expected = (q.scale_axis, q.scale_count) if q.zp_mode else (q.zp_axis, 0)
    if (q.zp_axis, q.zp_count) != expected:
        return f"zero point axis {q.zp_axis} and count {q.zp_count}; expected {expected[0]} and {expected[1]}"
    return None


def decode(data: bytes) -> QuantParams:
    """Decode the parameters in a payload for which :func:`find_breach` returns None."""
    q = QUANT.read(data, 0)
    scale = np.frombuffer(data, "<f4", q.scale_count, QUANT.size)
    zero_point = np.frombuffer(data, "<i4", q.zp_count, QUANT.size + 4 * q.scale_count)
    return QuantParams(
        scale=scale.tolist(),
        zero_point=zero_point.tolist() if q.zp_mode else None,
        axis=q.scale_axis if q.scale_mode == 2 else None,
        scheme=_SCHEMES[q.scheme],  # type: ignore[arg-type]
    )


def encode(quant: QuantParams, name: str, shape: tuple[int, ...]) -> bytes:
    """Encode the payload for the parameters of the tensor ``name``."""
    axis, zero_point = quant.axis, quant.zero_point or ()
    head = QUANT.pack(
        scheme=1 if quant.scheme == "symmetric" else 2,
        scale_mode=1 if axis is None else 2,
        zp_mode=0 if quant.zero_point is None else (1 if axis is None else 2),
        reserved=0,
        scale_axis=axis or 0,
        scale_count=len(quant.scale),
        zp_axis=axis or 0 if quant.zero_point is not None else 0,
        zp_count=len(zero_point),
    )
    wrong = find_breach(head, shape)
    if wrong:
        raise ContentError(f"oinf: quant of tensor {name!r}: {wrong}")
    data = head + np.asarray(quant.scale, "<f4").tobytes() + np.asarray(zero_point, "<i4").tobytes()
    return pad(data)
