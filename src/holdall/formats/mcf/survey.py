"""Which tensors have equal content: what deduplication has to know before anything can have a place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdall.dtypes import DType
from holdall.payload import Payload
from holdall.sizes import tuned
from holdall.tensor import Tensor

__all__ = ["survey"]

_HEAD = tuned(1 << 16)  # bytes that are compared before whole payloads are


def survey(tensors: Sequence[Tensor]) -> dict[int, int]:
    """Which tensors have the dtype, shape and bytes of an earlier one; payloads are read piece by piece.

    Only tensors that agree in their first bytes are read whole. Quantized ones are left alone: making them
    twice costs more than they take.
    """
    groups: dict[Any, list[int]] = {}
    for row, tensor in enumerate(tensors):
        if isinstance(tensor.dtype, DType) and tensor.payload is not None:
            groups.setdefault((tensor.dtype, tensor.shape), []).append(row)
    for payload_digest in (_head_digest, _digest):
        finer: dict[Any, list[int]] = {}
        for key, rows in groups.items():
            if len(rows) > 1:
                for row in rows:
                    payload = tensors[row].payload
                    assert payload is not None
                    finer.setdefault((key, payload_digest(payload)), []).append(row)
        groups = finer
    return {row: rows[0] for rows in groups.values() for row in rows[1:]}


def _head_digest(payload: Payload) -> bytes:
    for piece in payload.chunks(_HEAD):
        return bytes(piece)
    return b""


def _digest(payload: Payload) -> bytes:
    from blake3 import blake3

    digest = blake3()
    for piece in payload.chunks():
        digest.update(piece)
    return digest.digest()
