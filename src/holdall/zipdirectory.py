"""The central directory of a zip archive: where it is, and its entries as columns that were looked at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from holdall.check import Check
from holdall.errors import FormatError
from holdall.layout import Columns
from holdall.source import contained
from holdall.ziplayout import (
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
    EXTRA,
    LOCATOR,
    LOCATOR_SIGNATURE,
    METHOD,
    NAME,
    ONE_DISK,
    PATH,
    STORED,
    ZIP64,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.ledger import Ledger
    from holdall.source import Source

__all__ = ["Directory", "gather", "name_breach", "read_directory"]

_FULL = np.uint64(0xFFFFFFFF)  # a number that is in the zip64 field instead
# Names that need no closer look, one a line: no part is empty or all dots, and there is no backslash, colon or control
# character. What is plain between line ends is plain with them inside, too.
_PLAIN = re.compile(r"(?:\.?\w[ -.0-9;-\[\]-~\x80-\U0010ffff]*+[/\n])*+")


@dataclass(frozen=True, slots=True)
class Directory:
    """The entries in the order of the directory. ``name_at`` and ``name_size`` are places in ``data``."""

    start: int  # of the directory in the file: entries lie before it
    data: bytes
    names: list[str]
    name_at: NDArray[np.uint64]
    name_size: NDArray[np.uint64]
    flags: NDArray[np.uint64]
    methods: NDArray[np.uint64]
    crcs: NDArray[np.uint64]
    stored: NDArray[np.uint64]
    sizes: NDArray[np.uint64]
    offsets: NDArray[np.uint64]  # of the local headers

    def begins(self, text: str) -> NDArray[np.bool_]:
        """Which names begin with ``text``."""
        return self._have(text.encode(), self.name_at)

    def ends(self, text: str) -> NDArray[np.bool_]:
        """Which names end in ``text``."""
        size = np.uint64(len(text.encode()))
        return self._have(text.encode(), self.name_at + self.name_size - np.minimum(size, self.name_size))

    def _have(self, wanted: bytes, at: NDArray[np.uint64]) -> NDArray[np.bool_]:
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
    try:
        if len(name.encode()) > 0xFF00:
            return f"a name of {len(name.encode())} bytes is too long for a zip"
        contained(name)
    except UnicodeEncodeError:
        return f"{name!r} holds half of a surrogate pair, which is no text"
    except FormatError:
        return f"{name!r} is not a plain relative path"
    return None


def gather(data: bytes, dtype: np.dtype[np.void] | str, at: NDArray[np.uint64]) -> NDArray[np.void]:
    """The records of one type at the places ``at``, aligned or not. The caller has made sure that they are inside."""
    kind = np.dtype(dtype)
    if not len(at):
        return np.empty(0, kind)
    return np.ndarray(len(data) - kind.itemsize + 1, kind, data, strides=(1,))[at]


def read_directory(source: Source, check: Check, ledger: Ledger, what: str) -> Directory:
    """The directory of the zip in ``source``; ``what`` names the format in messages."""
    start, size, count = _find(source, check, ledger, what)
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
    return Directory(
        start, data, names, columns["name@"], columns["name_size"], columns["flags"], columns["method"],
        columns["crc"], stored, sizes, offsets,
    )  # fmt: skip


def _entry_sizes(columns: Columns) -> NDArray[np.uint64]:
    ends: NDArray[np.uint64] = np.append(columns.starts[1:], np.uint64(columns.whole))[: len(columns)]
    return ends - columns.starts


def _find(source: Source, check: Check, ledger: Ledger, what: str) -> tuple[int, int, int]:
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
    if _PLAIN.fullmatch("\n".join([*names, ""])):
        return names
    for row, name in enumerate(names):
        wrong = None if _PLAIN.fullmatch(f"{name}\n") else name_breach(name.removesuffix("/"))
        if wrong:
            check.fail(PATH, start + int(columns["name@"][row]), f"{what}: zip entry {row}: the name {wrong}")
    return names


def _look_at_entries(columns: Columns, names: list[str], start: int, check: Check, what: str) -> None:
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
            check.rows(columns["disk"] == 0, ONE_DISK, at, lambda row: f"{what}: {names[row]!r} is in another part")


def _wide(
    data: bytes, columns: Columns, names: list[str], start: int, check: Check, what: str
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
    """Stored size, size and local offset of every entry, from the zip64 field where 32 bits are too few."""
    stored, sizes, offsets = (columns[name].copy() for name in ("stored", "size", "offset"))
    order = (sizes, stored, offsets)  # of the numbers in the field, and only those that do not fit are there
    full = [(column == _FULL).nonzero()[0] for column in order]
    rows = np.flatnonzero((sizes == _FULL) | (stored == _FULL) | (offsets == _FULL))
    if not len(rows):
        return stored, sizes, offsets
    used = np.zeros(len(names), np.uint64)
    for places in full:
        used[places] += np.uint64(8)
    field = _leading(data, columns, used, rows)
    for row in rows[field[rows] == 0].tolist():
        at, length = int(columns["extra@"][row]), int(columns["extra_size"][row])
        found = _extra(data, at, at + length, ZIP64, int(used[row]))
        if found is None:
            check.fail(EXTRA, start + at, f"{what}: entry {names[row]!r} has no zip64 field for its sizes")
        field[row] = found
    for column, places in zip(order, full, strict=True):
        column[places] = gather(data, "<u8", field[places])
        field[places] += np.uint64(8)
    return stored, sizes, offsets


def _leading(data: bytes, columns: Columns, used: NDArray[np.uint64], rows: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Where the content of the zip64 field begins in those ``rows`` of which it is the first extra field; else 0."""
    at, room = columns["extra@"], columns["extra_size"]
    rows = rows[room[rows] >= 4]
    field = np.zeros(len(used), np.uint64)
    head = gather(data, "<u4", at[rows]).astype(np.uint64)
    size = head >> np.uint64(16)
    first = (head & np.uint64(0xFFFF) == ZIP64) & (size >= used[rows]) & (size + np.uint64(4) <= room[rows])
    field[rows[first]] = at[rows[first]] + np.uint64(4)
    return field


def _extra(data: bytes, at: int, stop: int, wanted: int, least: int) -> int | None:
    """Where the content of the extra field of one id begins; None when there is none of ``least`` bytes or more."""
    while at + 4 <= stop:
        found, size = int.from_bytes(data[at : at + 2], "little"), int.from_bytes(data[at + 2 : at + 4], "little")
        if found == wanted and at + 4 + size <= stop:
            return at + 4 if size >= least else None
        at += 4 + size
    return None
