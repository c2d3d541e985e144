"""Tensors that a pickle describes, laid over the storages of the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from holdall.arranged import Arrangement, contiguous_strides, reach
from holdall.check import Check, figure
from holdall.dtypes import DTYPES
from holdall.encodings import Opaque, Stored
from holdall.formats.torch import rules
from holdall.formats.torch.content import TensorRef
from holdall.formats.torch.layout import OPAQUE_BYTES
from holdall.model import ColumnTable
from holdall.payload import Payload, Range

if TYPE_CHECKING:
    from holdall.source import Source

__all__ = ["Place", "width_of"]


@dataclass(frozen=True, slots=True)
class Place:
    """The bytes of one storage."""

    payload: Payload
    at: int  # in the file, for messages


def width_of(kind: str) -> int:
    """Bytes of an element."""
    return DTYPES[kind].bits // 8 if kind in DTYPES else OPAQUE_BYTES[kind]


def lay_out(
    tensors: Mapping[str, TensorRef], place_of: Callable[[TensorRef], Place], source: Source, swapped: bool, base: int,
    check: Check,
) -> ColumnTable:  # fmt: skip
    """The table of ``tensors``. ``base`` is where the pickle begins, ``swapped`` says that storages are big-endian."""
    names: list[str] = []
    dtypes: list[Stored] = []
    known: dict[str, int] = {}
    codes, shapes, starts, sizes = [], [], [], []
    made: dict[int, Payload] = {}
    for name, ref in tensors.items():
        with check.scope():
            width = width_of(ref.kind)
            payload = _payload(name, ref, place_of(ref), width, swapped, base, check)
            key = ref.kind if ref.kind in DTYPES else f"{ref.kind} {payload.size}"
            code = known.setdefault(key, len(dtypes))
            if code == len(dtypes):
                opaque = Opaque(f"torch.{ref.kind}", payload.size)
                dtypes.append(DTYPES.get(ref.kind, opaque))
            if not isinstance(payload, Range):
                made[len(names)] = payload
            codes.append(code)
            shapes.append(ref.shape)
            starts.append(payload.offset if isinstance(payload, Range) else 0)
            sizes.append(payload.size)
            names.append(name)
    return ColumnTable(
        source, names, dtypes, np.array(codes, np.uint32), shapes, np.array(starts, np.uint64),
        np.array(sizes, np.uint64), made=made,
    )  # fmt: skip


def _payload(
    name: str, ref: TensorRef, place: Place, width: int, swapped: bool, base: int, check: Check
) -> Payload:  # fmt: skip
    """The elements of one tensor: a range where they lie in order, else put in order when asked for."""
    what = f"torch: tensor {name!r}"
    stored = place.payload
    check.limit("rank", len(ref.shape), base + ref.at, f"{what}: dimensions")
    touched = reach(ref.shape, ref.strides)
    if touched and (ref.first + touched) * width > stored.size:
        ends = figure((ref.first + touched) * width)
        message = f"{what}: {ref.kind}{list(ref.shape)} with strides {list(ref.strides)} ends at byte {ends}"
        check.fail(rules.TENSOR, base + ref.at, f"{message} of a storage of {stored.size}")
    size = prod(ref.shape) * width
    if size > touched * width:  # elements that several indexes share
        limits = check.limits
        if size > max(limits.decompression_floor, limits.decompression_ratio * touched * width):
            wide = f"{what}: {touched * width} bytes are spread over {figure(size)}: the ratio"
            check.limit("decompression_ratio", size // (touched * width), base + ref.at, wide)
        check.limit("decompressed_bytes", size, base + ref.at, f"{what}: bytes")
    swap = 0
    if swapped and width > 1:
        complex_ = ref.kind in ("c64", "c128", "complex32")
        swap = width // 2 if complex_ else width
    in_order = not touched or all(
        stride == expected
        for stride, expected, dim in zip(ref.strides, contiguous_strides(ref.shape), ref.shape, strict=True)
        if dim > 1
    )
    if in_order and not swap and isinstance(stored, Range):
        return Range(stored.source, stored.offset + (ref.first * width if touched else 0), size)
    strides = contiguous_strides(ref.shape) if in_order else ref.strides
    return Arrangement(stored, width, ref.shape, strides, ref.first, swap).payload()
