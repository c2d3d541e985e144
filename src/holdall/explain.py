"""What every byte of a file is for: fields of records, and the map of the whole file.

Both are read off the :class:`~holdall.ledger.Ledger` that the reader left behind, so they hold for damaged
files as far as the reader came.

>>> from holdall.examine import examine
>>> import holdall, numpy as np
>>> holdall.save("example.oinf", {"w": np.ones(2, np.float32)})
>>> with examine("example.oinf") as seen:
...     [(span.start, span.stop, span.kind, span.name) for span in file_map(seen.ledger, seen.source)]
[(0, 72, 'record', 'header'), (72, 116, 'table', 'tensor'), (116, 120, 'padding', ''), (120, 128, 'payload', 'tensor')]
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.ledger import Ledger, Owner
    from holdall.source import Source

__all__ = ["FieldRow", "Record", "Span", "SpanKind", "expand", "file_map", "records"]

SpanKind = Literal["record", "table", "region", "payload", "padding", "zeros", "unknown"]

_Runs: TypeAlias = "tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]"

_HEAD = 1 << 20  # bytes of one record that are looked at: what comes later in it is payload
_SHOWN = 32  # bytes of a field or a payload that a row carries


@dataclass(frozen=True, slots=True)
class Span:
    """A range of the file with one owner, or with none.

    ``padding`` is a gap of zeros up to the format's alignment, ``zeros`` any other gap of zeros, ``unknown``
    one that has other bytes. ``shared`` says that an earlier range reaches into this one.
    """

    start: int
    stop: int
    kind: SpanKind
    name: str = ""
    entries: int = 1  # of a table: how many follow each other without a gap
    shared: bool = False
    owner: Owner | None = None
    row: int = 0

    @property
    def size(self) -> int:
        """Bytes of the range."""
        return self.stop - self.start

    @property
    def label(self) -> str:
        """What the file calls it: the tensor of a payload."""
        return label_of(self.owner, self.row) if self.entries == 1 else ""


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One field: where it is, its first bytes, and what they mean. ``value`` is None for bytes without a meaning."""

    name: str
    offset: int
    size: int
    data: bytes
    value: object


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One record, table entry, region or payload, not yet expanded into fields."""

    owner: Owner
    row: int

    @property
    def name(self) -> str:
        """The name of its table."""
        return self.owner.name

    @property
    def start(self) -> int:
        """Its first byte in the file."""
        return int(self.owner.starts[self.row])

    @property
    def size(self) -> int:
        """Its bytes."""
        return int(self.owner.sizes[self.row])

    @property
    def label(self) -> str:
        """What the file calls it."""
        return label_of(self.owner, self.row)


def label_of(owner: Owner | None, row: int) -> str:
    """The file's own name for a row of an owner; empty where it has none."""
    return owner.label(row) if owner is not None and owner.label is not None else ""


def records(owner: Owner) -> Iterator[Record]:
    """The rows of one owner, made one at a time: take as many as are to be shown."""
    return (Record(owner, row) for row in range(len(owner)))


def expand(record: Record, source: Source) -> list[FieldRow]:
    """The fields of a record, read now. A region or payload is one field without a name."""
    start, size = record.start, record.size
    layout = record.owner.layout
    if layout is None:
        return [FieldRow("", start, size, source.read(start, min(size, _SHOWN)), None)]
    data = source.read(start, min(size, _HEAD))
    rows: list[FieldRow] = []
    try:
        for field in layout.expand(data, 0):
            if field.offset + field.size > size:
                break  # a damaged entry: the scanner stopped here too
            shown = data[field.offset : field.offset + min(field.size, _SHOWN)]
            value = field.value
            if layout.fields[field.name].kind == "text" and isinstance(value, bytes):
                value = value.decode("utf-8", "backslashreplace")
            rows.append(FieldRow(field.name, start + field.offset, field.size, shown, value))
    except struct.error:  # beyond the head that was read
        pass
    return rows


# -- the map ----------------------------------------------------------------------------------------------------------


def file_map(ledger: Ledger, source: Source) -> Iterator[Span]:
    """Every byte of the file in order, each range with its owner. Streams: gaps are read, payloads are not."""
    reached = 0
    for span in merge(_owned(ledger), _gaps(ledger, source), key=lambda span: span.start):
        if span.start < reached:
            span = Span(span.start, span.stop, span.kind, span.name, span.entries, True, span.owner, span.row)
        reached = max(reached, span.stop)
        yield span


def _owned(ledger: Ledger) -> Iterator[Span]:
    import numpy as np

    if not ledger.owners:
        return
    columns = [_runs(owner) for owner in ledger.owners]
    starts = np.concatenate([starts for starts, *_ in columns])
    stops = np.concatenate([stops for _, stops, *_ in columns])
    rows = np.concatenate([rows for _, _, rows, _ in columns])
    entries = np.concatenate([entries for *_, entries in columns])
    numbers = np.repeat(np.arange(len(columns)), [len(starts) for starts, *_ in columns])
    for place in np.argsort(starts, kind="stable").tolist():
        owner = ledger.owners[int(numbers[place])]
        yield Span(
            int(starts[place]), int(stops[place]), owner.kind, owner.name, int(entries[place]), False, owner,
            int(rows[place]),
        )  # fmt: skip


def _runs(owner: Owner) -> _Runs:
    """Start, stop, first row and number of rows of what is shown as one range: table entries that touch are one."""
    import numpy as np

    rows = owner.sizes.nonzero()[0]
    starts, stops = owner.starts[rows], owner.starts[rows] + owner.sizes[rows]
    if owner.kind != "table" or not len(rows):
        return starts, stops, rows, np.ones(len(rows), np.intp)
    first = np.append([True], starts[1:] != stops[:-1]).nonzero()[0]
    last = np.append(first[1:], len(rows)) - 1
    return starts[first], stops[last], rows[first], last - first + 1


def _gaps(ledger: Ledger, source: Source) -> Iterator[Span]:
    gaps = list(ledger.gaps(source.size))
    source.prefetch(gaps)
    for start, stop in gaps:
        if not _all_zero(source, start, stop):
            yield Span(start, stop, "unknown")
        elif stop - start < ledger.pad_to and stop % ledger.pad_to == 0:
            yield Span(start, stop, "padding")
        else:
            yield Span(start, stop, "zeros")


def _all_zero(source: Source, start: int, stop: int) -> bool:
    if stop - start <= 64:
        return not any(source.read(start, stop - start))
    import numpy as np

    return not any(np.frombuffer(chunk, np.uint8).any() for chunk in source.chunks(start, stop - start))
