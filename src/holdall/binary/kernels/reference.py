"""The Python twins of the C kernels: the reference of their results, and the fallback where nothing was compiled.

Every function takes any C-contiguous buffer. A size, count or position outside its buffer raises ValueError, an object
that is not a (writable) buffer TypeError. `out` must not overlap the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from holdall.base.buffer_sizes import buffer_size
from holdall.binary.kernels.buffers import array_of, check_size, view_of
from holdall.binary.kernels.hashes import fnv1a
from holdall.binary.kernels.scanner import scan

if TYPE_CHECKING:
    from holdall.binary.kernels.buffers import Bytes

__all__ = ["distance", "extremes", "fnv1a", "narrow", "pack", "scan", "simd_level", "texts", "unpack", "widen"]

BLOCK = buffer_size(1 << 16)  # elements converted at a time, so that temporaries stay small


def simd_level() -> int:
    """The instruction set in use: 0 baseline, 1 AVX2, 2 AVX-512. Always 0 here."""
    return 0


def _split_blocks(count: int) -> Iterator[slice]:
    return (slice(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK))


def texts(data: Bytes, positions: Bytes, lengths: Bytes, /) -> tuple[list[str], int]:
    """Decode the piece of `data` at each (position, length), two uint64 buffers, as strict UTF-8.

    Returns the texts and -1, or the texts before the first invalid one and its index.
    """
    view, at, sizes = view_of(data), view_of(positions), view_of(lengths)
    if len(at) % 8 or len(sizes) != len(at):
        raise ValueError("positions and lengths must be uint64, as many of one as of the other")
    found: list[str] = []
    end = len(view)
    pairs = zip(np.frombuffer(at, "<u8").tolist(), np.frombuffer(sizes, "<u8").tolist(), strict=True)
    for position, length in pairs:
        if position + length > end:
            raise ValueError(f"text {len(found)} does not lie within the {end} bytes")
        try:
            found.append(str(view[position : position + length], "utf-8"))
        except UnicodeDecodeError:
            return found, len(found)
    return found, -1


UNSIGNED, TWOS_COMPLEMENT, SIGN_BIT = 0, 1, 2
_BITS = (1, 2, 3, 4, 6)


def _check_bits(bits: int) -> None:
    if bits not in _BITS:
        raise ValueError(f"bits must be 1, 2, 3, 4 or 6, not {bits}")


def unpack(data: Bytes, bit_offset: int, bits: int, count: int, kind: int, out: Bytes, /) -> None:
    """Unpack elements of `bits` bits, least significant first, from bit `bit_offset` on, to one byte each.

    `kind` is 0 unsigned, 1 two's complement, 2 sign bit (1 bit only: 0 is -1, 1 is +1).
    """
    check_size(bit_offset, count)
    _check_bits(bits)
    if kind not in (UNSIGNED, TWOS_COMPLEMENT) and (kind, bits) != (SIGN_BIT, 1):
        raise ValueError(f"no kind {kind} of {bits} bits")
    stream, values = array_of(data, "u1"), array_of(out, "i1", writable=True)
    if values.size != count:
        raise ValueError(f"{count} elements need as many bytes, not {values.size}")
    if bit_offset + count * bits > 8 * stream.size:
        raise ValueError(f"{count} elements of {bits} bits from bit {bit_offset} do not lie within {stream.size} bytes")
    weights = 1 << np.arange(bits, dtype=np.int8)
    if kind == TWOS_COMPLEMENT:
        weights[-1] *= -1
    first, shift = divmod(bit_offset, 8)
    for block in _split_blocks(count):
        # A block is a multiple of 8 elements, so each starts at the same bit of its byte.
        begin, length = first + block.start * bits // 8, (block.stop - block.start) * bits
        chunk = np.unpackbits(stream[begin : begin + (shift + length + 7) // 8], bitorder="little")
        values[block] = chunk[shift : shift + length].reshape(-1, bits).view(np.int8) @ weights
    if kind == SIGN_BIT:
        values[:] = 2 * values - 1


def pack(codes: Bytes, bits: int, out: Bytes, /) -> None:
    """Pack the low `bits` bits of each byte into a stream, least significant first; unused bits at its end are 0."""
    _check_bits(bits)
    values, stream = array_of(codes, "u1"), array_of(out, "u1", writable=True)
    if stream.size != (values.size * bits + 7) // 8:
        raise ValueError(f"{values.size} elements of {bits} bits do not fill {stream.size} bytes")
    for block in _split_blocks(values.size):
        digits = values[block, None] >> np.arange(bits, dtype=np.uint8) & 1
        chunk = np.packbits(digits, bitorder="little")
        begin = block.start * bits // 8
        stream[begin : begin + chunk.size] = chunk


@dataclass(frozen=True)
class SmallFloat:
    """A float of one sign bit, some exponent bits and `mantissa` bits, in `width` bytes."""

    width: int
    mantissa: int
    bias: int
    top: int  # the first code that is not finite: what overflow becomes, infinity or (e4m3) NaN
    nan: int  # the quiet NaN
    payload: int = 0  # the bits of a NaN that narrowing keeps

    @property
    def sign(self) -> int:
        """The sign bit of a code."""
        return 1 << (8 * self.width - 1)


FLOATS = {
    "bf16": SmallFloat(2, 7, 127, 0x7F80, 0x7FC0, payload=0x3F),
    "f16": SmallFloat(2, 10, 15, 0x7C00, 0x7E00, payload=0x1FF),
    "f8_e4m3": SmallFloat(1, 3, 7, 0x7F, 0x7F),
    "f8_e5m2": SmallFloat(1, 2, 15, 0x7C, 0x7E),
}

_F32_MANTISSA, _F32_BIAS, _F32_INFINITY, _F32_SIGN = 23, 127, 0x7F800000, 0x80000000


def widen(kind: str, data: Bytes, out: Bytes, /) -> None:
    """Convert the codes of a small float ("bf16", "f16", "f8_e4m3", "f8_e5m2") to float32; the bits of a NaN stay."""
    codes, values = array_of(data, "u1"), array_of(out, "u1", writable=True)
    small = _find_float(kind, codes.size, values.size)
    codes, values = codes.view(f"<u{small.width}"), values.view("<u4")
    for block in _split_blocks(codes.size):
        values[block] = _widen_codes(small, codes[block].astype(np.int64))


def narrow(kind: str, data: Bytes, out: Bytes, /) -> None:
    """Round float32 to a small float, to nearest even.

    Overflow becomes infinity, in f8_e4m3 NaN. A NaN keeps its sign and becomes quiet; bf16 and f16 keep its top bits.
    """
    values, codes = array_of(data, "u1"), array_of(out, "u1", writable=True)
    small = _find_float(kind, codes.size, values.size)
    values, codes = values.view("<u4"), codes.view(f"<u{small.width}")
    for block in _split_blocks(values.size):
        codes[block] = _narrow_bits(small, values[block].astype(np.int64))


def equal(a: Bytes, b: Bytes, /) -> bool:
    """Whether two buffers have the same bytes."""
    return bool(np.array_equal(array_of(a, "u1"), array_of(b, "u1")))


def extremes(kind: str, data: Bytes, /) -> tuple[float, float]:
    """Find the smallest and the largest of floats ("f32" or a small float), where NaN lies beyond the infinities.

    Of the two zeros, the negative one is the smaller.
    """
    stored = array_of(data, "u1")
    width = 4 if kind == "f32" else _find_float(kind, 0, 0).width
    if not stored.size or stored.size % width:
        raise ValueError(f"{stored.size} bytes are no elements of {kind}")
    codes = stored.view(f"<i{width}").astype(np.int64)
    rest = (1 << (8 * width - 1)) - 1
    places = np.where(codes < 0, codes ^ rest, codes)  # codes are sign and magnitude
    ends = np.array([places.min(), places.max()])
    found = np.where(ends < 0, ends ^ rest, ends).astype(f"<i{width}")
    out = np.empty(2, np.float32)
    if kind == "f32":
        out[:] = found.view(np.float32)
    else:
        widen(kind, found.view(np.uint8), out.view(np.uint8))
    return float(out[0]), float(out[1])


def distance(a: Bytes, b: Bytes, /) -> tuple[int, int, float, float, float, float, float]:
    """Compare two float32 arrays: elements that differ, wild ones, max |a-b|, and the sums of (a-b)², a², b² and ab.

    Equal infinities and two NaNs are equal; any other pair with one of them is wild: it differs, and is in no sum.
    Element i is summed in lane i % 8, and the lanes in order, so that C and Python get the same sums.
    """
    left, right = array_of(a, "u1"), array_of(b, "u1")
    if left.size != right.size or left.size % 4:
        raise ValueError(f"two float32 arrays of one size are compared, not {left.size} and {right.size} bytes")
    x, y = left.view("<f4"), right.view("<f4")
    both = np.isfinite(x) & np.isfinite(y)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    wide = -(-x.size // 8) * 8
    p, q = np.zeros(wide), np.zeros(wide)
    p[: x.size], q[: y.size] = np.where(both, x, 0), np.where(both, y, 0)
    apart = p - q
    # Not sum(): from Python 3.12 on it keeps what the additions of floats round away.
    terms = (lanes.reshape(-1, 8).sum(axis=0).tolist() for lanes in (apart * apart, p * p, q * q, p * q))
    sums = [reduce(add, lanes, 0.0) for lanes in terms]
    largest = float(np.abs(apart).max(initial=0))
    return int((~same).sum()), int((~same & ~both).sum()), largest, sums[0], sums[1], sums[2], sums[3]


def _find_float(kind: str, small_bytes: int, wide_bytes: int) -> SmallFloat:
    if kind not in FLOATS:
        raise ValueError(f"no float kind {kind!r}")
    small = FLOATS[kind]
    if wide_bytes % 4 or small_bytes * 4 != wide_bytes * small.width:
        raise ValueError(f"{small_bytes} bytes of {kind} and {wide_bytes} bytes of f32 are not equally many elements")
    return small


def _widen_codes(small: SmallFloat, codes: NDArray[np.int64]) -> NDArray[np.int64]:
    rest = codes & ~small.sign
    exponent, mantissa = rest >> small.mantissa, rest & ((1 << small.mantissa) - 1)
    # Exponent 0 means subnormal: the exponent of 1, without the leading bit.
    digits = np.where(exponent > 0, mantissa + (1 << small.mantissa), mantissa)
    finite = np.ldexp(digits.astype(np.float64), np.maximum(exponent, 1) - small.bias - small.mantissa)
    finite[rest >= small.top] = 0
    bits = finite.astype(np.float32).view(np.uint32).astype(np.int64)
    special = rest << (_F32_MANTISSA - small.mantissa) | _F32_INFINITY
    sign = (codes & small.sign) // small.sign * _F32_SIGN
    unsigned: NDArray[np.int64] = np.where(rest >= small.top, special, bits)
    return unsigned | sign


def _narrow_bits(small: SmallFloat, bits: NDArray[np.int64]) -> NDArray[np.int64]:
    rest = bits & ~_F32_SIGN
    finite = np.where(rest < _F32_INFINITY, rest, 0).astype(np.uint32).view(np.float32).astype(np.float64)
    exponent = np.maximum((rest >> _F32_MANTISSA) - _F32_BIAS, 1 - small.bias)
    # In units of the last kept bit. Rounding up to the next power of two carries into the exponent.
    units = np.rint(np.ldexp(finite, small.mantissa - exponent)).astype(np.int64)
    code = units + ((exponent + small.bias - 1) << small.mantissa)
    code = np.where(rest >= _F32_INFINITY, small.top, np.minimum(code, small.top))
    nan = small.nan | (rest >> (_F32_MANTISSA - small.mantissa) & small.payload)
    sign = (bits & _F32_SIGN) // _F32_SIGN * small.sign
    unsigned: NDArray[np.int64] = np.where(rest > _F32_INFINITY, nan, code)
    return unsigned | sign
