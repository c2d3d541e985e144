"""Zip archives, read from their central directory with positioned reads; nothing in them is taken on trust.

Two readers of one zip must not see two archives. So what the central directory says and what stands before each
entry must agree, no two entries share a byte or a name, nothing is encrypted, and names are plain relative paths.
Stored entries are ranges of the source; deflated ones are inflated when asked for, never beyond the size they state.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from holdall.check import Check
from holdall.inflated import Inflated
from holdall.payload import Payload, Range, Span
from holdall.proof import Proof
from holdall.zipdirectory import Directory, name_breach, read_directory
from holdall.ziplayout import CRC, DEFLATED, LOCAL, RANGE, SIZES, STORED
from holdall.ziplocals import Look, find_data

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.format import Tick
    from holdall.ledger import Ledger
    from holdall.source import Source

__all__ = ["STORED", "Archive", "audit", "name_breach", "read_archive"]


@dataclass(slots=True)
class Archive:
    """The entries of a zip as columns, in the order of its directory."""

    source: Source
    directory: Directory
    starts: NDArray[np.uint64]  # of the data in the file
    what: str
    proving: bool | None = None  # whether deflated entries are checked: before a byte is handed out, never, at the end
    _sorted: tuple[list[int], list[int]] | None = field(default=None, repr=False)  # starts in order, and their rows

    @property
    def names(self) -> list[str]:
        """What the entries are called."""
        return self.directory.names

    @property
    def methods(self) -> NDArray[np.uint64]:
        """STORED, or another way of compression."""
        return self.directory.methods

    @property
    def stored(self) -> NDArray[np.uint64]:
        """Bytes in the file."""
        return self.directory.stored

    @property
    def sizes(self) -> NDArray[np.uint64]:
        """Bytes, inflated."""
        return self.directory.sizes

    def row(self, name: str) -> int | None:
        """The row of the entry called ``name``."""
        return self.names.index(name) if name in self.names else None

    def payload(self, row: int) -> Payload:
        """The data of an entry: a range of the file, or what a deflated one inflates to."""
        place = Range(self.source, int(self.starts[row]), int(self.stored[row]))
        if self.methods[row] == STORED:
            return place
        proof = None if self.proving is False else self.proof(row)
        return Inflated(place, int(self.sizes[row]), self.label(row), proof, first=self.proving is True)

    def proofs(self, spans: Iterable[Span]) -> Iterator[Proof]:
        """The CRC-32 of the stored entries that hold ``spans``; deflated ones prove themselves."""
        if self._sorted is None:
            order = np.argsort(self.starts, kind="stable")
            self._sorted = self.starts[order].tolist(), order.tolist()
        starts, rows = self._sorted
        for source, start, stop in spans:
            if source is not self.source or not starts:
                continue
            place = bisect_right(starts, start) - 1
            row = rows[place]
            if place >= 0 and self.methods[row] == STORED and stop <= starts[place] + int(self.stored[row]):
                yield self.proof(row)

    def proof(self, row: int) -> Proof:
        """What the directory states of the bytes of an entry, inflated."""
        start = int(self.starts[row])
        stop, crc = start + int(self.stored[row]), int(self.directory.crcs[row])
        return Proof(self.source, start, stop, "crc32", crc, CRC.id, self.label(row), stated="the directory")

    @property
    def notes(self) -> list[str]:
        """What is worth telling when the archive is written again: entries are stored then."""
        count = int((self.methods != STORED).sum())
        noun = "entry was" if count == 1 else "entries were"
        return [f"{count} {noun} compressed: written uncompressed"] if count else []

    def label(self, row: int) -> str:
        """How messages call an entry."""
        return f"{self.what}: entry {self.names[row]!r}"


def read_archive(
    source: Source, check: Check, ledger: Ledger, what: str, *, heads: int = 0, look: Look | None = None
) -> Archive:
    """The zip in ``source``; ``what`` names the format in messages, ``look`` is shown ``heads`` bytes of entries."""
    directory = read_directory(source, check, ledger, what)
    _look_at_ranges(directory, check, what)
    _look_at_total(directory, source.size, check, what)
    starts = find_data(source, directory, what, heads, look, check, ledger)
    return Archive(source, directory, starts, what, check.proving)


def _look_at_ranges(directory: Directory, check: Check, what: str) -> None:
    """Entries lie before the directory, and state sizes that can be."""
    end, limits = np.uint64(directory.start), check.limits
    room = np.where(directory.offsets <= end, end - directory.offsets, np.uint64(0))
    front = np.uint64(LOCAL.min_size) + directory.name_size
    inside = (directory.offsets <= end) & (room >= front) & (room >= directory.stored)
    plain = (directory.methods == STORED) & (directory.stored == directory.sizes)
    modest = (directory.methods == DEFLATED) & (
        directory.sizes <= np.uint64(min(limits.decompressed_bytes, limits.decompression_floor, (1 << 63) - 1))
    )
    for row in (~(inside & (plain | modest))).nonzero()[0].tolist():
        offset, stored, size = (int(column[row]) for column in (directory.offsets, directory.stored, directory.sizes))
        label = f"{what}: entry {directory.names[row]!r}"
        if not inside[row]:
            check.fail(RANGE, offset, f"{label} is said to be at {offset}, the directory is at {directory.start}")
        if directory.methods[row] == STORED:
            check.fail(SIZES, offset, f"{label} is stored in {stored} bytes and said to have {size}")
        check.limit("decompressed_bytes", size, offset, f"{label}: its inflated bytes")
        if size > max(limits.decompression_floor, limits.decompression_ratio * stored):
            shown = f"{label} inflates {stored} bytes to {size}: its ratio"
            check.limit("decompression_ratio", size // max(1, stored), offset, shown)


def _look_at_total(directory: Directory, file_size: int, check: Check, what: str) -> None:
    """All entries together inflate to no more than one entry as large as the file might, beyond what always may be."""
    limits = check.limits
    total = sum(directory.sizes[directory.methods == DEFLATED].tolist())
    if total > limits.decompression_floor + limits.decompression_ratio * file_size:
        shown = f"{what}: {file_size} bytes inflate to {total}: the ratio of all entries"
        ratio = (total - limits.decompression_floor) // max(1, file_size) + 1
        check.limit("decompression_ratio", ratio, directory.start, shown)


def audit(archive: Archive, check: Check, tick: Tick) -> None:
    """The CRC-32 of every entry, at level full."""
    from holdall.checksums import crc32_of

    for row in range(len(archive.names)):
        with check.scope():
            if archive.methods[row] == STORED:
                proof = archive.proof(row)
                proof.compare(crc32_of(archive.source, proof.start, proof.stop, tick))
            else:
                deque(archive.payload(row).chunks(), 0)
                tick(int(archive.stored[row]))
