"""Takes a file apart with its own reader: records with named fields, regions, payloads, each with its place.

The parts come from the ledger that reading leaves behind, so a damaged file has as many as its reader reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from holdall.errors import FormatError
from holdall.operations.examine import examine
from holdall.operations.explain import expand, list_records
from holdall.source import Source
from holdall.source.deferred import DeferredSource
from holdall.source.ledger import Ledger

__all__ = ["Field", "FilePart", "anatomy"]

_ROWS = 8  # of each table


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record. ``value`` is an integer where ``kind`` is "int"."""

    name: str
    kind: str
    start: int
    size: int
    value: object


@dataclass(frozen=True, slots=True)
class FilePart:
    """A record, a region or a payload; ``member`` is the file of the set that it is in."""

    member: str
    kind: str
    name: str
    start: int
    size: int
    fields: dict[str, Field] = field(default_factory=dict)

    @property
    def stop(self) -> int:
        """The first byte after the part."""
        return self.start + self.size


def anatomy(source: Source, format: str) -> list[FilePart]:
    """Return the parts of a file, or of all files of a set."""
    with examine(source, format=format) as seen:
        files = [] if source.is_folder else [(source, seen.ledger)]
        return [part for file, ledger in (*files, *seen.ledger.members) for part in _parts(file, ledger)]


def _parts(source: Source, ledger: Ledger) -> Iterator[FilePart]:
    member = source.member or (source.name if isinstance(source, DeferredSource) else "")
    for owner in ledger.owners:
        for record in islice(list_records(owner), _ROWS):
            if record.size == 0 or record.start + record.size > source.size:
                continue
            fields: dict[str, Field] = {}
            if owner.layout is not None:
                try:
                    rows = expand(record, source)
                except FormatError:
                    continue
                kinds = owner.layout.fields
                fields = {
                    row.name: Field(row.name, kinds[row.name].kind, row.offset, row.size, row.value) for row in rows
                }
            yield FilePart(member, owner.kind, owner.name, record.start, record.size, fields)
