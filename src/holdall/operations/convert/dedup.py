"""Tensors that are equal, and tensors that lie on the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from holdall.payload import Range
from holdall.tensor import Tensor

__all__ = ["share_bytes", "share_equal"]


def share_equal(tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[str]]:
    """Tensors with equal dtype, shape and bytes share one payload; and what was found. Only candidates are read."""
    from blake3 import blake3

    alike: dict[tuple[Any, ...], list[int]] = {}
    for row, tensor in enumerate(tensors):
        if tensor.nbytes:
            alike.setdefault((str(tensor.dtype), tensor.shape), []).append(row)
    result, notes = list(tensors), []
    for rows in alike.values():
        seen: dict[bytes, int] = {}
        for row in rows if len(rows) > 1 else ():
            payload = tensors[row].payload
            assert payload is not None
            digest = blake3()
            for chunk in payload.chunks():
                digest.update(chunk)
            first = seen.setdefault(digest.digest(), row)
            if first != row:
                result[row] = tensors[row].replace(payload=tensors[first].payload)
                notes.append(f"{tensors[row].name!r} shares the bytes of {tensors[first].name!r}")
    return result, notes


def share_bytes(tensors: Iterable[Tensor]) -> bool:
    """Whether two tensors lie on the same bytes of a source: a target that stores them apart cannot say so."""
    reached: dict[int, int] = {}
    ranges = [tensor.payload for tensor in tensors if isinstance(tensor.payload, Range) and tensor.payload.size]
    for payload in sorted(ranges, key=lambda payload: payload.offset):
        if payload.offset < reached.get(id(payload.source), 0):
            return True
        reached[id(payload.source)] = payload.offset + payload.size
    return False
