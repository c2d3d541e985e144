"""Zip archives, read from their central directory with positioned reads; nothing in them is trusted.

Two readers of one zip must not see two archives. So the central directory and the local headers must agree, no two
entries share a byte or a name, nothing is encrypted, and names are plain relative paths. Stored entries are ranges of
the source; deflated ones are inflated when they are read, and never beyond their stated size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.check import Check
from holdall.binary.columns import fit
from holdall.format.proof import Proof, Stated
from holdall.format.proof_rows import ProofRows
from holdall.format.zip.directory import Directory, name_breach, read_directory
from holdall.format.zip.inflate import InflatedPayload
from holdall.format.zip.layout import CRC, DEFLATED, LOCAL, RANGE, SIZES, STORED
from holdall.format.zip.local_headers import HeadReader, find_data
from holdall.model.payload import Payload, SourceRange, Span
from holdall.model.ranges import Ranges

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.format.base import OnProgress
    from holdall.source import Source
    from holdall.source.ledger import Ledger

__all__ = ["STORED", "Archive", "name_breach", "read_archive"]

_FEW = 16  # proofs for which columns do not pay
_USUAL_RATIO = 8  # of weights: an entry that inflates to no more is in proportion to its file, however large it is


@dataclass(slots=True)
class Archive:
    """The entries of a zip as columns, in the order of its directory."""

    source: Source
    directory: Directory
    starts: NDArray[np.uint64]  # where the data of each entry begins in the file
    what: str  # the format, for messages
    # When the CRC-32 of deflated entries is checked: before their first byte (True), after the last (None), or never.
    proving: bool | None = None
    _sorted: tuple[NDArray[np.uint64], NDArray[np.intp]] | None = field(default=None, repr=False)

    @property
    def names(self) -> list[str]:
        """The names of the entries."""
        return self.directory.names

    @property
    def methods(self) -> NDArray[np.uint64]:
        """The compression of each entry: STORED or DEFLATED."""
        return self.directory.methods

    @property
    def stored(self) -> NDArray[np.uint64]:
        """Bytes of each entry in the file."""
        return self.directory.stored

    @property
    def sizes(self) -> NDArray[np.uint64]:
        """Bytes of each entry, inflated."""
        return self.directory.sizes

    def row(self, name: str) -> int | None:
        """The row of the entry called ``name``; None if there is none."""
        return self.names.index(name) if name in self.names else None

    def payload(self, row: int) -> Payload:
        """The data of an entry: a range of the file, or the inflated bytes of a deflated one."""
        place = SourceRange(self.source, int(self.starts[row]), int(self.stored[row]))
        if self.methods[row] == STORED:
            return place
        proof = None if self.proving is False else self.proof(row)
        return InflatedPayload(place, int(self.sizes[row]), self.label(row), proof, first=self.proving is True)

    def proofs(self, spans: Iterable[Span]) -> Iterator[Stated]:
        """The CRC-32 of the stored entries that hold ``spans``; deflated payloads check their own."""
        rows = self._find_entries(Ranges.of_spans(spans))
        if len(rows) <= _FEW:
            yield from map(self.proof, rows.tolist())
            return
        starts, crcs = self.starts[rows], self.directory.crcs[rows].astype(np.uint32)
        yield ProofRows(self.source, starts, starts + self.stored[rows], crcs, lambda row: self.proof(int(rows[row])))

    def _find_entries(self, ranges: Ranges) -> NDArray[np.intp]:
        """Find the stored entries that hold ``ranges``, each once and in file order."""
        own = np.array([source is self.source for source in ranges.sources] + [False], np.bool_)
        wanted = ranges.take(own[ranges.owners].nonzero()[0])
        if self._sorted is None:
            by_start: NDArray[np.intp] = np.argsort(self.starts, kind="stable")
            self._sorted = self.starts[by_start], by_start
        starts, order = self._sorted
        places = np.searchsorted(starts, wanted.starts, "right").astype(np.intp) - 1
        places, wanted = places[places >= 0], wanted.take((places >= 0).nonzero()[0])
        rows = order[places]
        inside = fit(wanted.starts, wanted.sizes, starts[places] + self.stored[rows])
        found: NDArray[np.intp] = order[np.unique(places[inside & (self.methods[rows] == STORED)])]
        return found

    def proof(self, row: int) -> Proof:
        """The CRC-32 that the directory states for an entry."""
        start = int(self.starts[row])
        stop, crc = start + int(self.stored[row]), int(self.directory.crcs[row])
        return Proof(self.source, start, stop, "crc32", crc, CRC.id, self.label(row), stated="the directory")

    def audit(self, check: Check, on_progress: OnProgress) -> None:
        """Check the CRC-32 of every entry."""
        from holdall.source.range_crc32 import crc32_of

        for row in range(len(self.names)):
            with check.scope():
                if self.methods[row] == STORED:
                    proof = self.proof(row)
                    proof.compare(crc32_of(self.source, proof.start, proof.stop, on_progress))
                else:
                    deque(self.payload(row).chunks(), 0)
                    on_progress(int(self.stored[row]))

    @property
    def notes(self) -> list[str]:
        """Notes for a report when the archive is written again, since entries are stored then."""
        count = int((self.methods != STORED).sum())
        noun = "entry was" if count == 1 else "entries were"
        return [f"{count} {noun} compressed: written uncompressed"] if count else []

    def label(self, row: int) -> str:
        """How messages call an entry."""
        return f"{self.what}: entry {self.names[row]!r}"


def read_archive(
    source: Source, check: Check, ledger: Ledger, what: str, *, heads: int = 0, read_heads: HeadReader | None = None
) -> Archive:
    """Read the zip in ``source``; ``what`` names the format in messages.

    ``read_heads`` receives the first bytes of entries, ``heads`` of each or as many as it has.
    """
    directory = read_directory(source, check, ledger, what)
    _check_ranges(directory, source.size, check, what)
    _check_total(directory, source.size, check, what)
    starts = find_data(source, directory, what, heads, read_heads, check, ledger)
    return Archive(source, directory, starts, what, check.proving)


def _check_ranges(directory: Directory, file_size: int, check: Check, what: str) -> None:
    """Entries lie before the directory, and their sizes are possible and within the limits."""
    limits, front = check.limits, np.uint64(LOCAL.min_size) + directory.name_size
    inside = fit(directory.offsets, np.maximum(front, directory.stored), directory.start)
    plain = (directory.methods == STORED) & (directory.stored == directory.sizes)
    modest = (directory.methods == DEFLATED) & (
        directory.sizes <= np.uint64(min(limits.decompressed_bytes, limits.decompression_floor, (1 << 63) - 1))
    )
    for row in (~(inside & (plain | modest))).nonzero()[0].tolist():
        offset, stored, size = (int(column[row]) for column in (directory.offsets, directory.stored, directory.sizes))
        label = f"{what}: entry {directory.names[row]!r}"
        if not inside[row]:
            check.fail(RANGE, offset, f"{label} is stated to be at {offset}, the directory is at {directory.start}")
        if directory.methods[row] == STORED:
            check.fail(SIZES, offset, f"{label} is stored in {stored} bytes, but its stated size is {size}")
        if size <= _USUAL_RATIO * stored:
            continue
        check.limit("decompressed_bytes", size, offset, f"{label}: its inflated bytes")
        ratio = limits.decompression_ratio
        if size > max(limits.decompression_floor, ratio * stored, ratio * file_size // 2):
            shown = f"{label} inflates {stored} bytes to {size}: its ratio"
            check.limit("decompression_ratio", size // max(1, stored), offset, shown)


def _check_total(directory: Directory, file_size: int, check: Check, what: str) -> None:
    """All entries together inflate to no more than one entry of the file's size may."""
    limits = check.limits
    total = sum(directory.sizes[directory.methods == DEFLATED].tolist())
    if total > limits.model_floor + limits.decompression_ratio * file_size:
        shown = f"{what}: {file_size} bytes inflate to {total}: above {limits.model_floor}, always allowed, the ratio"
        ratio = (total - limits.model_floor) // max(1, file_size) + 1
        check.limit("decompression_ratio", ratio, directory.start, shown)
