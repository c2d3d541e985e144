"""Zip archives, read from their central directory with positioned reads; nothing in them is taken on trust.

Two readers of one zip must not see two archives. So what the central directory says and what stands before each
entry must agree, no two entries share a byte or a name, nothing is encrypted, and names are plain relative paths.
Stored entries are ranges of the source; deflated ones are inflated when asked for, never beyond the size they state.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.check import Check
from holdall.errors import FormatError
from holdall.inflated import Inflated
from holdall.layout import Columns, Layout
from holdall.payload import Payload, Range
from holdall.source import contained
from holdall.ziplayout import (
    AGREE,
    CENTRAL,
    CENTRAL_SIGNATURE,
    CRC,
    DEFLATED,
    DESCRIPTOR,
    DIRECTORY,
    DUPLICATE,
    ENCRYPTED,
    END,
    END64,
    END64_SIGNATURE,
    END_MISSING,
    END_PLACE,
    EXTRA,
    LOCAL,
    LOCAL_HEADER,
    LOCAL_SIGNATURE,
    LOCATOR,
    LOCATOR_SIGNATURE,
    METHOD,
    NAME,
    ONE_DISK,
    OVERLAP,
    PATH,
    RANGE,
    SIZES,
    STORED,
    ZIP64,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.format import Tick
    from holdall.ledger import Ledger
    from holdall.source import Source

__all__ = ["STORED", "Archive", "audit", "name_breach", "read_archive"]

_DESCRIBED = 8  # flag: sizes and CRC follow the data
_ENCRYPTED = 0x2041  # flags: encrypted, strongly encrypted, masked header
_LOCAL_FRONT = Layout("local header", **{name: field for name, field in LOCAL.fields.items() if field.kind == "int"})
_PLAIN = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)*", re.ASCII)  # names that need no closer look
_GAP = 4096  # bytes between two headers that are read along
_PIECE = 1 << 20  # bytes of one read of headers


def name_breach(name: str) -> str | None:
    """Why no entry can be called ``name``; None when one can.

    >>> name_breach("layers/0.npy"), name_breach("../x")
    (None, "'../x' is not a plain relative path")
    """
    try:
        if len(name.encode()) > 0xFF00:
            return f"a name of {len(name.encode())} bytes is too long for a zip"
        contained(name)
    except UnicodeEncodeError:
        return f"{name!r} holds half of a surrogate pair, which is no text"
    except FormatError:
        return f"{name!r} is not a plain relative path"
    return None


@dataclass(slots=True)
class Archive:
    """The entries of a zip as columns, in the order of its directory. ``heads`` are the first bytes of their data."""

    source: Source
    names: list[str]
    methods: list[int]
    starts: list[int]  # of the data in the file
    stored: list[int]
    sizes: list[int]
    crcs: list[int]
    heads: list[bytes]
    what: str

    def row(self, name: str) -> int | None:
        """The row of the entry called ``name``."""
        return self.names.index(name) if name in self.names else None

    def payload(self, row: int) -> Payload:
        """The data of an entry: a range of the file, or what a deflated one inflates to."""
        place = Range(self.source, self.starts[row], self.stored[row])
        return place if self.methods[row] == STORED else Inflated(place, self.sizes[row], self.label(row))

    def label(self, row: int) -> str:
        """How messages call an entry."""
        return f"{self.what}: entry {self.names[row]!r}"


def read_archive(source: Source, check: Check, ledger: Ledger, what: str, *, heads: int = 0) -> Archive:
    """The zip in ``source``; ``what`` names the format in messages, ``heads`` asks for the first bytes of entries."""
    start, size, count = _directory(source, check, ledger, what)
    check.limit("index_bytes", size, start, f"{what}: bytes of the zip directory")
    check.limit("tensors", count, start, f"{what}: entries of the zip")
    data = source.read(start, size)
    columns = CENTRAL.scan(data, 0, size, count)
    if columns.failed is not None or columns.end != size or not (columns["signature"] == CENTRAL_SIGNATURE).all():
        message = f"{what}: the zip directory announces {count} entries in {size} bytes, which hold {len(columns)}"
        check.fail(DIRECTORY, start + columns.end, message)
    names = _names(data, columns, start, check, what)
    ledger.scattered(CENTRAL, columns.starts + np.uint64(start), _entry_sizes(columns), names.__getitem__)
    _look_at_entries(columns, names, start, check, what)
    stored, sizes, offsets = _wide(data, columns, names, start, check, what)
    archive = Archive(
        source, names, columns["method"].tolist(), [], stored, sizes, columns["crc"].tolist(), [], what
    )  # fmt: skip
    _locals(archive, data, columns, offsets, start, heads, check, ledger)
    return archive


def _entry_sizes(columns: Columns) -> NDArray[np.uint64]:
    ends: NDArray[np.uint64] = np.append(columns.starts[1:], np.uint64(columns.whole))[: len(columns)]
    return ends - columns.starts


def _directory(source: Source, check: Check, ledger: Ledger, what: str) -> tuple[int, int, int]:
    """Where the central directory starts, its size, and its entries."""
    tail_start = max(0, source.size - END.size - 0xFFFF)
    tail = source.read(tail_start, source.size - tail_start)
    at = len(tail) - END.size
    while at >= 0:
        at = tail.rfind(b"PK\5\6", 0, at + 4)
        if at >= 0 and END.read(tail, at).comment_size == len(tail) - at - END.size:
            break
        at -= 1
    if at < 0:
        message = f"{what}: no end record of a zip in the last bytes: the file may be cut short"
        check.fail(END_MISSING, source.size, message)
    end = END.read(tail, at)
    place = tail_start + at
    ledger.record(END, place)
    if end.comment_size:
        ledger.region("zip comment", place + END.size, end.comment_size)
    count, size, start, disks = end.count, end.size, end.offset, [end.disk, end.first_disk, end.count - end.here]
    if at >= LOCATOR.size and LOCATOR.read(tail, at - LOCATOR.size).signature == LOCATOR_SIGNATURE:
        locator = LOCATOR.read(tail, at - LOCATOR.size)
        place -= LOCATOR.size
        if locator.offset > place - END64.size or place < END64.size:
            check.fail(END_PLACE, place, f"{what}: the zip64 end record is said to be at {locator.offset}")
        wide = END64.read(source.read(locator.offset, END64.size), 0)
        if wide.signature != END64_SIGNATURE or locator.offset + 12 + wide.record_size != place:
            check.fail(END_PLACE, locator.offset, f"{what}: the zip64 end record is not at {locator.offset}")
        ledger.record(LOCATOR, place)
        ledger.record(END64, locator.offset)
        if wide.record_size > END64.size - 12:
            ledger.region("zip64 data", locator.offset + END64.size, wide.record_size + 12 - END64.size)
        narrow = (min(wide.count, 0xFFFF), min(wide.size, 0xFFFFFFFF), min(wide.offset, 0xFFFFFFFF))
        for said, expected, full in zip((count, size, start), narrow, (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF), strict=True):
            if said not in (expected, full):
                check.fail(END_PLACE, place, f"{what}: the two end records say {said} and {expected}")
        count, size, start, place = wide.count, wide.size, wide.offset, locator.offset
        disks += [locator.disk, wide.disk, wide.first_disk, wide.count - wide.here]
    if any(disks):
        check.fail(ONE_DISK, place, f"{what}: the zip is one part of several")
    if start > place or size != place - start:
        message = f"{what}: {size} bytes of directory at {start} do not end at the end record, at {place}"
        check.fail(END_PLACE, place, message)
    return start, size, count


def _names(data: bytes, columns: Columns, start: int, check: Check, what: str) -> list[str]:
    from holdall import kernels

    names, bad = kernels.texts(data, columns["name@"], columns["name_size"])
    if bad >= 0:
        check.fail(NAME, start + int(columns["name@"][bad]), f"{what}: the name of zip entry {bad} is not UTF-8")
    if len(set(names)) != len(names):
        seen: set[str] = set()
        for row, name in enumerate(names):
            if name in seen:
                check.fail(DUPLICATE, start + int(columns.starts[row]), f"{what}: two zip entries are called {name!r}")
            seen.add(name)
    for row, name in enumerate(names):
        wrong = None if _PLAIN.fullmatch(name) else name_breach(name.removesuffix("/"))
        if wrong:
            check.fail(PATH, start + int(columns["name@"][row]), f"{what}: zip entry {row}: the name {wrong}")
    return names


def _look_at_entries(columns: Columns, names: list[str], start: int, check: Check, what: str) -> None:
    at = columns.starts + np.uint64(start)
    with check.together():
        with check.scope():
            check.rows(
                columns["flags"] & np.uint64(_ENCRYPTED) == 0, ENCRYPTED, at,
                lambda row: f"{what}: entry {names[row]!r} is encrypted",
            )  # fmt: skip
        with check.scope():
            check.rows(
                (columns["method"] == STORED) | (columns["method"] == DEFLATED), METHOD, at,
                lambda row: f"{what}: entry {names[row]!r} is compressed by method {columns['method'][row]}",
            )  # fmt: skip
        with check.scope():
            check.rows(columns["disk"] == 0, ONE_DISK, at, lambda row: f"{what}: {names[row]!r} is in another part")


def _wide(
    data: bytes, columns: Columns, names: list[str], start: int, check: Check, what: str
) -> tuple[list[int], list[int], list[int]]:
    """Stored size, size and local offset of every entry, from the zip64 field where 32 bits are too few."""
    stored, sizes, offsets = (columns[name].tolist() for name in ("stored", "size", "offset"))
    full = np.uint64(0xFFFFFFFF)
    wide = (columns["stored"] == full) | (columns["size"] == full) | (columns["offset"] == full)
    for row in wide.nonzero()[0].tolist():
        at, length = int(columns["extra@"][row]), int(columns["extra_size"][row])
        field = _extra(data[at : at + length], ZIP64)
        used = 0
        for column in (sizes, stored, offsets):  # in this order, and only those that do not fit
            if column[row] == 0xFFFFFFFF:
                if field is None or used + 8 > len(field):
                    check.fail(EXTRA, start + at, f"{what}: entry {names[row]!r} has no zip64 field for its sizes")
                column[row] = int.from_bytes(field[used : used + 8], "little")
                used += 8
    return stored, sizes, offsets


def _extra(extra: bytes, wanted: int) -> bytes | None:
    """The extra field of one id."""
    at = 0
    while at + 4 <= len(extra):
        found, size = int.from_bytes(extra[at : at + 2], "little"), int.from_bytes(extra[at + 2 : at + 4], "little")
        if found == wanted and at + 4 + size <= len(extra):
            return extra[at + 4 : at + 4 + size]
        at += 4 + size
    return None


def _locals(
    archive: Archive, data: bytes, columns: Columns, offsets: list[int], end: int, heads: int, check: Check,
    ledger: Ledger,
) -> None:  # fmt: skip
    """Look at the header before every entry, and find where its data begins and that no two meet."""
    lengths = columns["name_size"].tolist()
    positions = columns["name@"].tolist()
    flags = columns["flags"].tolist()
    fronts = [0] * len(offsets)  # bytes of each local header
    reach = [LOCAL.min_size + length + heads for length in lengths]
    for row, (offset, length) in enumerate(zip(offsets, lengths, strict=True)):
        if offset > end or end - offset < LOCAL.min_size + length or end - offset < archive.stored[row]:
            check.fail(RANGE, offset, f"{archive.label(row)} is said to be at {offset}, the directory is at {end}")
        if archive.methods[row] == STORED and archive.stored[row] != archive.sizes[row]:
            message = f"is stored in {archive.stored[row]} bytes and said to have {archive.sizes[row]}"
            check.fail(SIZES, offset, f"{archive.label(row)} {message}")
        if archive.methods[row] == DEFLATED:
            _bound(archive, row, offset, check)
    archive.starts = [0] * len(offsets)
    archive.heads = [b""] * len(offsets)
    order = sorted(range(len(offsets)), key=offsets.__getitem__)
    windows = _Windows(archive.source, [(offsets[row], min(end, offsets[row] + reach[row])) for row in order])
    reached = 0
    descriptors: list[tuple[int, int]] = []
    for place, row in enumerate(order):
        offset = offsets[row]
        window, base = windows.at(place)
        local = _LOCAL_FRONT.read(window, offset - base)
        name = window[offset - base + LOCAL.min_size : offset - base + LOCAL.min_size + local.name_size]
        if local.signature != LOCAL_SIGNATURE:
            check.fail(LOCAL_HEADER, offset, f"{archive.label(row)}: no local header at {offset}")
        if (
            name != data[positions[row] : positions[row] + lengths[row]]
            or local.method != archive.methods[row]
            or (local.flags ^ flags[row]) & (_ENCRYPTED | _DESCRIBED)
            or not _sizes_agree(local, archive, row)
        ):
            check.fail(AGREE, offset, f"{archive.label(row)}: its local header says something else")
        front = LOCAL.min_size + local.name_size + local.extra_size
        data_start = offset + front
        stop = data_start + archive.stored[row]
        if offset < reached or stop > end:
            check.fail(OVERLAP, offset, f"{archive.label(row)} at {offset}..{stop} reaches into its neighbours")
        reached = stop
        if flags[row] & _DESCRIBED:
            tail = archive.source.read(stop, min(24, end - stop))
            reached += _descriptor(tail, archive, row)
            if reached > end:
                check.fail(OVERLAP, stop, f"{archive.label(row)} has no room for what follows its data")
            descriptors.append((stop, reached - stop))
        archive.starts[row] = data_start
        fronts[row] = front
        archive.heads[row] = window[data_start - base : min(data_start + heads, stop) - base]
    if descriptors:
        ledger.regions("data descriptor", [start for start, _ in descriptors], [size for _, size in descriptors])
    ledger.scattered(
        LOCAL, np.array(offsets, np.uint64), np.array(fronts, np.uint64), archive.names.__getitem__
    )  # fmt: skip


def _sizes_agree(local: Any, archive: Archive, row: int) -> bool:
    """What the local header says, where it says it: sizes may follow the data, or be in the zip64 field."""
    if local.flags & _DESCRIBED:
        return True
    wide = (0xFFFFFFFF,)
    return (
        local.crc == archive.crcs[row]
        and local.stored in (archive.stored[row], *wide)
        and local.size in (archive.sizes[row], *wide)
    )


def _descriptor(tail: bytes, archive: Archive, row: int) -> int:
    """Bytes of the data descriptor that follows the data: with or without signature, with 32 or 64 bits."""
    lead = 4 if tail.startswith(DESCRIPTOR) else 0
    wide = archive.stored[row].to_bytes(8, "little") + archive.sizes[row].to_bytes(8, "little")
    return lead + (20 if tail[lead + 4 : lead + 20] == wide else 12)


def _bound(archive: Archive, row: int, at: int, check: Check) -> None:
    limits = check.limits
    check.limit("decompressed_bytes", archive.sizes[row], at, f"{archive.label(row)}: its inflated bytes")
    if archive.sizes[row] > max(limits.decompression_floor, limits.decompression_ratio * archive.stored[row]):
        what = f"{archive.label(row)} inflates {archive.stored[row]} bytes to {archive.sizes[row]}: its ratio"
        check.limit("decompression_ratio", archive.sizes[row] // max(1, archive.stored[row]), at, what)


class _Windows:
    """The bytes of ascending spans, read in few large pieces: each piece holds whole spans."""

    def __init__(self, source: Source, spans: list[tuple[int, int]]) -> None:
        self._source = source
        self._spans = spans
        self._data, self._base, self._known = b"", 0, 0

    def at(self, place: int) -> tuple[bytes, int]:
        """The piece with the span of this place in the list, and where the piece begins."""
        if place >= self._known:
            start, stop = self._spans[place]
            known = place + 1
            for first, last in islice(self._spans, known, None):
                if first - stop > _GAP or last - start > _PIECE:
                    break
                stop, known = max(stop, last), known + 1
            self._data, self._base, self._known = self._source.read(start, stop - start), start, known
        return self._data, self._base


def audit(archive: Archive, check: Check, tick: Tick) -> None:
    """The CRC-32 of every entry, at level full."""
    from holdall.checksums import crc32_of

    for row in range(len(archive.names)):
        with check.scope():
            if archive.methods[row] == STORED:
                start = archive.starts[row]
                found = crc32_of(archive.source, start, start + archive.stored[row], tick)
            else:
                found = 0
                for piece in archive.payload(row).chunks():
                    found = zlib.crc32(piece, found)
                tick(archive.stored[row])
            if found != archive.crcs[row]:
                message = f"{archive.label(row)}: its CRC-32 is {found:08x}, the directory says {archive.crcs[row]:08x}"
                check.note(CRC, archive.starts[row], message)
