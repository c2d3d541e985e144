"""Where each payload of a new file goes, and who shares bytes with whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdall.dtypes import DType
from holdall.formats.mcf.layout import BLOCK_ALIGN
from holdall.formats.mcf.outline import Outline
from holdall.payload import Payload, Range
from holdall.quant.encodings import McfEncoding
from holdall.tensor import Tensor

__all__ = ["Places", "place"]


@dataclass(slots=True)
class Places:
    """``offsets`` of the tensors, the ``payloads`` to write and where, and the byte after the section."""

    offsets: list[int] = field(default_factory=list)
    payloads: list[tuple[int, Payload]] = field(default_factory=list)
    end: int = 0


@dataclass(slots=True)
class _Stretch:
    """Bytes of one source that several tensors share."""

    payload: Range
    shift: int | None  # of the tensors in it that must lie on multiples of 64; None: there are none
    start: int | None = None  # in the new file, once it has a place


def place(outline: Outline, start: int) -> Places:
    """Payloads one after the other from ``start`` on, each on its multiple counted from the start of the file."""
    tensors = outline.tensors
    stretches = _stretches(tensors) if outline.aliases else {}
    places = Places()
    cursor = start
    for row, tensor in enumerate(tensors):
        assert tensor.payload is not None
        align = max(outline.align, BLOCK_ALIGN if _needs_64(tensor) else 1)
        stretch = stretches.get(row)
        if outline.same is not None and row in outline.same:
            cursor += -cursor % align  # the packer pads, then finds that it has the bytes already
            places.offsets.append(places.offsets[outline.same[row]])
        elif stretch is None:
            cursor += -cursor % align
            places.offsets.append(cursor)
            places.payloads.append((cursor, tensor.payload))
            cursor += tensor.payload.size
        else:
            if stretch.start is None:
                shift = stretch.shift or 0
                modulus = BLOCK_ALIGN if shift else max(outline.align, 1 if stretch.shift is None else BLOCK_ALIGN)
                cursor += -(cursor + shift) % modulus
                stretch.start = cursor
                places.payloads.append((cursor, stretch.payload))
                cursor += stretch.payload.size
            assert isinstance(tensor.payload, Range)
            places.offsets.append(stretch.start + tensor.payload.offset - stretch.payload.offset)
    places.end = cursor + (-cursor % outline.align if outline.pad_end else 0)
    return places


def _needs_64(tensor: Tensor) -> bool:
    return not isinstance(tensor.dtype, DType) and isinstance(tensor.dtype, McfEncoding)


def _stretches(tensors: Sequence[Tensor]) -> dict[int, _Stretch]:
    """The tensors that share bytes of a source with another, wholly or in part, and the stretch they share."""
    ranges: dict[int, list[tuple[int, int, int]]] = {}
    for row, tensor in enumerate(tensors):
        if isinstance(tensor.payload, Range) and tensor.payload.size:
            found = ranges.setdefault(id(tensor.payload.source), [])
            found.append((tensor.payload.offset, tensor.payload.offset + tensor.payload.size, row))
    stretches: dict[int, _Stretch] = {}
    for found in ranges.values():
        low, high, rows = 0, 0, list[int]()
        for first, last, row in [*sorted(found), (1 << 65, 0, -1)]:
            if first < high:
                high = max(high, last)
                rows.append(row)
                continue
            if len(rows) > 1:
                _join(tensors, low, high, rows, stretches)
            low, high, rows = first, last, [row]
    return stretches


def _join(tensors: Sequence[Tensor], low: int, high: int, rows: list[int], stretches: dict[int, _Stretch]) -> None:
    """Let ``rows`` share ``low..high`` of their source, if all that must lie on multiples of 64 then can."""
    shifts = {
        (payload.offset - low) % BLOCK_ALIGN
        for row in rows
        if _needs_64(tensors[row]) and isinstance(payload := tensors[row].payload, Range)
    }
    first = tensors[rows[0]].payload
    if len(shifts) > 1 or not isinstance(first, Range):
        return
    stretch = _Stretch(Range(first.source, low, high - low), shifts.pop() if shifts else None)
    stretches.update(dict.fromkeys(rows, stretch))
