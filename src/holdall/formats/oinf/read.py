"""Reading OINF: the header, three tables as columns, the metadata values; payloads stay where they are."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall import kernels
from holdall.check import Check, Rule, figure
from holdall.columns import Shapes
from holdall.dtypes import DTYPES
from holdall.formats.oinf import quant, rules, values
from holdall.formats.oinf.layout import (
    ALIGN,
    BITSET,
    HAS_DATA,
    HAS_QUANT,
    HEADER,
    MAGIC,
    METADATA,
    QUANT,
    SIZEVAR,
    TAGS,
    TENSOR,
)
from holdall.layout import Columns, Layout
from holdall.ledger import Ledger
from holdall.metadata import Entry, Metadata
from holdall.model import ColumnTable, ListTable, Model, TensorTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["OinfNative", "read"]

_OUTSIDE = re.compile(r"[^A-Za-z0-9._-]")

_DTYPES = [DTYPES[name] for name in TAGS.values() if name in DTYPES]
_CODES = np.full(256, 255, np.uint8)  # tag -> place in _DTYPES; 255: no tensor type
for _place, _dtype in enumerate(_DTYPES):
    _CODES[next(tag for tag, name in TAGS.items() if name == _dtype.name)] = _place
_BITS = np.array([dtype.bits for dtype in _DTYPES], np.uint64)


@dataclass(frozen=True, slots=True)
class OinfNative:
    """What only OINF has: its size variables."""

    sizevars: dict[str, int] = field(default_factory=dict)


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """The model in ``source``."""
    ledger.pad_to = ALIGN
    if source.size >= HEADER.size:
        ledger.record(HEADER, 0)  # before the checks: explain shows the fields of a damaged header too
    header = _header(source, check)
    check.limit("index_bytes", header.offset_data, None, f"oinf: {source.name}: header and tables")
    index = source.read(0, header.offset_data)
    reader = _Reader(source, header, index, check, ledger)
    sizevars: dict[str, int] = {}
    metadata = Metadata()
    tensors: TensorTable = ListTable([])
    with check.scope():
        sizevars = reader.sizevars()
    with check.scope():
        metadata = reader.metadata()
    with check.scope():
        tensors = reader.tensors()
    with check.scope():
        reader.overlaps()
    return Model(
        tensors,
        metadata=metadata,
        native=OinfNative(sizevars),
        format="oinf",
        version=(header.version,),
        sources=[source],
        ledger=ledger,
    )


def _header(source: Source, check: Check) -> SimpleNamespace:
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
    _inside_header(header, check)
    for name in ("flags", "reserved"):
        if getattr(header, name):
            check.note(rules.RESERVED, _at(name), f"oinf: header {name} is {getattr(header, name)}, not 0")
    if any(header.padding):
        check.note(rules.RESERVED, _at("padding"), f"oinf: the header's padding is {header.padding.hex()}, not 0")
    if size % ALIGN:
        check.note(rules.END_PAD, size, f"oinf: the file ends at {size}, not at a multiple of {ALIGN}")
    return header


def _inside_header(header: SimpleNamespace, check: Check) -> None:
    """A table with entries must not start inside the header; the offset of an empty one should not point there."""
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


def _at(name: str) -> int:
    return HEADER.offset_of(name)


class _Reader:
    """The three tables of one file. Each method is one scope of the caller."""

    def __init__(self, source: Source, header: SimpleNamespace, index: bytes, check: Check, ledger: Ledger) -> None:
        self.source = source
        self.header = header
        self.index = index
        self.check = check
        self.ledger = ledger
        self.size = source.size
        self._ranges: list[tuple[NDArray[np.uint64], NDArray[np.uint64], Callable[[int], str]]] = []

    # -- what tables have in common ---------------------------------------------------------------------------------

    def _scan(self, layout: Layout, start: int, stop: int, count: int, what: str) -> Columns:
        self.check.limit("metadata_entries" if layout is METADATA else "tensors", count, None, f"oinf: {what}")
        columns = layout.scan(self.index, start, stop, count)
        if columns.failed is not None:
            message = f"oinf: {what} {len(columns)} of {count}: {columns.failed} runs past the table's end at {stop}"
            self.check.fail(rules.TABLE, columns.end, message)
        return columns

    def _names(self, columns: Columns, field_name: str, what: str) -> list[str]:
        """Decode and check the names of a table."""
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
        if len(set(names)) != len(names):
            seen: set[str] = set()
            for row, name in enumerate(names):
                if name in seen:
                    check.fail(rules.DUPLICATE, int(columns.starts[row]), f"oinf: two {what}s are called {name!r}")
                seen.add(name)
        return names

    def _placed(
        self,
        offsets: NDArray[np.uint64],
        sizes: NDArray[np.uint64],
        chosen: NDArray[np.bool_],
        rule: Rule,
        columns: Columns,
        what: Callable[[int], str],
    ) -> None:
        """Payload ranges of the ``chosen`` rows: aligned, in the data section, inside the file."""
        size, data = np.uint64(self.size), np.uint64(self.header.offset_data)
        inside = (offsets <= size) & (sizes <= size - np.minimum(offsets, size))
        ok = (offsets % np.uint64(ALIGN) == 0) & (offsets >= data) & inside

        def message(row: int) -> str:
            offset, nbytes = int(offsets[row]), int(sizes[row])
            if offset % ALIGN:
                return f"oinf: {what(row)}: offset {offset} is not a multiple of {ALIGN}"
            if offset < self.header.offset_data:
                return f"oinf: {what(row)}: offset {offset} lies before the data section at {self.header.offset_data}"
            return f"oinf: {what(row)}: {nbytes} bytes at {offset} run past the end of the file at {self.size}"

        self.check.rows(ok | ~chosen, rule, columns.starts, message)

    # -- the tables -------------------------------------------------------------------------------------------------

    def sizevars(self) -> dict[str, int]:
        header = self.header
        columns = self._scan(SIZEVAR, header.offset_sizevars, header.offset_metadata, header.n_sizevars, "sizevar")
        names = self._names(columns, "name", "sizevar")
        self.ledger.entries(columns, names.__getitem__)
        return dict(zip(names, columns["value"].tolist(), strict=True))

    def metadata(self) -> Metadata:
        header, check = self.header, self.check
        columns = self._scan(METADATA, header.offset_metadata, header.offset_tensors, header.n_metadata, "metadata")
        keys = self._names(columns, "key", "metadata entry")
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
        self._placed(offsets, sizes, np.ones(len(keys), np.bool_), rules.META_PLACE, columns, entry)
        total = sum(sizes.tolist())
        check.limit("metadata_bytes", total, None, "oinf: metadata values")
        if total > self.size:  # values that overlap this much exist only to be decoded over and over
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

    def tensors(self) -> ColumnTable:
        header, check = self.header, self.check
        layout = TENSOR[header.version]
        columns = self._scan(layout, header.offset_tensors, header.offset_data, header.n_tensors, "tensor")
        names = self._names(columns, "name", "tensor")
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
                self._placed(offsets, sizes, stored, rules.DATA_PLACE, columns, entry)
            with check.scope():
                self._sizes(columns, names, codes, shapes, stored)
            if header.version == 2:
                with check.scope():
                    native_of = self._quant(columns, names, shapes)
        held = np.where(stored, sizes, np.uint64(0))
        self.ledger.payloads("tensor", offsets, held, names.__getitem__)
        self._ranges.append((offsets, held, entry))
        return ColumnTable(
            self.source, names, _DTYPES, codes, shapes, offsets, sizes, stored=stored, native_of=native_of
        )

    def _sizes(
        self, columns: Columns, names: list[str], codes: NDArray[np.uint8], shapes: Shapes, stored: NDArray[np.bool_]
    ) -> None:
        """data_nbytes is exactly what dtype and dims need, in numbers that cannot wrap."""
        counts, exact = shapes.counts()
        sizes = columns["data_nbytes"]
        # With at least one bit an element, more elements than this cannot be in the file: nothing below can wrap.
        possible = exact & (counts <= np.uint64(8 * self.size))
        needed = (np.where(possible, counts, np.uint64(0)) * _BITS[codes] + np.uint64(7)) // np.uint64(8)

        def message(row: int) -> str:
            dtype, shape = _DTYPES[codes[row]], shapes[row]
            return (
                f"oinf: tensor {names[row]!r} needs {figure(dtype.nbytes(shape))} bytes for {dtype}{list(shape)} "
                f"but its entry says {sizes[row]}"
            )

        self.check.rows((possible & (needed == sizes)) | ~stored, rules.DATA_SIZE, columns.starts, message)

    def _quant(self, columns: Columns, names: list[str], shapes: Shapes) -> Callable[[int], object]:
        """Check every quant payload; returns the function that reads one."""
        check, source = self.check, self.source
        offsets, sizes = columns["quant_offset"], columns["quant_nbytes"]
        has = (columns["flags"] & np.uint64(HAS_QUANT)) != 0

        def entry(row: int) -> str:
            return f"quant of tensor {names[row]!r}"

        check.rows(
            has | ((offsets == 0) & (sizes == 0)), rules.NO_QUANT, columns.starts,
            lambda row: f"oinf: tensor {names[row]!r} has no quant, yet offset {offsets[row]} and size {sizes[row]}",
        )  # fmt: skip
        self._placed(offsets, sizes, has, rules.QUANT_PLACE, columns, entry)
        for row in has.nonzero()[0].tolist():
            with check.scope():
                self._quant_head(int(offsets[row]), int(sizes[row]), shapes[row], entry(row))
        self.ledger.payloads("quant", offsets[has], sizes[has], lambda n: names[int(has.nonzero()[0][n])])
        self._ranges.append((np.where(has, offsets, 0), np.where(has, sizes, 0), entry))

        def native_of(row: int) -> object:
            return quant.decode(source.read(int(offsets[row]), int(sizes[row]))) if has[row] else None

        return native_of

    def _quant_head(self, offset: int, size: int, shape: tuple[int, ...], what: str) -> None:
        check = self.check
        if size < QUANT.size:
            check.fail(rules.QUANT_SIZE, offset, f"oinf: {what}: {size} bytes cannot hold the head of {QUANT.size}")
        head = self.source.read(offset, QUANT.size)
        wrong = quant.breaches(head, shape)
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

    def overlaps(self) -> None:
        """Strictly, no two payloads share a byte; empty ones share with nobody."""
        if not self.check.wants("strict") or not self._ranges:
            return
        starts = np.concatenate([starts for starts, _, _ in self._ranges])
        sizes = np.concatenate([sizes for _, sizes, _ in self._ranges])
        labels: list[tuple[Callable[[int], str], int]] = [
            (label, row) for column, _, label in self._ranges for row in range(len(column))
        ]
        used = sizes.nonzero()[0]
        order: NDArray[Any] = used[np.argsort(starts[used], kind="stable")]
        ends = np.maximum.accumulate(starts[order] + sizes[order])
        for place in (starts[order][1:] < ends[:-1]).nonzero()[0].tolist():
            label, row = labels[int(order[place + 1])]
            at = int(starts[order[place + 1]])
            self.check.note(rules.OVERLAP, at, f"oinf: {label(row)} begins inside the payload before it")
