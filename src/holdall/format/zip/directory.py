"""The central directory of a zip archive: finding it, and its entries as checked columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from holdall.base.check import Check
from holdall.base.repeats import find_repeat
from holdall.base.utf8 import utf8_breach
from holdall.binary.layout import Columns
from holdall.errors import FormatError
from holdall.format.zip.layout import (
    CENTRAL,
    CENTRAL_SIGNATURE,
    DEFLATED,
    DIRECTORY,
    DUPLICATE,
    ENCRYPTED,
    ENCRYPTED_FLAGS,
    END,
    END64,
    END64_SIGNATURE,
    END_MISSING,
    END_PLACE,
    END_SIGNATURE,
    END_TWICE,
    END_WIDE,
    EXTRA,
    FOLDER,
    FOLDER_MARK,
    LOCATOR,
    LOCATOR_SIGNATURE,
    METHOD,
    NAME,
    NAME_TWICE,
    ONE_DISK,
    OTHER_NAME,
    PATH,
    STORED,
    UTF8_FLAG,
    ZIP64,
)
from holdall.source import split_contained

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source
    from holdall.source.ledger import Ledger

__all__ = ["Directory", "gather", "name_breach", "read_directory"]

_END_MARK = END_SIGNATURE.to_bytes(4, "little")
_FULL = np.uint64(0xFFFFFFFF)  # a number that is in the zip64 field instead
# Names, one a line, that are certainly plain paths: no part is empty or all dots, and there is no backslash, colon or
# control character. A name with a line feed in it is plain if each of its lines is.
_PLAIN = re.compile(r"(?:\.?\w[ -.0-9;-\[\]-~\x80-\U0010ffff]*+[/\n])*+")


@dataclass(frozen=True, slots=True)
class Directory:
    """The entries in the order of the directory. ``name_at`` and ``name_size`` locate the names in ``data``."""

    start: int  # where the directory begins in the file: entries lie before it
    data: bytes
    names: list[str]
    name_at: NDArray[np.uint64]
    name_size: NDArray[np.uint64]
    flags: NDArray[np.uint64]
    methods: NDArray[np.uint64]
    crcs: NDArray[np.uint64]
    stored: NDArray[np.uint64]
    sizes: NDArray[np.uint64]
    offsets: NDArray[np.uint64]  # where the local headers begin

    def starts_with(self, text: str) -> NDArray[np.bool_]:
        """Which names begin with ``text``."""
        return self._compare_names(text.encode(), self.name_at)

    def ends_with(self, text: str) -> NDArray[np.bool_]:
        """Which names end in ``text``."""
        size = np.uint64(len(text.encode()))
        return self._compare_names(text.encode(), self.name_at + self.name_size - np.minimum(size, self.name_size))

    def _compare_names(self, wanted: bytes, at: NDArray[np.uint64]) -> NDArray[np.bool_]:
        found = np.zeros(len(at), np.bool_)
        rows = (self.name_size >= len(wanted)).nonzero()[0]
        found[rows] = gather(self.data, f"V{len(wanted)}", at[rows]) == np.void(wanted)
        return found


def name_breach(name: str) -> str | None:
    """Why no entry can be called ``name``; None when one can.

    >>> name_breach("layers/0.npy"), name_breach("../x")
    (None, "'../x' is not a plain relative path")
    """
    if len(name) < 0xFF00 and name.isascii() and _PLAIN.fullmatch(f"{name}\n"):
        return None
    wrong = utf8_breach(name)
    if wrong:
        return wrong
    if len(name.encode()) > 0xFF00:
        return f"a name of {len(name.encode())} bytes is too long for a zip"
    try:
        split_contained(name)
    except FormatError:
        return f"{name!r} is not a plain relative path"
    return None


def gather(data: bytes, dtype: np.dtype[np.void] | str, at: NDArray[np.uint64]) -> NDArray[np.void]:
    """Read the records of one type at the places ``at``, aligned or not. The caller has checked the range."""
    kind = np.dtype(dtype)
    if not len(at):
        return np.empty(0, kind)
    return np.ndarray(len(data) - kind.itemsize + 1, kind, data, strides=(1,))[at]


def read_directory(source: Source, check: Check, ledger: Ledger, what: str) -> Directory:
    """Read the directory of the zip in ``source``; ``what`` names the format in messages."""
    start, size, count = _find_directory(source, check, ledger, what)
    check.limit("index_bytes", size, start, f"{what}: bytes of the zip directory")
    check.limit("tensors", count, start, f"{what}: entries of the zip")
    data = source.read(start, size)
    columns = CENTRAL.scan(data, 0, size, count)
    if columns.failed is not None or columns.end != size or not (columns["signature"] == CENTRAL_SIGNATURE).all():
        message = f"{what}: the zip directory announces {count} entries in {size} bytes, which hold {len(columns)}"
        check.fail(DIRECTORY, start + columns.end, message)
    names = _read_names(data, columns, start, check, what)
    ledger.add_scattered(CENTRAL, columns.starts + np.uint64(start), _entry_sizes(columns), names.__getitem__)
    _check_entries(data, columns, names, start, check, what)
    _refuse_other_names(data, columns, names, start, check, what)
    stored, sizes, offsets = _read_wide_numbers(data, columns, names, start, check, what)
    return Directory(
        start, data, names, columns["name@"], columns["name_size"], columns["flags"], columns["method"],
        columns["crc"], stored, sizes, offsets,
    )  # fmt: skip


def _entry_sizes(columns: Columns) -> NDArray[np.uint64]:
    ends: NDArray[np.uint64] = np.append(columns.starts[1:], np.uint64(columns.whole))[: len(columns)]
    return ends - columns.starts


def _find_directory(source: Source, check: Check, ledger: Ledger, what: str) -> tuple[int, int, int]:
    """Find where the central directory starts, its size, and the number of its entries."""
    tail_start = max(0, source.size - END.size - 0xFFFF)
    tail = source.read(tail_start, source.size - tail_start)
    at = _find_end(tail)
    if at is None:
        message = f"{what}: no end record of a zip in the last bytes: the file may be cut short"
        check.fail(END_MISSING, source.size, message)
    end = END.read(tail, at)
    place = tail_start + at
    other = tail.find(_END_MARK, at + END.size)
    if other >= 0:
        message = f"{what}: another end record of a zip is in the comment of the one at {place}"
        check.fail(END_TWICE, tail_start + other, message)
    ledger.record(END, place)
    if end.comment_size:
        ledger.region("zip comment", place + END.size, end.comment_size)
    count, size, start, disks = end.count, end.size, end.offset, [end.disk, end.first_disk, end.count - end.here]
    if at >= LOCATOR.size and LOCATOR.read(tail, at - LOCATOR.size).signature == LOCATOR_SIGNATURE:
        locator = LOCATOR.read(tail, at - LOCATOR.size)
        place -= LOCATOR.size
        wide = _read_end64(source, locator, place, check, ledger, what)
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


def _find_end(tail: bytes) -> int | None:
    """Find where the end record lies in the last bytes of the file: its comment must end with the file."""
    at = len(tail) - END.size
    while at >= 0:
        at = tail.rfind(_END_MARK, 0, at + 4)
        if at >= 0 and END.read(tail, at).comment_size == len(tail) - at - END.size:
            return at
        at -= 1
    return None


def _read_end64(
    source: Source, locator: SimpleNamespace, place: int, check: Check, ledger: Ledger, what: str
) -> SimpleNamespace:
    """Read the zip64 end record, which must end where its locator begins, at ``place``."""
    if locator.offset > place - END64.size or place < END64.size:
        check.fail(END_PLACE, place, f"{what}: the zip64 end record is stated to be at {locator.offset}")
    wide = END64.read(source.read(locator.offset, END64.size), 0)
    if wide.signature != END64_SIGNATURE or locator.offset + 12 + wide.record_size != place:
        check.fail(END_PLACE, locator.offset, f"{what}: the zip64 end record is not at {locator.offset}")
    if wide.record_size != END64.size - 12:
        message = f"{what}: the zip64 end record says {wide.record_size} bytes, its fields take {END64.size - 12}"
        check.fail(END_WIDE, locator.offset, message)
    ledger.record(LOCATOR, place)
    ledger.record(END64, locator.offset)
    return wide


def _read_names(data: bytes, columns: Columns, start: int, check: Check, what: str) -> list[str]:
    """Read the names of all entries: UTF-8, unique, and plain relative paths."""
    from holdall.binary import kernels

    names, bad = kernels.texts(data, columns["name@"], columns["name_size"])
    if bad >= 0:
        check.fail(NAME, start + int(columns["name@"][bad]), f"{what}: the name of zip entry {bad} is not UTF-8")
    if not "".join(names).isascii():
        _check_marks(columns, names, start, check, what)
    repeat = find_repeat(names)
    if repeat is not None:
        at = start + int(columns.starts[repeat])
        check.fail(DUPLICATE, at, f"{what}: two zip entries are called {names[repeat]!r}")
    if _PLAIN.fullmatch("\n".join([*names, ""])):
        return names
    for row, name in enumerate(names):
        wrong = None if _PLAIN.fullmatch(f"{name}\n") else name_breach(name.removesuffix("/"))
        if wrong:
            check.fail(PATH, start + int(columns["name@"][row]), f"{what}: zip entry {row}: the name {wrong}")
    return names


def _check_marks(columns: Columns, names: list[str], start: int, check: Check, what: str) -> None:
    """Names that are not marked as UTF-8 are ASCII: other readers take such bytes for another code page."""
    for row in (columns["flags"] & np.uint64(UTF8_FLAG) == 0).nonzero()[0].tolist():
        if not names[row].isascii():
            message = f"{what}: the name of zip entry {row}, {names[row]!r}, is not ASCII and not marked as UTF-8"
            check.fail(NAME, start + int(columns["name@"][row]), message)


def _refuse_other_names(data: bytes, columns: Columns, names: list[str], start: int, check: Check, what: str) -> None:
    """Readers that know the field of Info-ZIP, zipfile since Python 3.12 among them, take its name for the entry's."""
    at, room = columns["extra@"], columns["extra_size"]
    rows = (room >= 9).nonzero()[0]
    head = gather(data, "<u4", at[rows]).astype(np.uint64)
    # One field of another kind is usual, that of zip64: it needs no look.
    odd = (head >> np.uint64(16) != room[rows] - np.uint64(4)) | (head & np.uint64(0xFFFF) == OTHER_NAME)
    for row in rows[odd].tolist():
        place = int(at[row])
        for field, size in _list_extra_fields(data, place, place + int(room[row]), OTHER_NAME):
            name = names[row].encode()
            stated, other = int.from_bytes(data[field + 1 : field + 5], "little"), data[field + 5 : field + size]
            # The field of an entry that was renamed has the CRC-32 of the old name, and is ignored.
            if other and other != name and stated == crc32(name):
                message = f"{what}: entry {names[row]!r} is called {other[:80]!r} by an extra field"
                check.fail(NAME_TWICE, start + field, message)


