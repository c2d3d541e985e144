"""Assigns an offset to each payload of a new file; payloads that share bytes in their source share them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from holdall.binary.columns import place
from holdall.format.mcf.file_plan import FilePlan
from holdall.format.mcf.layout import BLOCK_ALIGN
from holdall.model.dtypes import DType
from holdall.model.encodings import Stored
from holdall.model.payload import Payload, SourceRange
from holdall.model.tensor import Tensor
from holdall.quant.encodings import McfEncoding

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.table import TensorTable
    from holdall.sink.plan import Plan

__all__ = ["Offsets", "assign_offsets"]


@dataclass(slots=True)
class Offsets:
    """The offset of each tensor, and the end of the section. Tensors may share payloads.

    ``payloads`` are then the payloads to write, with their offsets; None if each tensor has its own.
    """

    tensors: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    payloads: list[tuple[int, Payload]] | None = None
    end: int = 0

    def put(self, out: Plan, table: TensorTable) -> None:
        """Put the payloads of ``table``."""
        if self.payloads is None:
            out.run(table, range(len(table)), self.tensors)
        for at, payload in self.payloads or ():
            out.cursor = at
            out.stream(payload)


@dataclass(slots=True)
class _SharedRange:
    """Bytes of one source that several tensors share."""

    payload: SourceRange
    shift: int | None  # offset modulo 64 of the tensors in it that must start at multiples of 64; None: none must
    start: int | None = None  # the byte of the new file, once it is assigned


def assign_offsets(file: FilePlan, start: int) -> Offsets:
    """Payloads one after the other from ``start`` on, each at a multiple of its alignment in the file."""
    table, forms = file.tensors, file.tensors.forms()
    shared = _find_shared_ranges(table) if file.aliases and any(table.sources()) else {}
    aligns = {max(file.align, BLOCK_ALIGN if _needs_64(form.dtype) else 1) for form in forms.kinds}
    if file.same or shared or len(aligns) != 1:
        found = _assign_shared(file, start, shared)
    else:
        align = aligns.pop()
        starts, _ = place(forms.sizes(), align, start + -start % align)
        found = Offsets(starts, None, int(starts[-1]) + (forms[len(table) - 1].size or 0))
    found.end += -found.end % file.align if file.pad_end else 0
    return found


def _assign_shared(file: FilePlan, start: int, shared: Mapping[int, _SharedRange]) -> Offsets:
    """Assign an offset to each payload, and to tensors that have the bytes of another one an offset in those."""
    payloads: list[tuple[int, Payload]] = []
    offsets: list[int] = []
    cursor = start
    for row, tensor in enumerate(file.tensors):
        assert tensor.payload is not None
        align = max(file.align, BLOCK_ALIGN if _needs_64(tensor.dtype) else 1)
        common = shared.get(row)
        if file.same is not None and row in file.same:
            cursor += -cursor % align  # the format's packer pads before it finds that it has the bytes already
            offsets.append(offsets[file.same[row]])
        elif common is None:
            cursor += -cursor % align
            offsets.append(cursor)
            payloads.append((cursor, tensor.payload))
            cursor += tensor.payload.size
        else:
            if common.start is None:
                shift = common.shift or 0
                modulus = BLOCK_ALIGN if shift else max(file.align, 1 if common.shift is None else BLOCK_ALIGN)
                cursor += -(cursor + shift) % modulus
                common.start = cursor
                payloads.append((cursor, common.payload))
                cursor += common.payload.size
            assert isinstance(tensor.payload, SourceRange)
            offsets.append(common.start + tensor.payload.offset - common.payload.offset)
    return Offsets(np.array(offsets, np.uint64), payloads, cursor)


def _needs_64(dtype: Stored) -> bool:
    return not isinstance(dtype, DType) and isinstance(dtype, McfEncoding)


def _find_shared_ranges(tensors: Sequence[Tensor]) -> dict[int, _SharedRange]:
    """Find the tensors that share bytes of a source with another, all or some, with the range that they share."""
    ranges: dict[int, list[tuple[int, int, int]]] = {}
    for row, tensor in enumerate(tensors):
        if isinstance(tensor.payload, SourceRange) and tensor.payload.size:
            found = ranges.setdefault(id(tensor.payload.source), [])
            found.append((tensor.payload.offset, tensor.payload.offset + tensor.payload.size, row))
    shared: dict[int, _SharedRange] = {}
    for found in ranges.values():
        low, high, rows = 0, 0, list[int]()
        for first, last, row in [*sorted(found), (1 << 65, 0, -1)]:  # the last one ends the group before it
            if first < high:
                high = max(high, last)
                rows.append(row)
                continue
            if len(rows) > 1:
                _share(tensors, low, high, rows, shared)
            low, high, rows = first, last, [row]
    return shared


def _share(tensors: Sequence[Tensor], low: int, high: int, rows: list[int], shared: dict[int, _SharedRange]) -> None:
    """Let ``rows`` share ``low..high`` of their source, unless their alignment to 64 bytes makes it impossible."""
    shifts = {
        (payload.offset - low) % BLOCK_ALIGN
        for row in rows
        if _needs_64(tensors[row].dtype) and isinstance(payload := tensors[row].payload, SourceRange)
    }
    first = tensors[rows[0]].payload
    if len(shifts) > 1 or not isinstance(first, SourceRange):
        return
    common = _SharedRange(SourceRange(first.source, low, high - low), shifts.pop() if shifts else None)
    shared.update(dict.fromkeys(rows, common))
