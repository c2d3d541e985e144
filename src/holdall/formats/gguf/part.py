"""One GGUF file: header, metadata, the tensor table as columns. Payloads stay where they are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from holdall import kernels
from holdall.check import Check, figure
from holdall.columns import Shapes, furthest
from holdall.dtypes import named
from holdall.encodings import Stored
from holdall.formats.gguf import rules
from holdall.formats.gguf.front import Front
from holdall.formats.gguf.layout import (
    ALIGNMENT,
    DEFAULT_ALIGNMENT,
    HEADER,
    MAGIC,
    MAX_DIMS,
    MAX_KEY,
    MAX_NAME,
    TAG_OF,
    TENSOR,
)
from holdall.formats.gguf.values import Located, Scalar, Text, decode, locate
from holdall.ggml import BLOCKS, PLAIN, REMOVED
from holdall.ledger import Ledger
from holdall.metadata import Entry
from holdall.sizes import tuned

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.layout import Columns
    from holdall.source import Source

__all__ = ["PALETTE", "TYPE_OF", "Dims", "Part", "Table", "read_part"]

_UNKNOWN = 255
_EAGER = tuned(4096)  # elements of an array that is decoded at open; larger ones wait until they are asked for
_EAGER_BYTES = tuned(1 << 20)  # the same for one string
_KEY = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")

# The types of tensors: plain ones, then blocks. ``TYPE_OF`` finds the ggml id by name.
PALETTE: list[Stored] = [*map(named, PLAIN.values()), *BLOCKS.values()]
_IDS = [*PLAIN, *BLOCKS]
TYPE_OF: dict[str, int] = dict(zip(map(str, PALETTE), _IDS, strict=True))
_CODES = np.full(256, _UNKNOWN, np.uint8)
_CODES[_IDS] = np.arange(len(_IDS))
_PER_BLOCK = np.array([1] * len(PLAIN) + [blocks.elements for blocks in BLOCKS.values()], np.uint64)
_BLOCK_BYTES = np.array(
    [named(name).bits // 8 for name in PLAIN.values()] + [blocks.block_bytes for blocks in BLOCKS.values()], np.uint64
)


class Dims(Shapes):
    """The shapes of a tensor table, row-major: the file has the axis that varies fastest first."""

    def __getitem__(self, row: int) -> tuple[int, ...]:  # type: ignore[override]  # rows only, no slices
        return super().__getitem__(row)[::-1]


@dataclass(slots=True)
class Table:
    """The tensors of one file, proven to lie inside it."""

    names: list[str]
    codes: NDArray[np.uint8]
    shapes: Dims
    starts: NDArray[np.uint64]  # in the file
    sizes: NDArray[np.uint64]


@dataclass(slots=True)
class Part:
    """What one file says. ``located`` are its metadata entries, not yet decoded but for those in ``known``."""

    source: Source
    version: int
    data: bytearray
    located: dict[str, Located]
    known: dict[str, Any]
    alignment: int
    table: Table | None
    count: int  # tensors announced

    def entries(self, check: Check) -> list[Entry]:
        """The metadata, all of it decoded."""
        found = []
        for key, value in self.located.items():
            with check.scope():
                held = self.known[key] if key in self.known else decode(value, self.data, key, check)
                found.append(Entry(key, held, value.kind))
        return found

    def prove(self, check: Check) -> None:
        """Decode what is decoded only when asked for, one entry at a time, to see whether it can be."""
        for key, value in self.located.items():
            if key not in self.known:
                with check.scope():
                    decode(value, self.data, key, check)


def read_part(source: Source, check: Check, ledger: Ledger) -> Part:
    """Header, metadata and tensor table of the file ``source``."""
    header = _header(source, check, ledger)
    front = Front(source, check)
    located, bounds = _metadata(front, header.n_kv, check)
    end = bounds[-1]
    edges = np.array(bounds, np.uint64)
    ledger.payloads("metadata", edges[:-1], edges[1:] - edges[:-1], list(located).__getitem__)
    known: dict[str, Any] = {}
    with check.together():
        for key, value in located.items():
            with check.scope():
                if _is_small(value):
                    known[key] = decode(value, front.data, key, check)
        with check.scope():
            alignment = _alignment(located, known, check)
    ledger.pad_to = alignment
    table = None
    with check.scope():
        table = _Tensors(front, header.n_tensors, end, alignment, check, ledger).read()
    return Part(source, header.version, front.data, located, known, alignment, table, header.n_tensors)


def _is_small(value: Located) -> bool:
    match value:
        case Scalar():
            return True
        case Text(_, size):
            return size <= _EAGER_BYTES
        case _:
            return value.count <= _EAGER


def _header(source: Source, check: Check, ledger: Ledger) -> SimpleNamespace:
    size = source.size
    head = source.read(0, min(size, HEADER.size))
    if head[:4] != MAGIC[: len(head)]:
        check.fail(rules.MAGIC, 0, f"gguf: the file begins with {head[:4]!r}, not with {MAGIC!r}")
    version = int.from_bytes(head[4:8], "little")
    if len(head) >= 8 and version == 1:
        check.fail(
            rules.VERSION_1, 4, "gguf: version 1 is of 2023 and was given up: convert it with tools of that time"
        )
    if len(head) >= 8 and version and not version & 0xFFFF:
        swapped = int.from_bytes(head[4:8], "big")
        check.fail(rules.BIG_ENDIAN, 4, f"gguf: this is a big-endian file of version {swapped}; only little-endian "
                   "ones are read")  # fmt: skip
    if size < HEADER.size:
        check.fail(rules.SIZE, size, f"gguf: {size} bytes cannot hold the header of {HEADER.size}")
    ledger.record(HEADER, 0)
    header = HEADER.read(head, 0)
    if version not in (2, 3):
        check.fail(rules.VERSION, 4, f"gguf: version {version} is unknown; 2 and 3 are known")
    check.limit("metadata_entries", header.n_kv, HEADER.offset_of("n_kv"), "gguf: metadata entries")
    check.limit("tensors", header.n_tensors, HEADER.offset_of("n_tensors"), "gguf: tensors")
    least = header.n_kv * 13 + header.n_tensors * TENSOR.min_size
    if least > size - HEADER.size:
        message = f"gguf: {header.n_kv} metadata entries and {header.n_tensors} tensors take at least {least} bytes, "
        check.fail(rules.COUNTS, 8, f"{message}{size - HEADER.size} follow the header")
    return header


def _metadata(front: Front, count: int, check: Check) -> tuple[dict[str, Located], list[int]]:
    """Every entry, located; where each begins, and where the last one ends."""
    located: dict[str, Located] = {}
    at = HEADER.size
    bounds = [at]
    for number in range(count):
        start = at
        what = f"the key of metadata entry {number}"
        front.reach(at + 8, at, what)
        size = int.from_bytes(front.data[at : at + 8], "little")
        check.limit("name_bytes", size if size <= front.size else 0, at, f"gguf: {what}")
        front.reach(at + 8 + size + 4, at, what)
        try:
            key = front.data[at + 8 : at + 8 + size].decode()
        except UnicodeDecodeError:
            check.fail(rules.KEY_UTF8, at + 8, f"gguf: {what} is not UTF-8")
        if not key:
            check.fail(rules.KEY_EMPTY, at, f"gguf: {what} is empty")
        if key in located:
            check.fail(rules.KEY_DUPLICATE, at, f"gguf: two metadata entries are called {key!r}")
        at += 8 + size
        tag = int.from_bytes(front.data[at : at + 4], "little")
        located[key], at = locate(front, tag, at + 4, key, check)
        bounds.append(at)
        if check.wants("strict"):
            if size > MAX_KEY:
                check.note(rules.KEY_LENGTH, start, f"gguf: {what} has {size} bytes, more than {MAX_KEY}")
            if not _KEY.fullmatch(key):
                check.note(rules.KEY_CHARSET, start, f"gguf: the key {key[:80]!r} is not words of a-z 0-9 _ - and dots")
    return located, bounds


def _alignment(located: dict[str, Located], known: dict[str, Any], check: Check) -> int:
    found = located.get(ALIGNMENT)
    if found is None:
        return DEFAULT_ALIGNMENT
    if not isinstance(found, Scalar) or found.tag != TAG_OF["u32"]:
        check.fail(rules.ALIGNMENT_TYPE, None, f"gguf: {ALIGNMENT} is stored as {found.kind}, not as u32")
    alignment: int = known[ALIGNMENT]
    if alignment < 1 or alignment & (alignment - 1):
        check.fail(rules.ALIGNMENT, found.at, f"gguf: {ALIGNMENT} is {alignment}, not a power of two")
    if alignment % 8:
        check.note(rules.ALIGNMENT_8, found.at, f"gguf: {ALIGNMENT} is {alignment}, not a multiple of 8")
    return alignment


class _Tensors:
    """The tensor table of one file."""

    def __init__(self, front: Front, count: int, start: int, alignment: int, check: Check, ledger: Ledger) -> None:
        self.front = front
        self.check = check
        self.ledger = ledger
        self.alignment = alignment
        self.columns = self._scan(count, start)
        self.names = self._names()

    def _scan(self, count: int, start: int) -> Columns:
        check = self.check
        columns = self.front.scan(TENSOR, start, count, "the tensor table", check.limits.name_bytes)
        if columns.failed is not None:
            self._refuse_scan(columns, count)
        return columns

    def _refuse_scan(self, columns: Columns, count: int) -> NoReturn:
        """Say why the entry after the last whole one does not fit."""
        check = self.check
        at, row = columns.end, len(columns)
        data = self.front.data
        if columns.failed == "dims":
            rank = int.from_bytes(data[at - 4 : at], "little")
            if rank > MAX_DIMS:
                check.fail(rules.RANK, at - 4, f"gguf: tensor {row}: {rank} dimensions, more than {MAX_DIMS}")
        if columns.failed == "name" and at + 8 <= len(data):
            length = int.from_bytes(data[at : at + 8], "little")
            check.limit("name_bytes", length if length <= self.front.size - at else 0, at, f"gguf: the name of {row}")
        message = f"gguf: tensor {row} of {count}: {columns.failed} runs past the end of the file at {self.front.size}"
        check.fail(rules.END, at, message)

    def _names(self) -> list[str]:
        check, columns = self.check, self.columns
        starts, lengths = columns["name@"], columns["name#"]
        if len(columns):
            longest = int(lengths.argmax())
            check.limit(
                "name_bytes", int(lengths[longest]), int(starts[longest]), f"gguf: the name of tensor {longest}"
            )
        names, bad = kernels.texts(self.front.data, starts, lengths)
        if bad >= 0:
            check.fail(rules.NAME_UTF8, int(starts[bad]), f"gguf: the name of tensor {bad} is not UTF-8")
        if len(set(names)) != len(names):
            seen: set[str] = set()
            for row, name in enumerate(names):
                if name in seen:
                    check.fail(rules.NAME_DUPLICATE, int(starts[row]), f"gguf: two tensors are called {name!r}")
                seen.add(name)
        if check.wants("strict"):
            kept = (lengths >= 1) & (lengths <= MAX_NAME)
            if any("\0" in name for name in names):
                kept &= np.array(["\0" not in name for name in names], np.bool_)
            check.rows(
                kept, rules.NAME_GGML, starts,
                lambda row: f"gguf: the name {names[row][:80]!r} has {lengths[row]} bytes, or a NUL",
            )  # fmt: skip
        return names

    def read(self) -> Table:
        """The table, checked."""
        check, columns, names = self.check, self.columns, self.names
        self.ledger.entries(columns, names.__getitem__)
        ranks, types = columns["n_dims"], columns["type"]
        codes = _CODES[np.minimum(types, np.uint64(_UNKNOWN)).astype(np.uint8)]
        with check.together():
            with check.scope():
                check.rows(
                    ranks <= np.uint64(MAX_DIMS), rules.RANK, columns.starts,
                    lambda row: f"gguf: tensor {names[row]!r} has {ranks[row]} dimensions, more than {MAX_DIMS}",
                )  # fmt: skip
            with check.scope():
                gone = np.isin(types, list(REMOVED)) if (codes == _UNKNOWN).any() else np.zeros(len(codes), np.bool_)
                check.rows(
                    ~gone, rules.REMOVED, columns.starts,
                    lambda row: f"gguf: tensor {names[row]!r} is of type {types[row]} "
                    f"({REMOVED[int(types[row])]}), which ggml has removed",
                )  # fmt: skip
                check.rows(
                    codes != _UNKNOWN, rules.DTYPE, columns.starts,
                    lambda row: f"gguf: tensor {names[row]!r} is of type {types[row]}, which is unknown",
                )  # fmt: skip
        first = int(columns.starts[0]) if len(columns) else columns.end
        table_bytes = self.front.data[first : columns.end]  # not the metadata before it: shapes keep these bytes
        shapes = Dims(table_bytes, columns["dims@"] - np.uint64(first), ranks)
        sizes = self._sizes(codes, shapes)
        starts = self._places(sizes)
        table = Table(names, codes, shapes, starts, sizes)
        self.ledger.payloads("tensor", starts, sizes, names.__getitem__)
        if check.wants("strict"):
            self._look_at_order(table)
        return table

    def _sizes(self, codes: NDArray[np.uint8], shapes: Dims) -> NDArray[np.uint64]:
        """Stored bytes of every tensor, in numbers that cannot wrap."""
        check, columns, names = self.check, self.columns, self.names
        counts, exact = shapes.counts()
        # With at least one bit an element, more elements than this cannot be in the file: nothing below can wrap.
        possible = exact & (counts <= np.uint64(8 * self.front.size))
        check.rows(
            possible, rules.DATA_SIZE, columns.starts,
            lambda row: f"gguf: tensor {names[row]!r}: {PALETTE[codes[row]]}{list(shapes[row])} needs "
            f"{figure(PALETTE[codes[row]].nbytes(shapes[row]))} bytes of a file of {self.front.size}",
        )  # fmt: skip
        for row in (counts == 0).nonzero()[0].tolist():  # of the others, no dim can be that large
            if max(shapes[row]) >= 1 << 63:
                message = f"gguf: tensor {names[row]!r}: a dimension of {list(shapes[row])} is 2^63 or more"
                check.fail(rules.DIMS, int(columns.starts[row]), message)
        per_block = _PER_BLOCK[codes]
        blocked = (per_block > 1).nonzero()[0]
        if len(blocked):
            whole = np.ones(len(codes), np.bool_)
            whole[blocked] = self._row_lengths(blocked) % per_block[blocked] == 0
            check.rows(
                whole, rules.BLOCK, columns.starts,
                lambda row: f"gguf: tensor {names[row]!r}: rows of {list(shapes[row])} are not whole blocks of "
                f"{per_block[row]} elements of {PALETTE[codes[row]]}",
            )  # fmt: skip
        sizes: NDArray[np.uint64] = counts // per_block * _BLOCK_BYTES[codes]
        return sizes

    def _row_lengths(self, rows: NDArray[np.intp]) -> NDArray[np.uint64]:
        """The first dimension in the file, of each of ``rows``; 1 where there is none."""
        columns = self.columns
        flat = np.frombuffer(self.front.data, np.uint8)
        has = columns["n_dims"][rows] > 0
        lengths = np.ones(len(rows), np.uint64)
        where = columns["dims@"][rows][has][:, None] + np.arange(8, dtype=np.uint64)
        lengths[has] = flat[where].view("<u8")[:, 0]
        return lengths

    def _places(self, sizes: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Where each payload begins in the file, once it is certain that it lies inside."""
        check, columns, names = self.check, self.columns, self.names
        data = columns.end + -columns.end % self.alignment
        room = np.uint64(max(0, self.front.size - data))
        offsets = columns["offset"]
        with check.together():
            with check.scope():
                check.rows(
                    offsets % np.uint64(self.alignment) == 0, rules.OFFSET_ALIGN, columns.starts,
                    lambda row: f"gguf: tensor {names[row]!r}: offset {offsets[row]} is not a multiple of "
                    f"{self.alignment}",
                )  # fmt: skip
            with check.scope():
                fits = (offsets <= room) & (sizes <= room - np.minimum(offsets, room))
                if data > self.front.size:
                    fits &= False
                check.rows(
                    fits, rules.PLACE, columns.starts,
                    lambda row: f"gguf: tensor {names[row]!r}: {sizes[row]} bytes at {offsets[row]} of the data, which "
                    f"begins at {data}, run past the end of the file at {self.front.size}",
                    needs=lambda: data + furthest(offsets, sizes),
                )  # fmt: skip
        return offsets + np.uint64(data)

    def _look_at_order(self, table: Table) -> None:
        """What other readers ask for: payloads apart, in the order of the table, padded."""
        check, names, alignment = self.check, table.names, np.uint64(self.alignment)
        padded = table.sizes + (alignment - table.sizes % alignment) % alignment
        ends = table.starts + padded
        expected = np.concatenate([table.starts[:1] - self.columns["offset"][:1], ends[:-1]])
        check.rows(
            table.starts == expected, rules.ORDER, self.columns.starts,
            lambda row: f"gguf: tensor {names[row]!r} begins at {table.starts[row]}; in the order of the table "
            f"it would at {expected[row]}",
        )  # fmt: skip
        used = table.sizes.nonzero()[0]
        order = used[np.argsort(table.starts[used], kind="stable")]
        reached = np.maximum.accumulate(table.starts[order] + table.sizes[order])
        for place in (table.starts[order][1:] < reached[:-1]).nonzero()[0].tolist():
            row = int(order[place + 1])
            message = f"gguf: tensor {names[row]!r} begins inside the payload before it"
            check.note(rules.OVERLAP, int(table.starts[row]), message)
        if len(ends) and int(ends.max()) > self.front.size:
            message = f"gguf: the file ends at {self.front.size}, before the padding of its last payload"
            check.note(rules.END_PAD, self.front.size, message)
