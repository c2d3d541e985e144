"""Tensors that are the negative or the conjugate of what their storage holds, as PyTorch keeps such views lazily."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from holdall.model.payload import Computed, Payload
from holdall.source import CHUNK

__all__ = ["CONJUGATE", "NEGATIVE", "can_mirror", "mirror"]

CONJUGATE, NEGATIVE = 1, 2  # both may be set
_COMPLEX = {"c64": "<u4", "c128": "<u8", "complex32": "<u2"}  # the bits of one part of a number
_FLOATS = {"f64": "<u8", "f32": "<u4", "f16": "<u2", "bf16": "<u2"}
_INTEGERS = {"i64": "<u8", "i32": "<u4", "i16": "<u2", "i8": "u1", "u8": "u1"}


def can_mirror(kind: str, how: int) -> bool:
    """Whether numbers of this type have a negative, or a conjugate, in PyTorch."""
    return kind in _COMPLEX or (not how & CONJUGATE and (kind in _FLOATS or kind in _INTEGERS))


def mirror(stored: Payload, kind: str, how: int) -> Computed:
    """The negative or conjugate numbers of ``stored``, computed when they are asked for."""
    return Computed(stored.size, lambda: _make_blocks(stored, kind, how), (stored,))


def _make_blocks(stored: Payload, kind: str, how: int) -> Iterator[memoryview]:
    unit = np.dtype({**_COMPLEX, **_FLOATS, **_INTEGERS}[kind])
    width = unit.itemsize * (2 if kind in _COMPLEX else 1)
    for piece in stored.chunks(max(width, CHUNK - CHUNK % width)):
        block = np.frombuffer(piece, unit).copy()
        if kind in _INTEGERS:
            np.negative(block, out=block)
        else:
            sign = unit.type(1 << (8 * unit.itemsize - 1))  # of zeros, too
            if how & NEGATIVE:
                block ^= sign
            if how & CONJUGATE:
                block[1::2] ^= sign
        yield block.view(np.uint8).data
