"""Reads the header, the three tables as columns, and the metadata values of OINF; payloads stay unread."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.check import Check, Rule, figure
from holdall.base.repeats import find_repeat
from holdall.binary import kernels
from holdall.binary.columns import Shapes, find_overlaps, fit
from holdall.binary.layout import Columns, Layout
from holdall.format.oinf import quant, rules, values
from holdall.format.oinf.layout import (
    ALIGN,
    BITSET,
    HAS_DATA,
    HAS_QUANT,
    HEADER,
    MAGIC,
    METADATA,
    QUANT,
    SIZEVAR,
    TAG_OF,
    TAGS,
    TENSOR,
)
from holdall.model.dtypes import DTYPES
from holdall.model.metadata import Entry, Metadata
from holdall.model.model import Model
from holdall.model.table import ColumnTable, ListTable, TensorTable
from holdall.source.ledger import Ledger

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["OinfNative", "read"]

_at = HEADER.offset_of

_OUTSIDE = re.compile(r"[^A-Za-z0-9._-]")

_DTYPES = [DTYPES[name] for name in TAGS.values() if name in DTYPES]
_CODES = np.full(256, 255, np.uint8)  # from a tag to its row in _DTYPES; 255 marks tags that tensors cannot have
for _row, _dtype in enumerate(_DTYPES):
    _CODES[TAG_OF[_dtype.name]] = _row
_BITS = np.array([dtype.bits for dtype in _DTYPES], np.uint64)


@dataclass(frozen=True, slots=True)
class OinfNative:
    """The content that only OINF has: size variables; for tensors with a name of their own, the field to sort by."""

    sizevars: dict[str, int] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """Read the model in ``source``."""
    ledger.pad_to = ALIGN
    if source.size >= HEADER.size:
        # Recorded before the checks, so that explain shows the fields of a damaged header too.
        ledger.record(HEADER, 0)
    header = _read_header(source, check)
    check.limit("index_bytes", header.offset_data, None, f"oinf: {source.name}: header and tables")
    index = source.read(0, header.offset_data)
    reader = _Reader(source, header, index, check, ledger)
    sizevars: dict[str, int] = {}
    metadata = Metadata()
    tensors: TensorTable = ListTable([])
    with check.scope():
        sizevars = reader.read_sizevars()
    with check.scope():
        metadata = reader.read_metadata()
    with check.scope():
        tensors = reader.read_tensors()
    with check.scope():
        reader.check_overlaps()
    return Model(
        tensors,
        metadata=metadata,
        native=OinfNative(sizevars),
        format="oinf",
        version=(header.version,),
        sources=[source],
        ledger=ledger,
    )


def _read_header(source: Source, check: Check) -> SimpleNamespace:
    size = source.size
    if size < HEADER.size:
        check.fail(rules.SIZE, size, f"oinf: {size} bytes cannot hold the header of {HEADER.size}")
    header = HEADER.read(source.read(0, HEADER.size), 0)
    if header.magic != MAGIC:
        check.fail(rules.MAGIC, 0, f"oinf: the file begins with {header.magic!r}, not {MAGIC!r}")
    if header.version not in TENSOR:
        check.fail(rules.VERSION, _at("version"), f"oinf: version {header.version} is unknown; 1 and 2 are known")
    if header.file_size != size:
        message = f"oinf: the header says {header.file_size} bytes, the file has {size}"
        check.fail(rules.FILE_SIZE, _at("file_size"), message, needs=header.file_size)
    previous = 0
    for name in ("offset_sizevars", "offset_metadata", "offset_tensors", "offset_data"):
        offset = getattr(header, name)
        if offset < previous or offset > size:
            message = f"oinf: {name} is {offset}; it must lie in {previous}..{size}"
            check.fail(rules.ORDER, _at(name), message)
        if offset % ALIGN:
            check.fail(rules.SECTION_ALIGN, _at(name), f"oinf: {name} is {offset}, not a multiple of {ALIGN}")
        previous = offset
    _check_tables_outside_header(header, check)
    for name in ("flags", "reserved"):
        if getattr(header, name):
            check.note(rules.RESERVED, _at(name), f"oinf: header {name} is {getattr(header, name)}, not 0")
    if any(header.padding):
        check.note(rules.RESERVED, _at("padding"), f"oinf: the header's padding is {header.padding.hex()}, not 0")
    if size % ALIGN:
        check.note(rules.END_PAD, size, f"oinf: the file ends at {size}, not at a multiple of {ALIGN}")
    return header


def _check_tables_outside_header(header: SimpleNamespace, check: Check) -> None:
    """Refuse a table inside the header; an empty table whose offset points there breaks a strict rule only."""
    tables = (("sizevars", header.n_sizevars), ("metadata", header.n_metadata), ("tensors", header.n_tensors))
    for name, count in tables:
        offset = getattr(header, f"offset_{name}")
        if offset < HEADER.size:
            message = f"oinf: offset_{name} is {offset}, inside the header of {HEADER.size} bytes"
            if count:
                check.fail(rules.IN_HEADER, _at(f"offset_{name}"), message)
            check.note(rules.IN_HEADER_EMPTY, _at(f"offset_{name}"), message)
    if header.offset_data < HEADER.size:
        check.fail(rules.IN_HEADER, _at("offset_data"), f"oinf: offset_data is {header.offset_data}, inside the header")


class _Reader:
    """The three tables of one file. The caller runs each public method in a scope of the check."""

    def __init__(self, source: Source, header: SimpleNamespace, index: bytes, check: Check, ledger: Ledger) -> None:
        self.source = source
        self.header = header
        self.index = index
        self.check = check
        self.ledger = ledger
        self.size = source.size
        self._ranges: list[tuple[NDArray[np.uint64], NDArray[np.uint64], Callable[[int], str]]] = []

    def _scan(self, layout: Layout, start: int, stop: int, count: int, what: str) -> Columns:
        self.check.limit("metadata_entries" if layout is METADATA else "tensors", count, None, f"oinf: {what}")
        columns = layout.scan(self.index, start, stop, count)
        if columns.failed is not None:
            message = f"oinf: {what} {len(columns)} of {count}: {columns.failed} runs past the table's end at {stop}"
            self.check.fail(rules.TABLE, columns.end, message)
        return columns

    def _read_names(self, columns: Columns, field_name: str, what: str) -> list[str]:
        """Read the names of a table, decoded and checked."""
        check, starts, lengths = self.check, columns[f"{field_name}@"], columns[f"{field_name}#"]
        if len(columns):
            longest = int(lengths.argmax())
            check.limit(
                "name_bytes", int(lengths[longest]), int(starts[longest]), f"oinf: the name of {what} {longest}"
            )
        names, bad = kernels.texts(self.index, starts, lengths)
        if bad >= 0:
            check.fail(rules.UTF8, int(starts[bad]), f"oinf: the name of {what} {bad} is not UTF-8")
        if _OUTSIDE.search("".join(names)) or not lengths.all():
            for row, name in enumerate(names):
                wrong = values.name_breach(name)
                if wrong:
                    check.fail(rules.NAME, int(columns.starts[row]), f"oinf: {what} {row}: {wrong}")
        repeat = find_repeat(names)
        if repeat is not None:
            message = f"oinf: two {what}s are called {names[repeat]!r}"
            check.fail(rules.DUPLICATE, int(columns.starts[repeat]), message)
        if check.wants("strict"):
            self._check_name_padding(starts + lengths, lengths, names, what)
        return names

    def _check_name_padding(
        self, ends: NDArray[np.uint64], lengths: NDArray[np.uint64], names: list[str], what: str
    ) -> None:
        """Check that zeros follow each name up to a multiple of 8 bytes, counted from the string's own start."""
        stored = np.frombuffer(self.index, np.uint8)
        padding = -(4 + lengths.astype(np.int64)) % ALIGN
        dirty = np.zeros(len(names), np.bool_)
        for place in range(ALIGN - 1):
            rows = (padding > place).nonzero()[0]
            dirty[rows] |= stored[ends[rows].astype(np.int64) + place] != 0
        self.check.rows(~dirty, rules.NAME_PAD, ends, lambda row: f"oinf: {what} {names[row]!r}: padding is not 0")

    def _check_places(
        self,
        offsets: NDArray[np.uint64],
        sizes: NDArray[np.uint64],
        chosen: NDArray[np.bool_],
        rule: Rule,
        columns: Columns,
        what: Callable[[int], str],
    ) -> None:
        """Check that the payloads of the ``chosen`` rows are aligned and lie in the data section of the file."""
        in_data = (offsets >= np.uint64(self.header.offset_data)) & fit(offsets, sizes, self.size)
        ok = in_data & (offsets % np.uint64(ALIGN) == 0)

        def message(row: int) -> str:
            offset, nbytes = int(offsets[row]), int(sizes[row])
            if offset % ALIGN:
                return f"oinf: {what(row)}: offset {offset} is not a multiple of {ALIGN}"
            if offset < self.header.offset_data:
                return f"oinf: {what(row)}: offset {offset} lies before the data section at {self.header.offset_data}"
            return f"oinf: {what(row)}: {nbytes} bytes at {offset} run past the end of the file at {self.size}"

        self.check.rows(ok | ~chosen, rule, columns.starts, message)

    def read_sizevars(self) -> dict[str, int]:
        header = self.header
        columns = self._scan(SIZEVAR, header.offset_sizevars, header.offset_metadata, header.n_sizevars, "sizevar")
        names = self._read_names(columns, "name", "sizevar")
        self.ledger.entries(columns, names.__getitem__)
        return dict(zip(names, columns["value"].tolist(), strict=True))

    def read_metadata(self) -> Metadata:
        header, check = self.header, self.check
        columns = self._scan(METADATA, header.offset_metadata, header.offset_tensors, header.n_metadata, "metadata")
        keys = self._read_names(columns, "key", "metadata entry")
        self.ledger.entries(columns, keys.__getitem__)
        tags, sizes, offsets = columns["value_type"], columns["value_nbytes"], columns["value_offset"]

        def entry(row: int) -> str:
            return f"metadata {keys[row]!r}"

        known = np.isin(tags, list(TAGS))
        check.rows(
            known, rules.META_TYPE, columns.starts, lambda row: f"oinf: {entry(row)}: type {tags[row]} is unknown"
        )
        no_flags = columns["value_flags"] == 0
        check.rows(no_flags, rules.META_FLAGS, columns.starts, lambda row: f"oinf: {entry(row)}: flags are not 0")
        self._check_places(offsets, sizes, np.ones(len(keys), np.bool_), rules.META_PLACE, columns, entry)
        total = sum(sizes.tolist())
        check.limit("metadata_bytes", total, None, "oinf: metadata values")
        if total > self.size:  # a hostile file: values overlap so that the same bytes are decoded again and again
            check.fail(rules.META_TOTAL, None, f"oinf: metadata values take {total} bytes in a file of {self.size}")
        self.ledger.payloads("metadata", offsets, sizes, keys.__getitem__)
        self._ranges.append((offsets, sizes, entry))
        self.source.prefetch(zip(offsets.tolist(), (offsets + sizes).tolist(), strict=True))
        entries = []
        for row, key in enumerate(keys):
            with check.scope():
                at = int(offsets[row])
                value, kind = values.decode(int(tags[row]), self.source.read(at, int(sizes[row])), at, key, check)
                entries.append(Entry(key, value, kind))
        return Metadata(entries)

    def read_tensors(self) -> ColumnTable:
        header, check = self.header, self.check
        layout = TENSOR[header.version]
        columns = self._scan(layout, header.offset_tensors, header.offset_data, header.n_tensors, "tensor")
        names = self._read_names(columns, "name", "tensor")
        self.ledger.entries(columns, names.__getitem__)
        shapes = Shapes(self.index, columns["dims@"], columns["ndim"])
        if len(columns):
            check.limit("rank", int(columns["ndim"].max()), None, "oinf: the rank of a tensor")
        tags, flags = columns["dtype"], columns["flags"]

        def entry(row: int) -> str:
            return f"tensor {names[row]!r}"

        codes = _CODES[np.minimum(tags, np.uint64(255)).astype(np.uint8)]
        check.rows(
            codes != 255, rules.DTYPE, columns.starts, lambda row: f"oinf: {entry(row)}: dtype {tags[row]} is unknown"
        )
        check.rows(
            tags != BITSET, rules.DTYPE_BITSET, columns.starts,
            lambda row: f"oinf: {entry(row)}: the format's text both allows and forbids BITSET tensors",
        )  # fmt: skip
        defined = HAS_DATA if header.version == 1 else HAS_DATA | HAS_QUANT
        check.rows(
            flags <= np.uint64(defined), rules.FLAGS_V1 if header.version == 1 else rules.FLAGS, columns.starts,
            lambda row: f"oinf: {entry(row)}: flags {int(flags[row]):#x} have bits beyond {defined:#x}",
        )  # fmt: skip
        stored = (flags & np.uint64(HAS_DATA)) != 0
        offsets, sizes = columns["data_offset"], columns["data_nbytes"]
        native_of = None
        with check.together():
            with check.scope():
                check.rows(
                    stored | ((offsets == 0) & (sizes == 0)), rules.DECLARED, columns.starts,
                    lambda row: f"oinf: {entry(row)} has no data, yet offset {offsets[row]} and size {sizes[row]}",
                )  # fmt: skip
            with check.scope():
                self._check_places(offsets, sizes, stored, rules.DATA_PLACE, columns, entry)
            with check.scope():
                self._check_sizes(columns, names, codes, shapes, stored)
            if header.version == 2:
                with check.scope():
                    native_of = self._read_quant(columns, names, shapes)
        held = np.where(stored, sizes, np.uint64(0))
        self.ledger.payloads("tensor", offsets, held, names.__getitem__)
        self._ranges.append((offsets, held, entry))
        return ColumnTable(
            self.source, names, _DTYPES, codes, shapes, offsets, sizes, has_data=stored, native_of=native_of
        )

    def _check_sizes(
        self, columns: Columns, names: list[str], codes: NDArray[np.uint8], shapes: Shapes, stored: NDArray[np.bool_]
    ) -> None:
        """Check that data_nbytes is exactly what dtype and dims need, in numbers that cannot wrap."""
        counts, exact = shapes.counts()
        sizes = columns["data_nbytes"]
        # An element takes at least one bit, so the file cannot hold more elements than this, and nothing below wraps.
        possible = exact & (counts < np.uint64(1 << 57))  # items have at most 64 bits: the product does not wrap
        needed = (np.where(possible, counts, np.uint64(0)) * _BITS[codes] + np.uint64(7)) // np.uint64(8)

        def message(row: int) -> str:
            dtype, shape = _DTYPES[codes[row]], shapes[row]
            return (
                f"oinf: tensor {names[row]!r} needs {figure(dtype.nbytes(shape))} bytes for {dtype}{list(shape)} "
                f"but its entry says {sizes[row]}"
            )

        self.check.rows((possible & (needed == sizes)) | ~stored, rules.DATA_SIZE, columns.starts, message)

    def _read_quant(self, columns: Columns, names: list[str], shapes: Shapes) -> Callable[[int], object]:
        """Check every quant payload, and return the function that reads the one of a row."""
        check, source = self.check, self.source
        offsets, sizes = columns["quant_offset"], columns["quant_nbytes"]
        has = (columns["flags"] & np.uint64(HAS_QUANT)) != 0

        def entry(row: int) -> str:
            return f"quant of tensor {names[row]!r}"

        check.rows(
            has | ((offsets == 0) & (sizes == 0)), rules.NO_QUANT, columns.starts,
            lambda row: f"oinf: tensor {names[row]!r} has no quant, yet offset {offsets[row]} and size {sizes[row]}",
        )  # fmt: skip
        self._check_places(offsets, sizes, has, rules.QUANT_PLACE, columns, entry)
        for row in has.nonzero()[0].tolist():
            with check.scope():
                self._check_quant_head(int(offsets[row]), int(sizes[row]), shapes[row], entry(row))
        self.ledger.payloads("quant", offsets[has], sizes[has], lambda n: names[int(has.nonzero()[0][n])])
        self._ranges.append((np.where(has, offsets, 0), np.where(has, sizes, 0), entry))

        def native_of(row: int) -> object:
            return quant.decode(source.read(int(offsets[row]), int(sizes[row]))) if has[row] else None

        return native_of

    def _check_quant_head(self, offset: int, size: int, shape: tuple[int, ...], what: str) -> None:
        check = self.check
        if size < QUANT.size:
            check.fail(rules.QUANT_SIZE, offset, f"oinf: {what}: {size} bytes cannot hold the head of {QUANT.size}")
        head = self.source.read(offset, QUANT.size)
        wrong = quant.find_breach(head, shape)
        if wrong:
            check.fail(rules.QUANT_HEAD, offset, f"oinf: {what}: {wrong}")
        q = QUANT.read(head, 0)
        needed = quant.stored_size(q.scale_count, q.zp_count)
        if size != needed:
            check.fail(rules.QUANT_SIZE, offset, f"oinf: {what}: {needed} bytes are needed, its entry says {size}")
        if not q.zp_mode and q.zp_axis:
            check.note(rules.QUANT_AXIS, offset, f"oinf: {what}: zp_axis is {q.zp_axis} without zero points")
        used = QUANT.size + 4 * (q.scale_count + q.zp_count)
        if check.wants("strict") and any(self.source.read(offset + used, size - used)):
            check.note(rules.QUANT_PAD, offset + used, f"oinf: {what}: padding is not 0")

    def check_overlaps(self) -> None:
        """At level strict, check that no two payloads share a byte."""
        if not self.check.wants("strict") or not self._ranges:
            return
        starts = np.concatenate([starts for starts, _, _ in self._ranges])
        sizes = np.concatenate([sizes for _, sizes, _ in self._ranges])
        labels: list[tuple[Callable[[int], str], int]] = [
            (label, row) for column, _, label in self._ranges for row in range(len(column))
        ]
        for _, at in find_overlaps(starts, sizes):
            label, row = labels[at]
            message = f"oinf: {label(row)} begins inside the payload before it"
            self.check.note(rules.OVERLAP, int(starts[at]), message)
