"""The types of tensors in TIDX: what an entry says of them beyond its dtype."""

from __future__ import annotations

from typing import Any

from holdall.model.encodings import Opaque, Stored
from holdall.model.ggml import BLOCKS, HALF_Q8_1, Blocks

__all__ = ["choose_q8_1", "find_ggml_type", "unit_of"]


def choose_q8_1(shape: tuple[int, ...], size: int) -> Blocks:
    """Choose between the two layouts of Q8_1, which have one id, by the bytes that the tensor has."""
    return HALF_Q8_1 if HALF_Q8_1.nbytes(shape) <= size < BLOCKS[9].nbytes(shape) else BLOCKS[9]


def find_ggml_type(params: dict[str, Any] | None) -> int | None:
    """The number of the ggml type in quant_params; None if there is none."""
    kind = (params or {}).get("ggml_type")
    return kind if isinstance(kind, int) and not isinstance(kind, bool) else None


def unit_of(stored: Stored) -> tuple[int, int]:
    """Bytes and elements of the smallest unit in which a type is stored."""
    if isinstance(stored, Blocks):
        return stored.block_bytes, stored.elements
    return (1, 1) if isinstance(stored, Opaque) else (getattr(stored, "bits", 8) // 8, 1)
