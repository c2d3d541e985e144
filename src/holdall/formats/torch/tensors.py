"""Tensors that a pickle describes, laid over the storages of the file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from holdall.arranged import Arrangement, contiguous_strides, reach
from holdall.check import Check, figure
from holdall.columns import product
from holdall.dtypes import DTYPES
from holdall.encodings import Opaque, Stored
from holdall.formats.torch import rules
from holdall.formats.torch.content import TensorRef
from holdall.formats.torch.layout import OPAQUE_BYTES
from holdall.formats.torch.refs import PALETTE, Refs
from holdall.model import ColumnTable
from holdall.payload import Payload, Range

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["Place", "Storages", "lay_out", "width_of"]


@dataclass(frozen=True, slots=True)
class Place:
    """The bytes of one storage."""

    payload: Payload
    at: int  # in the file, for messages


_KNOWN = sum(kind in DTYPES for kind in PALETTE)  # of the palette; the others come after these
_WIDTHS = np.array([DTYPES[kind].bits // 8 if kind in DTYPES else OPAQUE_BYTES[kind] for kind in PALETTE], np.uint64)


def width_of(kind: str) -> int:
    """Bytes of an element."""
    return DTYPES[kind].bits // 8 if kind in DTYPES else OPAQUE_BYTES[kind]


class Storages(ABC):
    """The storages of a file, as columns; ``plain`` are those whose bytes are a range of the file."""

    starts: NDArray[np.uint64]
    sizes: NDArray[np.uint64]
    plain: NDArray[np.bool_]

    @abstractmethod
    def rows(self, refs: Refs) -> NDArray[np.intp]:
        """The row of the storage of each of ``refs``; -1 where there is none."""

    @abstractmethod
    def place(self, ref: TensorRef) -> Place:
        """Where the storage of ``ref`` is. One that is not there, or not as ``ref`` says, is a breach."""


def lay_out(
    refs: Refs, storages: Storages, source: Source, swapped: bool, base: int, check: Check
) -> ColumnTable:  # fmt: skip
    """The table of ``refs``. ``base`` is where the pickle begins, ``swapped`` says that storages are big-endian."""
    shapes = refs.shapes
    counts, in_order = refs.in_order(shapes)
    kept, starts = _ranges(refs, storages, counts, in_order & (refs.ranks <= check.limits.rank), swapped)
    sizes = np.where(kept, counts * _WIDTHS[refs.kinds], np.uint64(0))
    dtypes: list[Stored] = [DTYPES[kind] for kind in PALETTE if kind in DTYPES]
    codes = refs.kinds.astype(np.uint32)
    known: dict[str, int] = {}
    made: dict[int, Payload] = {}
    for row in (~kept).nonzero()[0].tolist():  # what is not a range of the file, or wrong
        with check.scope():
            name, ref = refs.names[row], refs.ref(row)
            payload = _payload(name, ref, storages.place(ref), width_of(ref.kind), swapped, base, check)
            if ref.kind not in DTYPES:
                codes[row] = known.setdefault(f"{ref.kind} {payload.size}", len(dtypes))
                if codes[row] == len(dtypes):
                    dtypes.append(Opaque(f"torch.{ref.kind}", payload.size))
            if isinstance(payload, Range):
                starts[row] = payload.offset
            else:
                made[row] = payload
            sizes[row] = payload.size
            kept[row] = True
    if kept.all():
        return ColumnTable(source, refs.names, dtypes, codes, shapes, starts, sizes, made=made)
    rows = kept.nonzero()[0].tolist()
    return ColumnTable(
        source, [refs.names[row] for row in rows], dtypes, codes[rows], [shapes[row] for row in rows], starts[rows],
        sizes[rows], made={number: made[row] for number, row in enumerate(rows) if row in made},
    )  # fmt: skip


def _ranges(
    refs: Refs, storages: Storages, counts: NDArray[np.uint64], in_order: NDArray[np.bool_], swapped: bool
) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]:
    """Which tensors are a sound range of the file as it stands, and where those begin."""
    rows = storages.rows(refs)
    starts, sizes = (np.append(column, np.uint64(0))[rows] for column in (storages.starts, storages.sizes))
    widths = _WIDTHS[refs.kinds]
    room = sizes // widths
    said = np.where(refs.typed, (room == refs.elements) & (sizes % widths == 0), sizes == refs.elements)
    kept = np.append(storages.plain, False)[rows] & in_order & said & (refs.kinds < np.uint64(_KNOWN))
    kept &= (counts <= room) & (refs.firsts <= np.where(counts <= room, room - counts, np.uint64(0)))
    kept &= (counts > 0) | (refs.firsts == 0)
    if swapped:
        kept &= widths == 1
    return kept, starts + np.where(kept, refs.firsts * widths, np.uint64(0))


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
    size = product(ref.shape) * width
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
    # Dims beside one of 0 may be anything: none of them is multiplied.
    shape, strides = (ref.shape, ref.strides) if touched else ((0,), (1,))
    in_order = all(
        stride == expected
        for stride, expected, dim in zip(strides, contiguous_strides(shape), shape, strict=True)
        if dim > 1
    )
    if in_order and not swap and isinstance(stored, Range):
        return Range(stored.source, stored.offset + (ref.first * width if touched else 0), size)
    strides = contiguous_strides(shape) if in_order else strides
    return Arrangement(stored, width, shape, strides, ref.first, swap).payload()
