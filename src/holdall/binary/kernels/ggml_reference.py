"""The Python twin of the C kernel for ggml blocks.

A small block holds 32 values (``_q2_0``: 64), a large one (``_K``) eight chunks of 32. Each function below reads the
scales, codes and offsets of one type; a value is ``scale * code``, plus or minus an offset where the type has one, and
each operation is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from holdall.base.buffer_sizes import buffer_size
from holdall.binary.kernels.buffers import array_of, check_size

if TYPE_CHECKING:
    from holdall.binary.kernels.buffers import Bytes

__all__ = ["GgmlParts", "ggml_decode", "ggml_parts"]

_PIECE = buffer_size(1 << 12)  # blocks decoded at a time, so that temporaries stay small

_PAIRS = np.array([0, 2, 4, 6], np.uint8)[:, None]
_NIBBLES = np.array([0, 4], np.uint8)[:, None]
_BITS = np.arange(8, dtype=np.uint8)[:, None]


@dataclass(frozen=True, slots=True)
class GgmlParts:
    """What blocks store: each scale, and each offset, belongs to a run of codes. All have three axes."""

    scales: NDArray[Any]  # blocks, runs, 1
    codes: NDArray[Any]  # blocks, runs, codes of a run
    offsets: NDArray[Any] | None = None
    subtracts: bool = False  # the offset, which is added otherwise

    def decode(self) -> NDArray[Any]:
        """The values of all runs."""
        if self.offsets is None:
            return _multiply(self.scales, self.codes)
        # No operation may meet two NaNs: the result would depend on the machine.
        values = _multiply(np.where(np.isnan(self.offsets), np.float32(0), self.scales), self.codes)
        found: NDArray[Any] = values - self.offsets if self.subtracts else values + self.offsets
        return found


def ggml_parts(kind: int, data: Bytes, /) -> GgmlParts | None:
    """The parts of the blocks in ``data``, of the ggml type ``kind``; None for a type that is not known here."""
    if kind not in _KINDS:
        return None
    read, size, _ = _KINDS[kind]
    with np.errstate(all="ignore"):
        return read(array_of(data, "u1").reshape(-1, size))


def ggml_decode(kind: int, data: Bytes, out: Bytes, /) -> None:
    """Decode the blocks in ``data``, of the ggml type ``kind``, to the float32 values ``out``.

    Where the offset of a block is NaN, its scale counts as 0.
    """
    check_size(kind)
    if kind not in _KINDS:
        raise ValueError(f"there is no decoder for ggml type {kind}")
    read, size, count = _KINDS[kind]
    stored, values = array_of(data, "u1"), array_of(out, "u1", writable=True)
    if stored.size % size or values.size != stored.size // size * count * 4:
        raise ValueError(f"{stored.size} bytes of blocks of {size} do not make {values.size} bytes of float32")
    blocks, rows = stored.reshape(-1, size), values.view("<f4").reshape(-1, count)
    with np.errstate(all="ignore"):
        for start in range(0, len(blocks), _PIECE):
            piece = slice(start, start + _PIECE)
            rows[piece] = read(blocks[piece]).decode().reshape(-1, count)


def _read_half(blocks: NDArray[Any], at: int) -> NDArray[Any]:
    """Read the float16 at byte ``at`` of each block, with two axes to spread over chunks and values."""
    return blocks[:, at : at + 2].copy().view("<f2").astype(np.float32)[:, :, None]


def _read_float(blocks: NDArray[Any]) -> NDArray[Any]:
    """Read the float32 at the start of each block, as :func:`_read_half` does."""
    return blocks[:, :4].copy().view("<f4")[:, :, None]


def _multiply(scale: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
    product: NDArray[Any] = scale * codes.astype(np.float32)
    return product


def _read_small_codes(blocks: NDArray[Any], at: int, fifth: int = 0) -> NDArray[Any]:
    """32 codes of four bits, the low halves of 16 bytes first; their fifth bits in the word at ``fifth``."""
    packed = blocks[:, at : at + 16]
    codes = np.concatenate([packed & 15, packed >> 4], axis=1)
    if fifth:
        codes |= np.unpackbits(blocks[:, fifth : fifth + 4], axis=1, bitorder="little") << np.uint8(4)
    return codes[:, None].astype(np.int16)


def _read_chunks(blocks: NDArray[Any], at: int, count: int, shifts: NDArray[Any], mask: int) -> NDArray[Any]:
    """Eight chunks of 32 codes: of every ``count`` bytes, one chunk for each shift."""
    size = 256 // len(shifts)
    packed = blocks[:, at : at + size].reshape(len(blocks), -1, 1, count)
    codes: NDArray[Any] = ((packed >> shifts) & np.uint8(mask)).reshape(len(blocks), 8, 32)
    return codes


def _q4_0(blocks: NDArray[Any]) -> GgmlParts:
    return GgmlParts(_read_half(blocks, 0), _read_small_codes(blocks, 2) - 8)


def _q5_0(blocks: NDArray[Any]) -> GgmlParts:
    return GgmlParts(_read_half(blocks, 0), _read_small_codes(blocks, 6, 2) - 16)


def _q8_0(blocks: NDArray[Any]) -> GgmlParts:
    return GgmlParts(_read_half(blocks, 0), blocks[:, None, 2:].view(np.int8))


def _q8_1(blocks: NDArray[Any]) -> GgmlParts:
    return GgmlParts(_read_float(blocks), blocks[:, None, 8:].view(np.int8))


def _q8_k(blocks: NDArray[Any]) -> GgmlParts:
    return GgmlParts(_read_float(blocks), blocks[:, None, 4:260].view(np.int8))


def _q2_0(blocks: NDArray[Any]) -> GgmlParts:
    codes = blocks[:, None, 2:, None] >> _PAIRS[:, 0] & 3
    return GgmlParts(_read_half(blocks, 0), codes.reshape(len(blocks), 1, 64).astype(np.int16) - 1)


def _q4_1(blocks: NDArray[Any]) -> GgmlParts:
    return GgmlParts(_read_half(blocks, 0), _read_small_codes(blocks, 4), _read_half(blocks, 2))


def _q5_1(blocks: NDArray[Any]) -> GgmlParts:
    return GgmlParts(_read_half(blocks, 0), _read_small_codes(blocks, 8, 4), _read_half(blocks, 2))


def _split_runs(scales: NDArray[Any], codes: NDArray[Any], offsets: NDArray[Any] | None = None) -> GgmlParts:
    """Each scale and each offset, which is subtracted, applies to a run of codes, all runs equally long."""
    return GgmlParts(scales, codes.reshape(len(codes), scales.shape[1], -1), offsets, offsets is not None)


def _q2_k(blocks: NDArray[Any]) -> GgmlParts:
    scales = blocks[:, :16, None]
    codes = _read_chunks(blocks, 16, 32, _PAIRS, 3)
    offsets = _multiply(_read_half(blocks, 82), scales >> 4)
    return _split_runs(_multiply(_read_half(blocks, 80), scales & 15), codes, offsets)


def _q3_k(blocks: NDArray[Any]) -> GgmlParts:
    packed = blocks[:, 96:108]
    low = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1)
    high = np.concatenate([packed[:, 8:] >> np.uint8(shift) & 3 for shift in (0, 2, 4, 6)], axis=1)
    scales = (low | high << 4).astype(np.int16) - 32
    third = (blocks[:, None, :32] >> _BITS) & 1
    codes = (_read_chunks(blocks, 32, 32, _PAIRS, 3) | third << 2).astype(np.int16) - 4
    return _split_runs(_multiply(_read_half(blocks, 108), scales[:, :, None]), codes)


def _read_six_bits(blocks: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Scales and offsets of the eight chunks, six bits each, out of twelve bytes."""
    first, second, third = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate([first & 63, (third & 15) | first >> 6 << 4], axis=1)
    offsets = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=1)
    return _multiply(_read_half(blocks, 0), scales[:, :, None]), _multiply(_read_half(blocks, 2), offsets[:, :, None])


