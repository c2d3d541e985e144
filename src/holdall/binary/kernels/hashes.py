"""Hashes of many short pieces of one buffer: the twin of the FNV-1a kernel, and BLAKE3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from holdall.binary.kernels.buffers import array_of, view_of

if TYPE_CHECKING:
    from holdall.binary.kernels.buffers import Bytes

__all__ = ["blake3_16", "fnv1a"]


def _split_pieces(
    data: Bytes, positions: Bytes, lengths: Bytes, out: Bytes, width: int
) -> Iterator[tuple[int, memoryview]]:
    """Check that all pieces lie within the data, then iterate over them with their indexes."""
    view, at, sizes = view_of(data), view_of(positions), view_of(lengths)
    if len(at) % 8 or len(sizes) != len(at):
        raise ValueError("positions and lengths must be uint64, as many of one as of the other")
    if len(view_of(out, writable=True)) != width * (len(at) // 8):
        raise ValueError(f"{len(at) // 8} hashes take {width} bytes each")
    pairs = list(zip(np.frombuffer(at, "<u8").tolist(), np.frombuffer(sizes, "<u8").tolist(), strict=True))
    for index, (position, length) in enumerate(pairs):
        if position + length > len(view):
            raise ValueError(f"text {index} does not lie within the {len(view)} bytes")
    return ((index, view[position : position + length]) for index, (position, length) in enumerate(pairs))


def fnv1a(data: Bytes, positions: Bytes, lengths: Bytes, out: Bytes, /) -> None:
    """The 32-bit FNV-1a hash of the piece of `data` at each (position, length), into `out`, uint32 each."""
    hashes = array_of(out, "u1", writable=True)
    for index, piece in _split_pieces(data, positions, lengths, out, 4):
        value = 0x811C9DC5
        for byte in piece:
            value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
        hashes[4 * index : 4 * index + 4] = list(value.to_bytes(4, "little"))


def blake3_16(data: Bytes, positions: Bytes, lengths: Bytes, out: Bytes, /) -> None:
    """The first 16 bytes of the BLAKE3 hash of the piece of `data` at each (position, length), into `out`."""
    from blake3 import blake3

    hashes = view_of(out, writable=True)
    for index, piece in _split_pieces(data, positions, lengths, out, 16):
        hashes[16 * index : 16 * index + 16] = blake3(piece).digest(16)
