"""The readable twins of the quantization kernels, and by that their definition: same bits as the C ones.

All arithmetic is float32, one rounding an operation. Sums over a block run over its 32 values in order, sums over a
super-block over its 8 blocks in order. ``[i, b]`` below is value ``i`` of block ``b``.

Modes of :func:`quantize_blocks`:

REFERENCE  what the reference quantizer writes: truncated half-precision scales, codes by the untruncated ones.
IEEE       the same with scales rounded to nearest even, and codes by the scale that decodes them.
BEST       scales that minimize the squared error, as search.py describes; never worse than IEEE.
GIVEN      the scales are already there: only the codes are made, as IEEE and BEST make them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from holdall.kernels.buffers import array_of, check_size, view_of
from holdall.quant import search
from holdall.quant.arithmetic import ALMOST_HALF, F32, Floats, half_to_nearest, half_truncated, magnitudes, rounded
from holdall.sizes import tuned

if TYPE_CHECKING:
    from holdall.kernels.buffers import Bytes

__all__ = [
    "BEST",
    "GIVEN",
    "IEEE",
    "REFERENCE",
    "dequantize_blocks",
    "dequantize_flat",
    "quantize_blocks",
    "quantize_flat",
]

REFERENCE, IEEE, BEST, GIVEN = range(4)

BLOCK, SUPER = 32, 8
PIECE = tuned(1 << 16)  # values treated at a time, so that temporaries stay small
_BITS = {0: (8, 4), SUPER: (6, 4, 3, 2)}


# Buffers


def _array(buffer: Bytes, dtype: str, count: int, what: str, *, writable: bool = False) -> NDArray[Any]:
    array = array_of(buffer, "u1", writable=writable)
    size = count * np.dtype(dtype).itemsize
    if array.size != size:
        raise ValueError(f"{count} {what} take {size} bytes, not {array.size}")
    return array.view(dtype)


def _geometry(bits: int, group: int, rows: int, cols: int) -> tuple[int, int]:
    """Blocks and super-blocks of a row, once the numbers make sense."""
    check_size(bits, group, rows, cols)
    if bits not in _BITS.get(group, ()):
        raise ValueError(f"no method of {bits} bits in super-blocks of {group}")
    if cols < 1 or rows * (cols + BLOCK * SUPER) * 4 > sys.maxsize:
        raise ValueError(f"{rows} rows of {cols} columns")
    blocks = -(-cols // BLOCK)
    return blocks, -(-blocks // SUPER) if group else 0


# Quantizing


def quantize_blocks(
    bits: int,
    group: int,
    mode: int,
    rows: int,
    cols: int,
    values: Bytes,
    low: float,
    high: float,
    importance: Bytes,
    scales: Bytes,
    subs: Bytes,
    codes: Bytes,
    /,
) -> float:
    """Quantize float32 ``values``, cut to ``low..high``, into the three regions of their rows.

    Returns the largest magnitude after the cut. Values must be finite: if they are not the regions are worth nothing,
    and the magnitude says so, being infinite or NaN.

    ``group`` is 0 (q*) or 8 (k*). ``importance`` is empty or one weight (finite, not negative) a column; only BEST
    looks at it.
    """
    blocks, supers = _geometry(bits, group, rows, cols)
    if mode not in range(4):
        raise ValueError(f"no mode {mode}")
    v = _array(values, "<f4", rows * cols, "values").reshape(rows, cols)
    w = _array(importance, "<f4", cols, "weights") if view_of(importance).nbytes else None
    out_scales = _array(scales, "<f2", rows * (supers or blocks), "scales", writable=True).reshape(rows, -1)
    out_subs = _array(subs, "u1", rows * blocks if group else 0, "sub-scales", writable=True)
    out_codes = _array(codes, "u1", rows * blocks * 4 * bits, "code bytes", writable=True).reshape(rows, blocks, -1)
    out_subs = out_subs.reshape(rows, -1)
    step = max(1, PIECE // cols)
    largest = [0.0]
    with np.errstate(all="ignore"):  # infinities and NaNs have their defined ways below
        for start in range(0, rows, step):
            part = slice(start, start + step)
            cut = np.clip(v[part], F32(low), F32(high))
            _quantize_rows(bits, bool(group), mode, cut, w, out_scales[part], out_subs[part], out_codes[part])
            largest.append(np.abs(cut).max())
    return float(np.max(largest))


def _lanes(values: Floats, blocks: int) -> Floats:
    """Rows as columns of blocks, ``[32, rows * blocks]``; what lies beyond the last column is 0."""
    padded = np.zeros((values.shape[0], blocks * BLOCK), np.float32)
    padded[:, : values.shape[1]] = values
    return np.ascontiguousarray(padded.reshape(-1, BLOCK).T)


def _quantize_rows(
    bits: int,
    super_blocks: bool,
    mode: int,
    values: Floats,
    importance: Floats | None,
    scales: NDArray[Any],
    subs: NDArray[Any],
    codes: NDArray[Any],
) -> None:
    rows, blocks = codes.shape[:2]
    lanes_per_row = scales.shape[1] * SUPER if super_blocks else blocks
    v = _lanes(values, lanes_per_row)
    a = np.abs(v)
    weights = None
    if importance is not None:
        weights = _lanes(np.broadcast_to(importance, values.shape).astype(np.float32), lanes_per_row)
    qmax = F32((1 << (bits - 1)) - 1)

    if mode == GIVEN:
        step = scales.astype(np.float32).reshape(-1)
        if super_blocks:
            u = np.zeros((rows, lanes_per_row), np.float32)
            u[:, :blocks] = subs & 63
            step = (np.repeat(step, SUPER) * (u.reshape(-1) / F32(32))).astype(np.float32)
    elif super_blocks:
        step, half, u = _super_scales(mode, a, weights, qmax)
        scales[...] = half.reshape(scales.shape)
        subs[...] = u.reshape(rows, lanes_per_row)[:, :blocks].astype(np.uint8)
    else:
        step, half = _block_scales(mode, a, weights, qmax)
        scales[...] = half.reshape(scales.shape)

    q = np.copysign(magnitudes(a, step, qmax), v).astype(np.int8)
    if mode == REFERENCE:
        # A scale this small has no finite reciprocal; the reference then writes the lowest code everywhere, only its
        # 4-bit blocks leave the padding alone.
        lost = (step > 0) & np.isinf(F32(1) / step)
        lowest = np.full_like(q, -int(qmax))
        if bits == 4 and not super_blocks:
            lowest *= _lanes(np.ones_like(values), lanes_per_row).astype(np.int8)
        q = np.where(lost, lowest, q)
    stored = q.T.reshape(rows, lanes_per_row, BLOCK)[:, :blocks]
    digits = stored[..., None].view(np.uint8) >> np.arange(bits, dtype=np.uint8) & 1
    codes[...] = np.packbits(digits.reshape(rows, blocks, -1), axis=-1, bitorder="little")


def _block_scales(mode: int, a: Floats, weights: Floats | None, qmax: F32) -> tuple[Floats, NDArray[np.float16]]:
    """For q*: the scale that makes the codes of each block, and the one stored."""
    scale = a.max(axis=0) / qmax
    if mode == REFERENCE:
        return scale, half_truncated(scale)
    step = half_to_nearest(scale).astype(np.float32)
    if mode == BEST:
        step = search.block_scales(a, weights, qmax, step)
    return step, step.astype(np.float16)


def _super_scales(
    mode: int, a: Floats, weights: Floats | None, qmax: F32
) -> tuple[Floats, NDArray[np.float16], Floats]:
    """For k*: the scale that makes the codes of each block, the super-scales stored, and the sub-scales."""
    scale = a.max(axis=0) / qmax
    top = scale.reshape(-1, SUPER).max(axis=1)
    wide = np.repeat(top, SUPER)
    u = np.clip(rounded(scale / wide * F32(32)), F32(1), F32(63))
    u = np.where(scale > 0, u, F32(0))
    if mode == REFERENCE:
        return wide * (u / F32(32)), half_truncated(top), u
    top = half_to_nearest(top).astype(np.float32)
    if mode == BEST:
        top, u = search.super_scales(a, weights, qmax, top, u)
    return np.repeat(top, SUPER) * (u / F32(32)), top.astype(np.float16), u


# Dequantizing


def dequantize_blocks(
    bits: int, group: int, rows: int, cols: int, scales: Bytes, subs: Bytes, codes: Bytes, out: Bytes, /
) -> None:
    """The float32 values of rows from their three regions. A scale of zero makes its block +0, whatever the codes."""
    blocks, supers = _geometry(bits, group, rows, cols)
    half = _array(scales, "<f2", rows * (supers or blocks), "scales").reshape(rows, -1)
    u = _array(subs, "u1", rows * blocks if group else 0, "sub-scales").reshape(rows, -1)
    packed = _array(codes, "u1", rows * blocks * 4 * bits, "code bytes").reshape(rows, blocks, -1)
    values = _array(out, "<f4", rows * cols, "values", writable=True).reshape(rows, cols)
    step = max(1, PIECE // cols)
    with np.errstate(all="ignore"):
        for start in range(0, rows, step):
            part = slice(start, start + step)
            scale = half[part].astype(np.float32)
            if group:
                scale = np.repeat(scale, SUPER, axis=1)[:, :blocks] * ((u[part] & 63).astype(np.float32) / F32(32))
            q = _unpacked(packed[part], bits).astype(np.float32)
            wide = np.where(scale[..., None] == 0, F32(0), q * scale[..., None])
            values[part] = wide.reshape(len(wide), -1)[:, :cols]


def _unpacked(packed: NDArray[Any], bits: int) -> NDArray[np.int8]:
    weights = (1 << np.arange(bits)).astype(np.int8)
    weights[-1] = -1 << (bits - 1)
    digits = np.unpackbits(packed, axis=-1, bitorder="little").view(np.int8)
    codes: NDArray[np.int8] = digits.reshape(*packed.shape[:-1], -1, bits) @ weights
    return codes


# One scale for the tensor


def quantize_flat(
    bits: int,
    count: int,
    inverse: float,
    zero: float,
    lowest: int,
    values: Bytes,
    low: float,
    high: float,
    codes: Bytes,
    /,
) -> None:
    """Codes of ``value * inverse + zero``, rounded half away from zero and held in ``lowest..2^(bits-1)-1``.

    Four-bit codes are one stream over all values, low nibble first; an odd one leaves its last nibble 0.
    """
    _check_flat(bits, count)
    v = _array(values, "<f4", count, "values")
    out = _array(codes, "u1", (count * bits + 7) // 8, "code bytes", writable=True)
    top = (1 << (bits - 1)) - 1
    with np.errstate(all="ignore"):
        for start in range(0, count, PIECE):
            x = np.clip(v[start : start + PIECE], F32(low), F32(high)) * F32(inverse) + F32(zero)
            x = np.clip(x, F32(lowest), F32(top))
            q = np.trunc(x + np.copysign(ALMOST_HALF, x)).astype(np.int8).view(np.uint8)
            if bits == 4:
                q = np.append(q, np.zeros(q.size % 2, np.uint8)) & np.uint8(15)
                q = q[0::2] | q[1::2] << np.uint8(4)
            begin = start * bits // 8
            out[begin : begin + q.size] = q


def dequantize_flat(bits: int, count: int, scale: float, zero: float, codes: Bytes, out: Bytes, /) -> None:
    """``scale * (code - zero)`` of every code, in float32."""
    _check_flat(bits, count)
    packed = _array(codes, "u1", (count * bits + 7) // 8, "code bytes")
    values = _array(out, "<f4", count, "values", writable=True)
    with np.errstate(all="ignore"):
        for start in range(0, count, PIECE):
            stop = min(start + PIECE, count)
            q = _unpacked(packed[start * bits // 8 : (stop * bits + 7) // 8], bits)[: stop - start]
            values[start:stop] = F32(scale) * (q.astype(np.float32) - F32(zero))


def _check_flat(bits: int, count: int) -> None:
    check_size(bits, count)
    if bits not in (4, 8):
        raise ValueError(f"bits must be 4 or 8, not {bits}")
    if count > sys.maxsize // 8:
        raise ValueError(f"{count} values")