def _check_entries(data: bytes, columns: Columns, names: list[str], start: int, check: Check, what: str) -> None:
    at = columns.starts + np.uint64(start)
    with check.together():
        with check.scope():
            check.rows(
                columns["flags"] & np.uint64(ENCRYPTED_FLAGS) == 0, ENCRYPTED, at,
                lambda row: f"{what}: entry {names[row]!r} is encrypted",
            )  # fmt: skip
        with check.scope():
            check.rows(
                (columns["method"] == STORED) | (columns["method"] == DEFLATED), METHOD, at,
                lambda row: f"{what}: entry {names[row]!r} is compressed by method {columns['method'][row]}",
            )  # fmt: skip
        with check.scope():
            content = (columns["size"] > 0) | (columns["stored"] > 0)
            last = gather(data, "u1", columns["name@"] + columns["name_size"] - np.uint64(1))
            marked = (columns["external"] & np.uint64(FOLDER_MARK) != 0) | (last == ord("/"))
            check.rows(
                ~(content & marked), FOLDER, at,
                lambda row: f"{what}: entry {names[row]!r} has {columns['size'][row]} bytes, and is called a folder",
            )  # fmt: skip
        with check.scope():
            check.rows(columns["disk"] == 0, ONE_DISK, at, lambda row: f"{what}: {names[row]!r} is in another part")


