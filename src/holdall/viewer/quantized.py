"""The stored scales and codes of quantized tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.binary import kernels
from holdall.binary.kernels.ggml_reference import ggml_parts
from holdall.model.ggml import Blocks
from holdall.quant.encodings import BlockEncoding, FlatEncoding
from holdall.quant.methods import BLOCK, SUPER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.tensor import Tensor

__all__ = ["Quantized", "read_quantized"]

_READ = 1 << 18  # scales or codes at most: the first ones


@dataclass(frozen=True, slots=True)
class Quantized:
    """Scales and codes, the first ones of a large tensor; None where the type has none that stand alone."""

    text: str
    scales: NDArray[Any] | None
    codes: NDArray[Any] | None


def read_quantized(tensor: Tensor) -> Quantized | None:
    """What a quantized tensor stores; None for one that is not quantized."""
    if tensor.payload is None or not tensor.count:
        return None
    dtype = tensor.dtype
    if isinstance(dtype, Blocks):
        return _read_ggml(tensor, dtype)
    if isinstance(dtype, BlockEncoding):
        return _read_blocks(tensor, dtype)
    if isinstance(dtype, FlatEncoding):
        head, codes = dtype._regions(tensor.shape)
        scale, zero = dtype.scale_and_zero(tensor.payload.slice(*head))
        text = f"{dtype.method.bits} bits, one scale {scale:.6g}" + (f", zero point {zero:.6g}" if zero else "")
        data = tensor.payload.slice(codes[0], min(codes[1], codes[0] + _READ))
        return Quantized(text, None, _unpack(data, dtype.method.bits, tensor.count))
    scaling: Any = tensor.scaling
    if scaling is None:
        return None
    codes_shown = tensor.replace(shape=(tensor.count,))[: min(tensor.count, _READ)]
    return Quantized(
        f"{getattr(scaling, 'scheme', '')} scales beside the elements, axis {getattr(scaling, 'axis', None)}".strip(),
        np.asarray(getattr(scaling, "scale", ()), np.float64),
        np.asarray(codes_shown, np.float64),
    )


def _read_ggml(tensor: Tensor, kind: Blocks) -> Quantized:
    assert tensor.payload is not None
    count = min(tensor.payload.size // kind.block_bytes, _READ // kind.elements)
    text = f"blocks of {kind.elements} values in {kind.block_bytes} bytes"
    parts = ggml_parts(kind.id, tensor.payload.slice(0, count * kind.block_bytes))
    if parts is None:
        return Quantized(text, None, None)
    runs, length = parts.codes.shape[1:]
    text += f", a scale for {length} values" if runs > 1 else ""
    if parts.offsets is not None:
        text += ", less an offset" if parts.subtracts else ", and an offset"
    return Quantized(text, parts.scales.ravel(), parts.codes.ravel().astype(np.int16))


def _read_blocks(tensor: Tensor, kind: BlockEncoding) -> Quantized:
    assert tensor.payload is not None
    where, bits = kind.method.lay_out_blocks(tensor.shape), kind.method.bits
    rows = min(where.rows, max(1, _READ // where.blocks))
    each = where.supers or where.blocks  # stored scales of a row
    half = np.frombuffer(tensor.payload.slice(where.scales[0], where.scales[0] + 2 * rows * each), "<f2")
    scales = half.astype(np.float32).reshape(rows, each)
    if where.supers:  # which a byte of each block takes a part of, in 32nds
        subs = np.frombuffer(tensor.payload.slice(where.subs[0], where.subs[0] + rows * where.blocks), np.uint8)
        parts = (subs.reshape(rows, where.blocks) & 63).astype(np.float32) / np.float32(32)
        scales = np.repeat(scales, SUPER, axis=1)[:, : where.blocks] * parts
    stop = min(where.codes[1], where.codes[0] + min(_READ // BLOCK, rows * where.blocks) * kind.method.block_bytes)
    codes = _unpack(tensor.payload.slice(where.codes[0], stop), bits, rows * where.blocks * BLOCK)
    group = f" in super-blocks of {BLOCK * SUPER}" if where.supers else ""
    return Quantized(f"{bits} bits, blocks of {BLOCK} values{group}", scales.ravel(), codes)


def _unpack(data: memoryview, bits: int, count: int) -> NDArray[Any]:
    """The first ``count`` codes, or fewer if there are no more: in two's complement, low bits first."""
    if bits == 8:
        return np.frombuffer(data, np.int8)[:count].astype(np.int16)
    codes = np.empty(min(count, len(data) * 8 // bits), np.int8)
    kernels.unpack(data, 0, bits, len(codes), 1, codes)
    return codes.astype(np.int16)
