"""Combines CRC-32 sums of adjacent byte ranges."""

from __future__ import annotations

from functools import lru_cache

__all__ = ["crc32_combine"]


@lru_cache(maxsize=256)
def _make_zeros_operator(length: int) -> tuple[int, ...]:
    """Make the 32x32 bit matrix that appends ``length`` zero bytes to a CRC-32 (columns as integers)."""
    odd = (0xEDB88320, *(1 << n for n in range(31)))  # one zero bit
    matrix = odd
    for _ in range(3):  # 2, 4, 8 zero bits: one byte
        matrix = _multiply(matrix, matrix)
    result = tuple(1 << n for n in range(32))
    while length:
        if length & 1:
            result = _multiply(matrix, result)
        matrix = _multiply(matrix, matrix)
        length >>= 1
    return result


def _apply(matrix: tuple[int, ...], vector: int) -> int:
    total = 0
    for column in matrix:
        if vector & 1:
            total ^= column
        vector >>= 1
        if not vector:
            break
    return total


def _multiply(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(_apply(left, column) for column in right)


def crc32_combine(first: int, second: int, length: int) -> int:
    """The CRC-32 of A + B from those of A and of B, where B has ``length`` bytes.

    >>> import zlib
    >>> crc32_combine(zlib.crc32(b"hold"), zlib.crc32(b"all"), 3) == zlib.crc32(b"holdall")
    True
    """
    return _apply(_make_zeros_operator(length), first) ^ second