def _read_wide_numbers(
    data: bytes, columns: Columns, names: list[str], start: int, check: Check, what: str
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
    """Stored size, size and local offset of every entry, from the zip64 field where 32 bits are too few."""
    stored, sizes, offsets = (columns[name].copy() for name in ("stored", "size", "offset"))
    order = (sizes, stored, offsets)  # as in the field, which has only the numbers that do not fit
    full = [(column == _FULL).nonzero()[0] for column in order]
    rows = np.flatnonzero((sizes == _FULL) | (stored == _FULL) | (offsets == _FULL))
    if not len(rows):
        return stored, sizes, offsets
    used = np.zeros(len(names), np.uint64)
    for places in full:
        used[places] += np.uint64(8)
    field = _find_leading_fields(data, columns, used, rows)
    for row in rows[field[rows] == 0].tolist():
        at, length = int(columns["extra@"][row]), int(columns["extra_size"][row])
        found = _find_extra_field(data, at, at + length, ZIP64, int(used[row]))
        if found is None:
            check.fail(EXTRA, start + at, f"{what}: entry {names[row]!r} has no zip64 field for its sizes")
        field[row] = found
    for column, places in zip(order, full, strict=True):
        column[places] = gather(data, "<u8", field[places])
        field[places] += np.uint64(8)
    return stored, sizes, offsets


def _find_leading_fields(
    data: bytes, columns: Columns, used: NDArray[np.uint64], rows: NDArray[np.intp]
) -> NDArray[np.uint64]:
    """Find where the zip64 field begins, in those of ``rows`` whose first extra field it is; else 0."""
    at, room = columns["extra@"], columns["extra_size"]
    rows = rows[room[rows] >= 4]
    field = np.zeros(len(used), np.uint64)
    head = gather(data, "<u4", at[rows]).astype(np.uint64)
    size = head >> np.uint64(16)
    first = (head & np.uint64(0xFFFF) == ZIP64) & (size >= used[rows]) & (size + np.uint64(4) <= room[rows])
    field[rows[first]] = at[rows[first]] + np.uint64(4)
    return field


def _find_extra_field(data: bytes, at: int, stop: int, wanted: int, least: int) -> int | None:
    """Find where the extra field ``wanted`` begins; None if there is none of at least ``least`` bytes."""
    place, size = next(_list_extra_fields(data, at, stop, wanted), (0, -1))
    return place if size >= least else None


def _list_extra_fields(data: bytes, at: int, stop: int, wanted: int) -> Iterator[tuple[int, int]]:
    """List where each extra field ``wanted`` begins, and its size."""
    while at + 4 <= stop:
        found, size = int.from_bytes(data[at : at + 2], "little"), int.from_bytes(data[at + 2 : at + 4], "little")
        if found == wanted and at + 4 + size <= stop:
            yield at + 4, size
        at += 4 + size
