"""The container: header, table of contents, names, and the proven content of a chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from holdall import kernels
from holdall.check import Check
from holdall.columns import furthest
from holdall.compression import FrameError, expand, expand_proven
from holdall.formats.aero import rules
from holdall.formats.aero.layout import (
    ALIGN,
    COMPRESSED,
    ENTRY,
    HEADER,
    MAGIC,
    MAX_METADATA,
    NEVER_COMPRESSED,
    TOC,
    VERSION,
    WTSH,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.ledger import Ledger
    from holdall.source import Source

__all__ = ["Chunk", "Chunks", "Container", "content", "open_container", "pieces"]

_SHARED = 16  # how often the bytes of the string table may be used for names
_SHARED_FLOOR = 1 << 20


@dataclass(frozen=True, slots=True)
class Chunk:
    """One row of the table of contents."""

    fourcc: str
    name: str
    flags: int
    offset: int
    length: int  # as stored
    ulen: int  # uncompressed
    blake3: bytes  # of the uncompressed bytes
    index: int  # in the table of contents

    @property
    def compressed(self) -> bool:
        """Whether the stored bytes are a zstd frame."""
        return bool(self.flags & COMPRESSED)

    @property
    def what(self) -> str:
        """How messages call it."""
        return f"chunk {self.index} {self.fourcc} {self.name!r}"


class Chunks(Sequence[Chunk]):
    """The table of contents; a record is made only for the chunk that is asked for."""

    def __init__(self, table: NDArray[np.void], names: list[str]) -> None:
        self.table = table
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, row: int) -> Chunk:  # type: ignore[override]  # rows only, no slices
        fourcc, flags, offset, length, ulen, _, _, _, digest = self.table[row].tolist()
        row = row % len(self)
        return Chunk(fourcc.decode("latin-1"), self.names[row], flags, offset, length, ulen, digest, row)

    def rows(self, fourcc: bytes) -> list[int]:
        """The rows of one kind of chunk, in order."""
        code = np.frombuffer(fourcc, "<u4")[0]
        found: list[int] = (fourccs(self.table) == code).nonzero()[0].tolist()
        return found

    def all(self, fourcc: bytes) -> list[Chunk]:
        """The chunks of one kind, in order."""
        return [self[row] for row in self.rows(fourcc)]

    def first(self, fourcc: bytes) -> Chunk | None:
        """The first chunk of a kind."""
        found = self.rows(fourcc)
        return self[found[0]] if found else None


@dataclass(frozen=True, slots=True)
class Container:
    """What the control region says."""

    source: Source
    header: SimpleNamespace
    chunks: Chunks

    @property
    def uuid(self) -> bytes:
        """The identity of the file."""
        found: bytes = self.header.uuid
        return found


def fourccs(table: NDArray[np.void]) -> NDArray[np.uint32]:
    """The fourcc of every entry as a number, to compare columns by."""
    return np.ascontiguousarray(table["fourcc"]).view("<u4")


def open_container(source: Source, check: Check, ledger: Ledger) -> Container:
    """Header, TOC and string table of ``source``, and where every chunk is; no chunk is read."""
    header = _header(source, check)
    ledger.pad_to = ALIGN
    ledger.record(HEADER, 0)
    table, head = _toc(source, header, check)
    ledger.record(TOC, header.toc_offset)
    ledger.table(ENTRY, header.toc_offset + TOC.size, len(table))
    names = _names(source, header, table, check)
    ledger.region("string table", header.string_table_offset, header.string_table_length)
    chunks = Chunks(table, names)
    _chunks(source, header, chunks, check)
    _reserved(header, head, table, check)
    return Container(source, header, chunks)


def _header(source: Source, check: Check) -> SimpleNamespace:
    size = source.size
    if size < HEADER.size:
        check.fail(rules.SIZE, size, f"aero: {size} bytes cannot hold the header of {HEADER.size}")
    header = HEADER.read(source.read(0, HEADER.size), 0)
    if header.magic != MAGIC:
        check.fail(rules.MAGIC, 0, f"aero: the file begins with {header.magic!r}, not {MAGIC!r}")
    if (header.version_major, header.version_minor) != VERSION:
        message = f"aero: version {header.version_major}.{header.version_minor} is unknown; 0.1 is known"
        check.fail(rules.VERSION, _at("version_major"), message)
    if header.header_size != HEADER.size:
        message = f"aero: header_size is {header.header_size}, not {HEADER.size}"
        check.fail(rules.SIZE, _at("header_size"), message)
    if header.file_flags:
        message = f"aero: file_flags is {header.file_flags:#x}; version 0.1 knows only 0"
        check.fail(rules.FLAGS, _at("file_flags"), message)
    return header


def _toc(source: Source, header: SimpleNamespace, check: Check) -> tuple[NDArray[np.void], SimpleNamespace]:
    offset, length, size = header.toc_offset, header.toc_length, source.size
    if offset < HEADER.size or offset > size or length > size - offset:
        message = f"aero: the TOC, {length} bytes at {offset}, must lie in {HEADER.size}..{size}"
        check.fail(rules.TOC, _at("toc_offset"), message)
    if length < TOC.size:
        message = f"aero: toc_length is {length}; the head of a TOC alone takes {TOC.size}"
        check.fail(rules.TOC, _at("toc_length"), message)
    head = TOC.read(source.read(offset, TOC.size), 0)
    count = head.entry_count
    check.limit("chunks", count, offset, "aero: chunks")
    if length < TOC.size + ENTRY.size * count:
        message = f"aero: {count} entries take {TOC.size + ENTRY.size * count} bytes, toc_length is {length}"
        check.fail(rules.TOC, _at("toc_length"), message)
    return ENTRY.table(source.read(offset + TOC.size, ENTRY.size * count), 0, count), head


def _names(source: Source, header: SimpleNamespace, table: NDArray[np.void], check: Check) -> list[str]:
    offset, length, size = header.string_table_offset, header.string_table_length, source.size
    if offset > size or length > size - offset:
        message = f"aero: the string table, {length} bytes at {offset}, runs past the end of the file at {size}"
        check.fail(rules.STRINGS, _at("string_table_offset"), message)
    check.limit("string_table_bytes", length, _at("string_table_length"), "aero: the string table")
    toc_end = header.toc_offset + header.toc_length
    if length and (offset < HEADER.size or (offset < toc_end and header.toc_offset < offset + length)):
        message = f"aero: the string table, {length} bytes at {offset}, lies over the header or the TOC"
        check.fail(rules.STRINGS, _at("string_table_offset"), message)
    starts, lengths = table["name_off"].astype(np.uint64), table["name_len"].astype(np.uint64)
    check.rows(
        starts + lengths <= np.uint64(length), rules.NAME, lambda row: _entry_at(header, row, "name_off"),
        lambda row: f"aero: the name of chunk {row}, {lengths[row]} bytes at {starts[row]}, "
                    f"runs past the string table of {length}",
    )  # fmt: skip
    total = int(lengths.sum())
    if total > _SHARED * length + _SHARED_FLOOR:  # names that overlap this much exist only to be decoded over and over
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


def _chunks(source: Source, header: SimpleNamespace, chunks: Chunks, check: Check) -> None:
    """Where chunks are, and what their flags allow. All of it must hold before a chunk is touched."""
    table, size = chunks.table, np.uint64(source.size)
    offsets, lengths, ulens = table["chunk_offset"], table["chunk_length"], table["chunk_ulen"]

    def what(row: int) -> str:
        return f"aero: {chunks[row].what}"

    inside = (offsets <= size) & (lengths <= size - np.minimum(offsets, size))
    check.rows(
        inside, rules.PLACE, lambda row: _entry_at(header, row, "chunk_offset"),
        lambda row: f"{what(row)}: {lengths[row]} bytes at {offsets[row]} run past the file's end at {source.size}",
        needs=lambda: furthest(offsets, lengths),
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
    _unique(header, chunks, codes, check)
    _apart(header, chunks, check)
    check.rows(
        offsets % ALIGN == 0, rules.ALIGNED, lambda row: _entry_at(header, row, "chunk_offset"),
        lambda row: f"{what(row)} lies at {offsets[row]}, not on a multiple of {ALIGN}",
    )  # fmt: skip
    ends = [int((offsets + lengths).max()) if len(chunks) else 0, header.toc_offset + header.toc_length,
            header.string_table_offset + header.string_table_length]  # fmt: skip
    if max(ends) < source.size:
        message = f"aero: {source.size - max(ends)} bytes follow the last chunk"
        check.note(rules.TAIL, max(ends), message)


def _unique(header: SimpleNamespace, chunks: Chunks, codes: NDArray[np.uint32], check: Check) -> None:
    keys = list(zip(codes.tolist(), chunks.names, strict=True))
    if len(set(keys)) == len(keys):
        return
    seen: set[tuple[int, str]] = set()
    for row, key in enumerate(keys):
        if key in seen:
            message = f"aero: {chunks[row].what}: another chunk has the same fourcc and name"
            check.fail(rules.TWICE, _entry_at(header, row, "fourcc"), message)
        seen.add(key)


def _apart(header: SimpleNamespace, chunks: Chunks, check: Check) -> None:
    """No two of header, TOC, string table and chunks share a byte."""
    table = chunks.table
    control = [(0, HEADER.size), (header.toc_offset, header.toc_length)]
    control.append((header.string_table_offset, header.string_table_length))
    starts = np.concatenate([np.array([start for start, _ in control], np.uint64), table["chunk_offset"]])
    sizes = np.concatenate([np.array([size for _, size in control], np.uint64), table["chunk_length"]])
    used = sizes.nonzero()[0]
    order = used[np.argsort(starts[used], kind="stable")]
    ends = np.maximum.accumulate(starts[order] + sizes[order])
    bad = (starts[order][1:] < ends[:-1]).nonzero()[0]
    if not bad.size:
        return
    pair = [int(order[bad[0]]), int(order[bad[0] + 1])]
    labels = [("the header", "the TOC", "the string table")[n] if n < 3 else chunks[n - 3].what for n in pair]
    row = max(0, max(pair) - 3)
    message = f"aero: {labels[1]} begins inside {labels[0]}"
    check.fail(rules.OVERLAP, _entry_at(header, row, "chunk_offset"), message)


def _reserved(header: SimpleNamespace, toc: SimpleNamespace, table: NDArray[np.void], check: Check) -> None:
    if any(header.reserved):
        check.note(rules.RESERVED, _at("reserved"), f"aero: reserved bytes of the header are {header.reserved.hex()}")
    for name in ("reserved0", "reserved1"):
        if getattr(toc, name):
            place = header.toc_offset + TOC.offset_of(name)
            check.note(rules.RESERVED, place, f"aero: {name} of the TOC is {getattr(toc, name)}, not 0")
    check.rows(
        table["reserved0"] == 0, rules.RESERVED, lambda row: _entry_at(header, row, "reserved0"),
        lambda row: f"aero: reserved0 of chunk {row} is {table['reserved0'][row]}, not 0",
    )  # fmt: skip


def _at(name: str) -> int:
    return HEADER.offset_of(name)


def _entry_at(header: SimpleNamespace, row: int, field: str) -> int:
    place: int = header.toc_offset + TOC.size + row * ENTRY.size + ENTRY.offset_of(field)
    return place


# -- content ----------------------------------------------------------------------------------------------------------


def content(source: Source, chunk: Chunk, check: Check) -> bytes:
    """The uncompressed bytes of a metadata chunk, proven by their BLAKE3."""
    _bounded(chunk, check)
    try:
        if chunk.compressed:
            return expand_proven(lambda: source.chunks(chunk.offset, chunk.length), chunk.ulen, chunk.blake3)
    except FrameError as error:
        rule = rules.HASH if "BLAKE3" in str(error) else rules.ZSTD
        check.fail(rule, chunk.offset, f"aero: {chunk.what}: {error}")
    from blake3 import blake3

    data = source.read(chunk.offset, chunk.length)
    found = blake3(data).digest()
    if found != chunk.blake3:
        message = f"aero: {chunk.what}: its BLAKE3 is {found.hex()}, the TOC says {chunk.blake3.hex()}"
        check.fail(rules.HASH, chunk.offset, message)
    return data


def pieces(source: Source, chunk: Chunk, check: Check) -> Iterator[bytes | memoryview]:
    """The uncompressed bytes of any chunk, piece by piece and unproven."""
    stored: Iterable[memoryview] = source.chunks(chunk.offset, chunk.length)
    if not chunk.compressed:
        yield from stored
        return
    _bounded(chunk, check)
    try:
        yield from expand(stored, chunk.ulen)
    except FrameError as error:
        check.fail(rules.ZSTD, chunk.offset, f"aero: {chunk.what}: {error}")


def _bounded(chunk: Chunk, check: Check) -> None:
    """Refuse a chunk that says it grows beyond what is reasonable."""
    if chunk.ulen > MAX_METADATA and chunk.fourcc != WTSH.decode():
        message = f"aero: {chunk.what}: {chunk.ulen} uncompressed bytes are above the {MAX_METADATA} of the format"
        check.fail(rules.ULEN, chunk.offset, message)
    check.limit("decompressed_bytes", chunk.ulen, chunk.offset, f"aero: {chunk.what}")
    if chunk.compressed:
        check.limit_growth(chunk.length, chunk.ulen, chunk.offset, f"aero: {chunk.what}")
