"""The control region: header, table of contents and string table, checked before any chunk is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.check import Check
from holdall.base.expansion import Expansion
from holdall.binary import kernels
from holdall.binary.columns import find_end, find_overlaps, fit
from holdall.format.aero import rules
from holdall.format.aero.chunks import Chunks, fourccs
from holdall.format.aero.layout import ALIGN, COMPRESSED, ENTRY, HEADER, MAGIC, NEVER_COMPRESSED, TOC, VERSION

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source
    from holdall.source.ledger import Ledger

__all__ = ["Container", "open_container"]

_header_at = HEADER.offset_of

# Names may overlap in the string table: together they may be this many times as long, and _SHARED_FLOOR.
_SHARED = 16
_SHARED_FLOOR = 1 << 20


@dataclass(frozen=True, slots=True)
class Container:
    """An open file: its header, its table of contents, and the memory that its compressed chunks may take."""

    source: Source
    header: SimpleNamespace
    chunks: Chunks
    expansion: Expansion

    @property
    def uuid(self) -> bytes:
        """The identity of the file."""
        found: bytes = self.header.uuid
        return found


def open_container(source: Source, check: Check, ledger: Ledger, part_sizes: Iterable[int] = ()) -> Container:
    """Read and check header, TOC and string table of ``source``; no chunk is read.

    For the index of a set, ``part_sizes`` are the sizes of the parts.
    """
    header = _read_header(source, check)
    ledger.pad_to = ALIGN
    ledger.record(HEADER, 0)
    table, head = _read_toc(source, header, check)
    ledger.record(TOC, header.toc_offset)
    ledger.table(ENTRY, header.toc_offset + TOC.size, len(table))
    names = _read_names(source, header, table, check)
    ledger.region("string table", header.string_table_offset, header.string_table_length)
    chunks = Chunks(table, names)
    _check_chunks(source, header, chunks, check)
    _check_reserved(header, head, table, check)
    return Container(source, header, chunks, Expansion(check, source.size, part_sizes))


def _read_header(source: Source, check: Check) -> SimpleNamespace:
    """Read the header, of the one version that is known."""
    size = source.size
    if size < HEADER.size:
        check.fail(rules.SIZE, size, f"aero: {size} bytes cannot hold the header of {HEADER.size}")
    header = HEADER.read(source.read(0, HEADER.size), 0)
    if header.magic != MAGIC:
        check.fail(rules.MAGIC, 0, f"aero: the file begins with {header.magic!r}, not {MAGIC!r}")
    if (header.version_major, header.version_minor) != VERSION:
        message = f"aero: version {header.version_major}.{header.version_minor} is unknown; 0.1 is known"
        check.fail(rules.VERSION, _header_at("version_major"), message)
    if header.header_size != HEADER.size:
        message = f"aero: header_size is {header.header_size}, not {HEADER.size}"
        check.fail(rules.SIZE, _header_at("header_size"), message)
    if header.file_flags:
        message = f"aero: file_flags is {header.file_flags:#x}; version 0.1 knows only 0"
        check.fail(rules.FLAGS, _header_at("file_flags"), message)
    return header


def _read_toc(source: Source, header: SimpleNamespace, check: Check) -> tuple[NDArray[np.void], SimpleNamespace]:
    """Read the entries of the table of contents, and its head."""
    offset, length, size = header.toc_offset, header.toc_length, source.size
    if offset < HEADER.size or offset + length > size:
        message = f"aero: the TOC, {length} bytes at {offset}, must lie in {HEADER.size}..{size}"
        check.fail(rules.TOC, _header_at("toc_offset"), message)
    if length < TOC.size:
        message = f"aero: toc_length is {length}; the head of a TOC alone takes {TOC.size}"
        check.fail(rules.TOC, _header_at("toc_length"), message)
    head = TOC.read(source.read(offset, TOC.size), 0)
    count = head.entry_count
    check.limit("chunks", count, offset, "aero: chunks")
    if length < TOC.size + ENTRY.size * count:
        message = f"aero: {count} entries take {TOC.size + ENTRY.size * count} bytes, toc_length is {length}"
        check.fail(rules.TOC, _header_at("toc_length"), message)
    return ENTRY.table(source.read(offset + TOC.size, ENTRY.size * count), 0, count), head


def _read_names(source: Source, header: SimpleNamespace, table: NDArray[np.void], check: Check) -> list[str]:
    """Read the names of all chunks, from the string table."""
    offset, length, size = header.string_table_offset, header.string_table_length, source.size
    if offset + length > size:
        message = f"aero: the string table, {length} bytes at {offset}, runs past the end of the file at {size}"
        check.fail(rules.STRINGS, _header_at("string_table_offset"), message)
    check.limit("string_table_bytes", length, _header_at("string_table_length"), "aero: the string table")
    toc_end = header.toc_offset + header.toc_length
    if length and (offset < HEADER.size or (offset < toc_end and header.toc_offset < offset + length)):
        message = f"aero: the string table, {length} bytes at {offset}, lies over the header or the TOC"
        check.fail(rules.STRINGS, _header_at("string_table_offset"), message)
    starts, lengths = table["name_off"].astype(np.uint64), table["name_len"].astype(np.uint64)
    check.rows(
        fit(starts, lengths, length), rules.NAME, lambda row: _entry_at(header, row, "name_off"),
        lambda row: f"aero: the name of chunk {row}, {lengths[row]} bytes at {starts[row]}, "
                    f"runs past the string table of {length}",
    )  # fmt: skip
    total = int(lengths.sum())
    if total > _SHARED * length + _SHARED_FLOOR:  # would only serve to make decoding slow
        message = f"aero: chunk names take {total} bytes of a string table of {length}"
        check.fail(rules.NAME, header.toc_offset, message)
    strings = source.read(offset, length)
    names, bad = kernels.texts(strings, starts, lengths)
    if bad >= 0:
        message = f"aero: the name of chunk {bad} is not UTF-8"
        check.fail(rules.NAME, offset + int(starts[bad]), message)
    if any("\0" in name for name in names):
        bad = next(row for row, name in enumerate(names) if "\0" in name)
        message = f"aero: the name of chunk {bad} has a NUL: {names[bad][:64]!r}"
        check.fail(rules.NAME, offset + int(starts[bad]), message)
    return names


def _check_chunks(source: Source, header: SimpleNamespace, chunks: Chunks, check: Check) -> None:
    """Check places and flags of all chunks."""
    table = chunks.table
    offsets, lengths, ulens = table["chunk_offset"], table["chunk_length"], table["chunk_ulen"]

    def what(row: int) -> str:
        return f"aero: {chunks[row].what}"

    check.rows(
        fit(offsets, lengths, source.size), rules.PLACE, lambda row: _entry_at(header, row, "chunk_offset"),
        lambda row: f"{what(row)}: {lengths[row]} bytes at {offsets[row]} run past the file's end at {source.size}",
        needs=lambda: find_end(offsets, lengths),
    )  # fmt: skip
    codes = fourccs(table)
    packed = (table["chunk_flags"] & COMPRESSED) != 0
    never = np.isin(codes, [np.frombuffer(fourcc, "<u4")[0] for fourcc in NEVER_COMPRESSED])
    check.rows(
        ~(packed & never), rules.COMPRESSED, lambda row: _entry_at(header, row, "chunk_flags"),
        lambda row: f"{what(row)} is flagged as compressed",
    )  # fmt: skip
    check.rows(
        packed | (lengths == ulens), rules.RAW, lambda row: _entry_at(header, row, "chunk_ulen"),
        lambda row: f"{what(row)} is not compressed, yet length is {lengths[row]} and ulen {ulens[row]}",
    )  # fmt: skip
    ascii_ = (codes & np.uint32(0x80808080)) == 0
    check.rows(
        ascii_, rules.FOURCC, lambda row: _entry_at(header, row, "fourcc"),
        lambda row: f"{what(row)}: its fourcc has bytes that are not ASCII: {table['fourcc'][row].tobytes().hex()}",
    )  # fmt: skip
    _check_unique(header, chunks, codes, check)
    _check_apart(header, chunks, check)
    check.rows(
        offsets % ALIGN == 0, rules.ALIGNED, lambda row: _entry_at(header, row, "chunk_offset"),
        lambda row: f"{what(row)} lies at {offsets[row]}, not on a multiple of {ALIGN}",
    )  # fmt: skip
    ends = [int((offsets + lengths).max()) if len(chunks) else 0, header.toc_offset + header.toc_length,
            header.string_table_offset + header.string_table_length]  # fmt: skip
    if max(ends) < source.size:
        message = f"aero: {source.size - max(ends)} bytes follow the last chunk"
        check.note(rules.TAIL, max(ends), message)


def _check_unique(header: SimpleNamespace, chunks: Chunks, codes: NDArray[np.uint32], check: Check) -> None:
    keys = list(zip(codes.tolist(), chunks.names, strict=True))
    if len(set(keys)) == len(keys):
        return
    seen: set[tuple[int, str]] = set()
    for row, key in enumerate(keys):
        if key in seen:
            message = f"aero: {chunks[row].what}: another chunk has the same fourcc and name"
            check.fail(rules.TWICE, _entry_at(header, row, "fourcc"), message)
        seen.add(key)


def _check_apart(header: SimpleNamespace, chunks: Chunks, check: Check) -> None:
    """No two of header, TOC, string table and chunks share a byte."""
    table = chunks.table
    control = [(0, HEADER.size), (header.toc_offset, header.toc_length)]
    control.append((header.string_table_offset, header.string_table_length))
    starts = np.concatenate([np.array([start for start, _ in control], np.uint64), table["chunk_offset"]])
    sizes = np.concatenate([np.array([size for _, size in control], np.uint64), table["chunk_length"]])
    for pair in find_overlaps(starts, sizes):
        labels = [("the header", "the TOC", "the string table")[n] if n < 3 else chunks[n - 3].what for n in pair]
        row = max(0, max(pair) - 3)
        message = f"aero: {labels[1]} begins inside {labels[0]}"
        check.fail(rules.OVERLAP, _entry_at(header, row, "chunk_offset"), message)


def _check_reserved(header: SimpleNamespace, toc: SimpleNamespace, table: NDArray[np.void], check: Check) -> None:
    if any(header.reserved):
        check.note(
            rules.RESERVED, _header_at("reserved"), f"aero: reserved bytes of the header are {header.reserved.hex()}"
        )
    for name in ("reserved0", "reserved1"):
        if getattr(toc, name):
            place = header.toc_offset + TOC.offset_of(name)
            check.note(rules.RESERVED, place, f"aero: {name} of the TOC is {getattr(toc, name)}, not 0")
    check.rows(
        table["reserved0"] == 0, rules.RESERVED, lambda row: _entry_at(header, row, "reserved0"),
        lambda row: f"aero: reserved0 of chunk {row} is {table['reserved0'][row]}, not 0",
    )  # fmt: skip


def _entry_at(header: SimpleNamespace, row: int, field: str) -> int:
    place: int = header.toc_offset + TOC.size + row * ENTRY.size + ENTRY.offset_of(field)
    return place