def _q4_k(blocks: NDArray[Any]) -> GgmlParts:
    scales, offsets = _read_six_bits(blocks)
    return _split_runs(scales, _read_chunks(blocks, 16, 32, _NIBBLES, 15), offsets)


def _q5_k(blocks: NDArray[Any]) -> GgmlParts:
    scales, offsets = _read_six_bits(blocks)
    fifth = (blocks[:, None, 16:48] >> _BITS) & 1
    return _split_runs(scales, _read_chunks(blocks, 48, 32, _NIBBLES, 15) | fifth << 4, offsets)


def _q6_k(blocks: NDArray[Any]) -> GgmlParts:
    scales = blocks[:, 192:208, None].view(np.int8)
    codes = _read_chunks(blocks, 0, 64, _NIBBLES, 15) | _read_chunks(blocks, 128, 32, _PAIRS, 3) << 4
    return _split_runs(_multiply(_read_half(blocks, 208), scales), codes.astype(np.int16) - 32)


_KINDS: Mapping[int, tuple[Callable[[NDArray[Any]], GgmlParts], int, int]] = {
    2: (_q4_0, 18, 32),
    3: (_q4_1, 20, 32),
    6: (_q5_0, 22, 32),
    7: (_q5_1, 24, 32),
    8: (_q8_0, 34, 32),
    9: (_q8_1, 40, 32),
    10: (_q2_k, 84, 256),
    11: (_q3_k, 110, 256),
    12: (_q4_k, 144, 256),
    13: (_q5_k, 176, 256),
    14: (_q6_k, 210, 256),
    15: (_q8_k, 292, 256),
    42: (_q2_0, 18, 64),
}
