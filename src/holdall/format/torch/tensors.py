"""The tensors that a pickle describes, located in the storages of the file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.check import Check, figure
from holdall.binary.columns import fit, product
from holdall.format.torch import rules
from holdall.format.torch.layout import OPAQUE_BYTES
from holdall.format.torch.mirrors import mirror
from holdall.format.torch.pickle_objects import TensorRef
from holdall.format.torch.refs import PALETTE, Refs
from holdall.model.dtypes import DTYPES
from holdall.model.encodings import Opaque, Stored
from holdall.model.payload import Payload, SourceRange
from holdall.model.strided import Arrangement, contiguous_strides, extent_of
from holdall.model.table import ColumnTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["StoragePlace", "Storages", "lay_out", "width_of"]


@dataclass(frozen=True, slots=True)
class StoragePlace:
    """The bytes of one storage."""

    payload: Payload
    at: int  # its first byte in the file


_KNOWN = sum(kind in DTYPES for kind in PALETTE)  # types that holdall decodes; they come first in the palette
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
        """The row of the storage of each of ``refs``; -1 if there is none."""

    @abstractmethod
    def place(self, ref: TensorRef) -> StoragePlace:
        """Where the storage of ``ref`` is; fails if it is missing or not as ``ref`` states."""


def lay_out(
    refs: Refs, storages: Storages, source: Source, big_endian: bool, base: int, check: Check
) -> ColumnTable:  # fmt: skip
    """The table of ``refs``; ``base`` is where the pickle begins, ``big_endian`` the byte order of storages."""
    shapes = refs.shapes
    counts, in_order = refs.find_contiguous(shapes)
    kept, starts = _find_ranges(refs, storages, counts, in_order & (refs.ranks <= check.limits.rank), big_endian)
    sizes = np.where(kept, counts * _WIDTHS[refs.kinds], np.uint64(0))
    dtypes: list[Stored] = [DTYPES[kind] for kind in PALETTE if kind in DTYPES]
    codes = refs.kinds.astype(np.uint32)
    known: dict[str, int] = {}
    made: dict[int, Payload] = {}
    for row in (~kept).nonzero()[0].tolist():  # not simply a range of the file, or broken
        with check.scope():
            name, ref = refs.names[row], refs.ref(row)
            payload = _make_payload(name, ref, storages.place(ref), width_of(ref.kind), big_endian, base, check)
            if ref.mirrored:
                payload = mirror(payload, ref.kind, ref.mirrored)
            if ref.kind not in DTYPES:
                codes[row] = known.setdefault(f"{ref.kind} {payload.size}", len(dtypes))
                if codes[row] == len(dtypes):
                    dtypes.append(Opaque(f"torch.{ref.kind}", payload.size))
            if isinstance(payload, SourceRange):
                starts[row] = payload.offset
            else:
                made[row] = payload
            sizes[row] = payload.size
            kept[row] = True
    if kept.all():
        return ColumnTable(source, refs.names, dtypes, codes, shapes, starts, sizes, payloads=made)
    rows = kept.nonzero()[0].tolist()
    return ColumnTable(
        source, [refs.names[row] for row in rows], dtypes, codes[rows], [shapes[row] for row in rows], starts[rows],
        sizes[rows], payloads={number: made[row] for number, row in enumerate(rows) if row in made},
    )  # fmt: skip


def _find_ranges(
    refs: Refs, storages: Storages, counts: NDArray[np.uint64], in_order: NDArray[np.bool_], big_endian: bool
) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]:
    """Find which tensors are simply a range of the file, and where these begin."""
    rows = storages.rows(refs)
    starts, sizes = (np.append(column, np.uint64(0))[rows] for column in (storages.starts, storages.sizes))
    widths = _WIDTHS[refs.kinds]
    room = sizes // widths
    agrees = np.where(refs.typed, (room == refs.elements) & (sizes % widths == 0), sizes == refs.elements)
    kept = np.append(storages.plain, False)[rows] & in_order & agrees & (refs.kinds < np.uint64(_KNOWN))
    kept &= fit(refs.firsts, counts, room) & ((counts > 0) | (refs.firsts == 0)) & (refs.mirrored == 0)
    if big_endian:
        kept &= widths == 1
    return kept, starts + np.where(kept, refs.firsts * widths, np.uint64(0))


def _make_payload(
    name: str, ref: TensorRef, place: StoragePlace, width: int, big_endian: bool, base: int, check: Check
) -> Payload:  # fmt: skip
    """Make the elements of one tensor: a range of the file if they lie in order, else arranged when they are read."""
    what = f"torch: tensor {name!r}"
    stored = place.payload
    check.limit("rank", len(ref.shape), base + ref.at, f"{what}: dimensions")
    touched = extent_of(ref.shape, ref.strides)
    if touched and (ref.first + touched) * width > stored.size:
        ends = figure((ref.first + touched) * width)
        message = f"{what}: {ref.kind}{list(ref.shape)} with strides {list(ref.strides)} ends at byte {ends}"
        check.fail(rules.TENSOR, base + ref.at, f"{message} of a storage of {stored.size}")
    size = product(ref.shape) * width
    if size > touched * width:  # elements that several indexes share
        check.limit("decompressed_bytes", size, base + ref.at, f"{what}: bytes")
    swap = 0
    if big_endian and width > 1:
        complex_ = ref.kind in ("c64", "c128", "complex32")
        swap = width // 2 if complex_ else width
    # In a tensor without elements, the other dimensions and the strides may be any numbers: they are not used.
    shape, strides = (ref.shape, ref.strides) if touched else ((0,), (1,))
    in_order = all(
        stride == expected
        for stride, expected, dim in zip(strides, contiguous_strides(shape), shape, strict=True)
        if dim > 1
    )
    if in_order and not swap and isinstance(stored, SourceRange):
        return SourceRange(stored.source, stored.offset + (ref.first * width if touched else 0), size)
    strides = contiguous_strides(shape) if in_order else strides
    return Arrangement(stored, width, shape, strides, ref.first, swap).payload()
