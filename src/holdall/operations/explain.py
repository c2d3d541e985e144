"""What every byte of a file is for: the fields of records, and a map of the whole file.

Both come from the :class:`~holdall.source.ledger.Ledger` that the reader filled. For a damaged file they go as far as
the reader came.

>>> from holdall.operations.examine import examine
>>> import holdall, numpy as np
>>> holdall.save("example.oinf", {"w": np.ones(2, np.float32)})
>>> with examine("example.oinf") as seen:
...     [(span.start, span.stop, span.kind, span.name) for span in map_file(seen.ledger, seen.source)]
[(0, 72, 'record', 'header'), (72, 116, 'table', 'tensor'), (116, 120, 'padding', ''), (120, 128, 'payload', 'tensor')]
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source
    from holdall.source.ledger import Ledger, Owner

__all__ = ["FieldRow", "MapSpan", "Record", "SpanKind", "expand", "find_rows", "list_records"]
__all__ += ["map_file"]

SpanKind = Literal["record", "table", "region", "payload", "padding", "zeros", "unread", "unknown"]

_Runs: TypeAlias = "tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]"

_HEAD = 1 << 20  # bytes of one record that are expanded: the rest is payload
_PADDING = 4096  # a gap up to this is always read,
_LOOKED = 16 << 20  # and as many bytes of longer ones: there may be terabytes of them
_SHOWN = 32  # bytes of a field or a payload that a row carries


@dataclass(frozen=True, slots=True)
class MapSpan:
    """A range of the file with one owner or none.

    The kind ``padding`` is a gap of zeros up to the format's alignment, ``zeros`` another gap of zeros, ``unknown`` a
    gap with other bytes, ``unread`` one of zeros as far as it was read: long gaps are read up to 16 MiB together.
    ``shared`` means that an earlier range overlaps this one.
    """

    start: int
    stop: int
    kind: SpanKind
    name: str = ""
    entries: int = 1  # how many entries of a table follow each other without a gap
    shared: bool = False
    owner: Owner | None = None
    row: int = 0

    @property
    def size(self) -> int:
        """Bytes of the range."""
        return self.stop - self.start

    @property
    def label(self) -> str:
        """The file's name for it, such as the tensor of a payload; empty without one."""
        return label_of(self.owner, self.row) if self.entries == 1 else ""


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One field: its place, its first bytes, and its value, which is None for plain bytes."""

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
        """The file's name for it; empty without one."""
        return label_of(self.owner, self.row)


def label_of(owner: Owner | None, row: int) -> str:
    """The file's name for a row of an owner; empty without one."""
    return owner.label(row) if owner is not None and owner.label is not None else ""


def list_records(owner: Owner) -> Iterator[Record]:
    """List the rows of one owner, each made when the iterator reaches it: tables can have millions."""
    return (Record(owner, row) for row in range(len(owner)))


def find_rows(owner: Owner, at: int) -> list[int]:
    """Find the rows of an owner that have the byte ``at``."""
    import numpy as np

    if at >= 1 << 63:
        return []
    found: list[int] = ((owner.starts <= at) & (owner.starts + owner.sizes > np.uint64(at))).nonzero()[0].tolist()
    return found


def expand(record: Record, source: Source) -> list[FieldRow]:
    """Read the fields of a record. A region or payload is one field without a name."""
    start, size = record.start, record.size
    layout = record.owner.layout
    if layout is None:
        return [FieldRow("", start, size, source.read(start, min(size, _SHOWN)), None)]
    data = source.read(start, min(size, _HEAD))
    rows: list[FieldRow] = []
    try:
        for field in layout.expand(data, 0):
            if field.offset + field.size > size:
                break  # the entry is damaged, and the scanner stopped here too
            shown = data[field.offset : field.offset + min(field.size, _SHOWN)]
            value = field.value
            if layout.fields[field.name].kind == "text" and isinstance(value, bytes):
                value = value.decode("utf-8", "backslashreplace")
            rows.append(FieldRow(field.name, start + field.offset, field.size, shown, value))
    except struct.error:  # the field lies beyond the bytes that were read
        pass
    return rows


def map_file(ledger: Ledger, source: Source) -> Iterator[MapSpan]:
    """Return every byte of the file in order, each range with its owner. Gaps are read, payloads are not."""
    reached = 0
    for span in merge(_list_owned(ledger), _list_gaps(ledger, source), key=lambda span: span.start):
        if span.start < reached:
            span = MapSpan(span.start, span.stop, span.kind, span.name, span.entries, True, span.owner, span.row)
        reached = max(reached, span.stop)
        yield span


def _list_owned(ledger: Ledger) -> Iterator[MapSpan]:
    import numpy as np

    if not ledger.owners:
        return
    columns = [_find_runs(owner) for owner in ledger.owners]
    starts = np.concatenate([starts for starts, *_ in columns])
    stops = np.concatenate([stops for _, stops, *_ in columns])
    rows = np.concatenate([rows for _, _, rows, _ in columns])
    entries = np.concatenate([entries for *_, entries in columns])
    numbers = np.repeat(np.arange(len(columns)), [len(starts) for starts, *_ in columns])
    for place in np.argsort(starts, kind="stable").tolist():
        owner = ledger.owners[int(numbers[place])]
        yield MapSpan(
            int(starts[place]), int(stops[place]), owner.kind, owner.name, int(entries[place]), False, owner,
            int(rows[place]),
        )  # fmt: skip


def _find_runs(owner: Owner) -> _Runs:
    """Start, stop, first row and number of rows of each range; table entries without a gap between are one range."""
    import numpy as np

    rows = owner.sizes.nonzero()[0]
    starts, stops = owner.starts[rows], owner.starts[rows] + owner.sizes[rows]
    if owner.kind != "table" or not len(rows):
        return starts, stops, rows, np.ones(len(rows), np.intp)
    first = np.append([True], starts[1:] != stops[:-1]).nonzero()[0]
    last = np.append(first[1:], len(rows)) - 1
    return starts[first], stops[last], rows[first], last - first + 1


def _list_gaps(ledger: Ledger, source: Source) -> Iterator[MapSpan]:
    gaps = list(_choose_looks(ledger.gaps(source.size)))
    source.prefetch((start, seen) for start, seen, _ in gaps)
    for start, seen, stop in gaps:
        if not _all_zero(source, start, seen):
            yield MapSpan(start, stop, "unknown")
        elif seen < stop:
            yield MapSpan(start, stop, "unread")
        elif stop - start < ledger.pad_to and stop % ledger.pad_to == 0:
            yield MapSpan(start, stop, "padding")
        else:
            yield MapSpan(start, stop, "zeros")


def _choose_looks(gaps: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Each gap as its start, the end of what is read of it, and its stop."""
    left = _LOOKED
    for start, stop in gaps:
        if stop - start <= _PADDING:
            yield start, stop, stop
            continue
        seen = min(stop, start + left)
        left -= seen - start
        yield start, seen, stop


def _all_zero(source: Source, start: int, stop: int) -> bool:
    if stop - start <= 64:
        return not any(source.read(start, stop - start))
    import numpy as np

    return not any(np.frombuffer(chunk, np.uint8).any() for chunk in source.chunks(start, stop - start))
