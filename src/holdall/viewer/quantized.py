"""The stored scales and codes of quantized tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.model.ggml import Blocks
from holdall.quant.encodings import BlockEncoding, FlatEncoding

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.tensor import Tensor

__all__ = ["Quantized", "read_quantized"]

_READ = 1 << 18  # scales or codes at most: the first ones
# Where the f16 scale of a block lies, by the type's name.
_GGML_SCALES = {
    **dict.fromkeys(("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K"), 0),
    "Q2_K": 80, "Q3_K": 108, "Q6_K": 208,
}  # fmt: skip
# Where the codes lie, how many bits each has, and what is subtracted.
_GGML_CODES = {"Q4_0": (2, 4, 8), "Q4_1": (4, 4, 0), "Q8_0": (2, 8, 0)}


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
    data = np.frombuffer(tensor.payload.slice(0, count * kind.block_bytes), np.uint8).reshape(count, kind.block_bytes)
    scales = codes = None
    if kind.title in _GGML_SCALES and count:
        at = _GGML_SCALES[kind.title]
        scales = np.ascontiguousarray(data[:, at : at + 2]).view("<f2").astype(np.float32).ravel()
    if kind.title in _GGML_CODES and count:
        at, bits, less = _GGML_CODES[kind.title]
        stored = np.ascontiguousarray(data[:, at:])
        codes = (
            stored.view(np.int8).astype(np.int16)
            if bits == 8
            else np.concatenate([stored & 15, stored >> 4]).astype(np.int16) - less
        )
    return Quantized(f"blocks of {kind.elements} values in {kind.block_bytes} bytes", scales, codes)


def _read_blocks(tensor: Tensor, kind: BlockEncoding) -> Quantized:
    assert tensor.payload is not None
    where = kind.method.lay_out_blocks(tensor.shape)
    stop = min(where.scales[1], where.scales[0] + 2 * _READ)
    scales = np.frombuffer(tensor.payload.slice(where.scales[0], stop), "<f2").astype(np.float32)
    data = tensor.payload.slice(where.codes[0], min(where.codes[1], where.codes[0] + _READ))
    group = " in super-blocks of 256" if where.supers else ""
    return Quantized(
        f"{kind.method.bits} bits, blocks of 32 values{group}", scales, _unpack(data, kind.method.bits, tensor.count)
    )


def _unpack(data: memoryview, bits: int, count: int) -> NDArray[Any] | None:
    """Signed codes of 4 or 8 bits, the low half of a byte first."""
    stored = np.frombuffer(data, np.uint8)
    if bits == 8:
        return stored.view(np.int8)[:count].astype(np.int16)
    if bits != 4:
        return None
    halves = np.stack([stored & 15, stored >> 4], axis=1).ravel()[:count].astype(np.int16)
    return np.where(halves > 7, halves - 16, halves)
