"""The quantization kernels in numpy. They are the definition: the C kernels give the same bits.

All arithmetic is float32, with one rounding for each operation. Sums over a block run over its 32 values in order, sums
over a super-block over its 8 blocks in order. ``[i, b]`` below is value ``i`` of block ``b``.

Modes of :func:`quantize_blocks`:

REFERENCE  as the reference quantizer: half-precision scales are truncated, codes are made by the scales before that.
IEEE       scales are rounded to nearest even, and codes are made by the scale that decodes them.
BEST       scales minimize the squared error, as search.py describes; never worse than IEEE.
GIVEN      the scales are given: only the codes are made, as in IEEE and BEST.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from holdall.base.buffer_sizes import buffer_size
from holdall.binary.kernels.buffers import array_of, check_size, view_of
from holdall.quant import search
from holdall.quant.arithmetic import (
    ALMOST_HALF,
    F32,
    Floats,
    code_by_step,
    round_half_away,
    round_to_half,
    truncate_to_half,
)

if TYPE_CHECKING:
    from holdall.binary.kernels.buffers import Bytes

__all__ = ["BEST", "GIVEN", "IEEE", "REFERENCE", "dequantize_blocks", "dequantize_flat", "quantize_blocks"]
__all__ += ["quantize_flat"]

REFERENCE, IEEE, BEST, GIVEN = range(4)

BLOCK, SUPER = 32, 8
PIECE = buffer_size(1 << 16)  # values at a time, so that temporary arrays stay small
_BITS = {0: (8, 4), SUPER: (6, 4, 3, 2)}


def _view_as(buffer: Bytes, dtype: str, count: int, what: str, *, writable: bool = False) -> NDArray[Any]:
    """Return ``buffer`` as an array; ValueError unless it has exactly ``count`` elements, which ``what`` names."""
    array = array_of(buffer, "u1", writable=writable)
    size = count * np.dtype(dtype).itemsize
    if array.size != size:
        raise ValueError(f"{count} {what} take {size} bytes, not {array.size}")
    return array.view(dtype)


def _count_blocks(bits: int, group: int, rows: int, cols: int) -> tuple[int, int]:
    """Count blocks and super-blocks of a row; ValueError for numbers that no tensor can have."""
    check_size(bits, group, rows, cols)
    if bits not in _BITS.get(group, ()):
        raise ValueError(f"no method of {bits} bits in super-blocks of {group}")
    if cols < 1 or rows * (cols + BLOCK * SUPER) * 4 > sys.maxsize:
        raise ValueError(f"{rows} rows of {cols} columns")
    blocks = -(-cols // BLOCK)
    return blocks, -(-blocks // SUPER) if group else 0


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

    Returns the largest magnitude after the cut. If that is infinite or NaN, the regions are undefined.

    ``group`` is 0 (q*) or 8 (k*). ``importance`` is empty or has one weight (finite, not negative) for each column;
    only BEST uses it.
    """
    blocks, supers = _count_blocks(bits, group, rows, cols)
    if mode not in range(4):
        raise ValueError(f"no mode {mode}")
    v = _view_as(values, "<f4", rows * cols, "values").reshape(rows, cols)
    w = _view_as(importance, "<f4", cols, "weights") if view_of(importance).nbytes else None
    out_scales = _view_as(scales, "<f2", rows * (supers or blocks), "scales", writable=True).reshape(rows, -1)
    out_subs = _view_as(subs, "u1", rows * blocks if group else 0, "sub-scales", writable=True)
    out_codes = _view_as(codes, "u1", rows * blocks * 4 * bits, "code bytes", writable=True).reshape(rows, blocks, -1)
    out_subs = out_subs.reshape(rows, -1)
    step = max(1, PIECE // cols)
    largest = [0.0]
    with np.errstate(all="ignore"):  # what infinities and NaN become is defined below
        for start in range(0, rows, step):
            part = slice(start, start + step)
            cut = np.clip(v[part], F32(low), F32(high))
            _quantize_rows(bits, bool(group), mode, cut, w, out_scales[part], out_subs[part], out_codes[part])
            largest.append(np.abs(cut).max())
    return float(np.max(largest))


def _to_lanes(values: Floats, blocks: int) -> Floats:
    """Return rows as columns of blocks, ``[32, rows * blocks]``; the padding after the last column is 0."""
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
    """Quantize some rows into their regions; in mode GIVEN the scales and sub-scales are input."""
    rows, blocks = codes.shape[:2]
    lanes_per_row = scales.shape[1] * SUPER if super_blocks else blocks
    v = _to_lanes(values, lanes_per_row)
    a = np.abs(v)
    weights = None
    if importance is not None:
        weights = _to_lanes(np.broadcast_to(importance, values.shape).astype(np.float32), lanes_per_row)
    qmax = F32((1 << (bits - 1)) - 1)

    if mode == GIVEN:
        step = scales.astype(np.float32).reshape(-1)
        if super_blocks:
            u = np.zeros((rows, lanes_per_row), np.float32)
            u[:, :blocks] = subs & 63
            step = (np.repeat(step, SUPER) * (u.reshape(-1) / F32(32))).astype(np.float32)
    elif super_blocks:
        step, half, u = _find_super_scales(mode, a, weights, qmax)
        scales[...] = half.reshape(scales.shape)
        subs[...] = u.reshape(rows, lanes_per_row)[:, :blocks].astype(np.uint8)
    else:
        step, half = _find_block_scales(mode, a, weights, qmax)
        scales[...] = half.reshape(scales.shape)

    q = np.copysign(code_by_step(a, step, qmax), v).astype(np.int8)
    if mode == REFERENCE:
        # A scale this small has no finite reciprocal. The reference then writes the lowest code everywhere, except in
        # the padding of its 4-bit blocks.
        lost = (step > 0) & np.isinf(F32(1) / step)
        lowest = np.full_like(q, -int(qmax))
        if bits == 4 and not super_blocks:
            lowest *= _to_lanes(np.ones_like(values), lanes_per_row).astype(np.int8)
        q = np.where(lost, lowest, q)
    stored = q.T.reshape(rows, lanes_per_row, BLOCK)[:, :blocks]
    digits = stored[..., None].view(np.uint8) >> np.arange(bits, dtype=np.uint8) & 1
    codes[...] = np.packbits(digits.reshape(rows, blocks, -1), axis=-1, bitorder="little")


def _find_block_scales(mode: int, a: Floats, weights: Floats | None, qmax: F32) -> tuple[Floats, NDArray[np.float16]]:
    """Find for q* the scale that makes the codes of each block, and the one stored."""
    scale = a.max(axis=0) / qmax
    if mode == REFERENCE:
        return scale, truncate_to_half(scale)
    step = round_to_half(scale).astype(np.float32)
    if mode == BEST:
        step = search.find_block_scales(a, weights, qmax, step)
    return step, step.astype(np.float16)


def _find_super_scales(
    mode: int, a: Floats, weights: Floats | None, qmax: F32
) -> tuple[Floats, NDArray[np.float16], Floats]:
    """Find for k* the scale that makes the codes of each block, the super-scales stored, and the sub-scales."""
    scale = a.max(axis=0) / qmax
    top = scale.reshape(-1, SUPER).max(axis=1)
    wide = np.repeat(top, SUPER)
    u = np.clip(round_half_away(scale / wide * F32(32)), F32(1), F32(63))
    u = np.where(scale > 0, u, F32(0))
    if mode == REFERENCE:
        return wide * (u / F32(32)), truncate_to_half(top), u
    top = round_to_half(top).astype(np.float32)
    if mode == BEST:
        top, u = search.find_super_scales(a, weights, qmax, top, u)
    return np.repeat(top, SUPER) * (u / F32(32)), top.astype(np.float16), u


def dequantize_blocks(
    bits: int, group: int, rows: int, cols: int, scales: Bytes, subs: Bytes, codes: Bytes, out: Bytes, /
) -> None:
    """Decode rows from their three regions to float32.

    A scale, super-scale or sub-scale of zero makes its block +0, whatever the codes and the other scale.
    """
    blocks, supers = _count_blocks(bits, group, rows, cols)
    half = _view_as(scales, "<f2", rows * (supers or blocks), "scales").reshape(rows, -1)
    u = _view_as(subs, "u1", rows * blocks if group else 0, "sub-scales").reshape(rows, -1)
    packed = _view_as(codes, "u1", rows * blocks * 4 * bits, "code bytes").reshape(rows, blocks, -1)
    values = _view_as(out, "<f4", rows * cols, "values", writable=True).reshape(rows, cols)
    step = max(1, PIECE // cols)
    with np.errstate(all="ignore"):
        for start in range(0, rows, step):
            part = slice(start, start + step)
            scale = half[part].astype(np.float32)
            if group:
                sub = (u[part] & 63).astype(np.float32)
                scale = np.where(sub == 0, F32(0), np.repeat(scale, SUPER, axis=1)[:, :blocks] * (sub / F32(32)))
            q = _unpack(packed[part], bits).astype(np.float32)
            wide = np.where(scale[..., None] == 0, F32(0), q * scale[..., None])
            values[part] = wide.reshape(len(wide), -1)[:, :cols]


def _unpack(packed: NDArray[Any], bits: int) -> NDArray[np.int8]:
    """Unpack codes in two's complement from streams of ``bits`` bits along the last axis."""
    weights = (1 << np.arange(bits)).astype(np.int8)
    weights[-1] = -1 << (bits - 1)
    digits = np.unpackbits(packed, axis=-1, bitorder="little").view(np.int8)
    codes: NDArray[np.int8] = digits.reshape(*packed.shape[:-1], -1, bits) @ weights
    return codes


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
    """Encode ``value * inverse + zero``, rounded half away from zero and held in ``lowest..2^(bits-1)-1``.

    Four-bit codes are one stream over all values, low nibble first; after an odd number the last nibble is 0.
    """
    _check_flat(bits, count)
    v = _view_as(values, "<f4", count, "values")
    out = _view_as(codes, "u1", (count * bits + 7) // 8, "code bytes", writable=True)
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
    """Decode ``scale * (code - zero)`` for every code, in float32."""
    _check_flat(bits, count)
    packed = _view_as(codes, "u1", (count * bits + 7) // 8, "code bytes")
    values = _view_as(out, "<f4", count, "values", writable=True)
    with np.errstate(all="ignore"):
        for start in range(0, count, PIECE):
            stop = min(start + PIECE, count)
            q = _unpack(packed[start * bits // 8 : (stop * bits + 7) // 8], bits)[: stop - start]
            values[start:stop] = F32(scale) * (q.astype(np.float32) - F32(zero))


def _check_flat(bits: int, count: int) -> None:
    check_size(bits, count)
    if bits not in (4, 8):
        raise ValueError(f"bits must be 4 or 8, not {bits}")
    if count > sys.maxsize // 8:
        raise ValueError(f"{count} values")
