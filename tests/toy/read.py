"""Reads a toy. Every number of the file is checked against the file before it is used."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from holdall.plugin import (
    Check,
    Columns,
    ColumnTable,
    Entry,
    Layout,
    Ledger,
    ListTable,
    Metadata,
    Model,
    Shapes,
    Source,
    TensorTable,
    figure,
    find_dtype,
    find_repeat,
    fit,
    texts,
)
from tests.toy import rules
from tests.toy.layout import (
    DTYPES,
    END_MAGIC,
    ENTRY,
    FOOTER,
    HAS_DATA,
    HEADER,
    IN_SIDE,
    MAGIC,
    MAIN,
    META,
    PAIR,
    SECTION,
    SIDE,
    SIDE_MAGIC,
)

_PALETTE = [find_dtype(name) for name in DTYPES]
_BITS = np.array([dtype.bits for dtype in _PALETTE], np.uint64)


@dataclass(frozen=True, slots=True)
class ToyNative:
    """Sections with unknown tags, kept so that writing gives them back."""

    sections: tuple[tuple[bytes, bytes], ...] = ()


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """Read the model in a folder, or in the main file of one."""
    main = source.sibling(MAIN) if source.is_folder else source
    header, footer = _frame(main, check)
    ledger.record(HEADER, 0)
    ledger.record(FOOTER, main.size - FOOTER.size)
    ledger.region("index", footer.index_offset, footer.index_size)
    check.limit("index_bytes", header.data_offset, None, "toy: header and tables")
    front = main.read(0, header.data_offset)
    table_end = HEADER.size + header.table_size
    sections: list[tuple[bytes, bytes]] = []
    metadata = Metadata()
    tensors: TensorTable = ListTable([])
    members = [main]
    with check.scope():
        found = _scan(SECTION, front, table_end, header.data_offset, header.n_sections, check)
        ledger.entries(found)
        for tag, start, size in zip(*(found[name].tolist() for name in ("tag@", "body@", "length")), strict=True):
            body = front[start : start + size]
            if front[tag : tag + 4] != META:
                sections.append((front[tag : tag + 4], body))
                continue
            with check.scope():
                metadata = Metadata([*metadata.entries, *_pairs(body, start, check)])
    with check.scope():
        columns = _scan(ENTRY, front, HEADER.size, table_end, header.n_tensors, check)
        side = main
        if (columns["flags"] & np.uint64(IN_SIDE)).any():
            side = main.sibling(SIDE)
            members.append(side)
            _check_side(side, check)
        tensors = _tensors(columns, front, main, side, footer.index_offset, check, ledger)
    return Model(
        tensors,
        metadata=metadata,
        native=ToyNative(tuple(sections)),
        format="toy",
        version=(1,),
        sources=members,
    )


def _frame(main: Source, check: Check) -> tuple[SimpleNamespace, SimpleNamespace]:
    """Read header and footer, and check the places that they state."""
    size = main.size
    if size < HEADER.size + FOOTER.size:
        check.fail(rules.SIZE, size, f"toy: {size} bytes cannot hold header and footer")
    header = HEADER.read(main.read(0, HEADER.size), 0)
    end = size - FOOTER.size
    footer = FOOTER.read(main.read(end, FOOTER.size), 0)
    if header.magic != MAGIC or footer.magic != END_MAGIC:
        check.fail(rules.MAGIC, 0, f"toy: begins with {header.magic!r} and ends with {footer.magic!r}")
    if header.version != 1:
        check.fail(rules.VERSION, HEADER.offset_of("version"), f"toy: version {header.version} is unknown; 1 is known")
    if footer.index_offset > end or footer.index_size != end - footer.index_offset:
        message = f"toy: an index of {footer.index_size} bytes at {footer.index_offset} does not end at {end}"
        check.fail(rules.PLACE, end, message)
    if not HEADER.size + header.table_size <= header.data_offset <= footer.index_offset:
        message = f"toy: a table of {header.table_size} bytes and payloads at {header.data_offset} do not fit"
        check.fail(rules.PLACE, HEADER.offset_of("data_offset"), message)
    return header, footer


def _scan(layout: Layout, data: bytes, start: int, stop: int, count: int, check: Check) -> Columns:
    check.limit("tensors", count, None, f"toy: {layout.name}")
    columns = layout.scan(data, start, stop, count)
    if columns.failed is not None:
        message = f"toy: {layout.name} {len(columns)} of {count}: {columns.failed} runs past byte {stop}"
        check.fail(rules.TABLE, columns.end, message)
    return columns


def _pairs(body: bytes, at: int, check: Check) -> list[Entry]:
    # The number of pairs is not stated: the scan ends where none is left.
    columns = PAIR.scan(body, 0, len(body), len(body))
    if columns.end != len(body):
        check.fail(rules.META, at + columns.end, f"toy: metadata pair {len(columns)} runs past its section")
    keys, bad_key = texts(body, columns["key@"], columns["key#"])
    values, bad_value = texts(body, columns["value@"], columns["value#"])
    if bad_key >= 0 or bad_value >= 0:
        check.fail(rules.META, at, f"toy: metadata pair {max(bad_key, bad_value)} is not UTF-8")
    return [Entry(key, value, "text") for key, value in zip(keys, values, strict=True)]


def _check_side(side: Source, check: Check) -> None:
    if side.size < len(SIDE_MAGIC) or side.read(0, len(SIDE_MAGIC)) != SIDE_MAGIC:
        check.fail(rules.SIDE, 0, f"toy: {SIDE} does not begin with its magic")


def _tensors(
    columns: Columns, front: bytes, main: Source, side: Source, end: int, check: Check, ledger: Ledger
) -> ColumnTable:
    """Check the table as columns. No number is multiplied before it has been compared with the file."""
    names, bad = texts(front, columns["name@"], columns["name#"])
    if bad >= 0:
        check.fail(rules.NAME, int(columns["name@"][bad]), f"toy: the name of entry {bad} is not UTF-8")
    if (repeat := find_repeat(names)) is not None:
        check.fail(rules.NAME, int(columns.starts[repeat]), f"toy: there are two tensors {names[repeat]!r}")
    if "" in names:
        check.fail(rules.NAME, int(columns.starts[names.index("")]), "toy: a name is empty")
    ledger.entries(columns, names.__getitem__)

    def entry(row: int) -> str:
        return f"toy: tensor {names[row]!r}"

    codes, flags = columns["dtype"], columns["flags"]
    check.rows(codes < len(DTYPES), rules.DTYPE, columns.starts, lambda row: f"{entry(row)}: no dtype {codes[row]}")
    if len(columns):
        check.limit("rank", int(columns["rank"].max()), None, "toy: the rank of a tensor")
    offsets, sizes = columns["offset"], columns["size"]
    stored, aside = (flags & np.uint64(HAS_DATA)) != 0, (flags & np.uint64(IN_SIDE)) != 0
    fits = (flags <= np.uint64(HAS_DATA | IN_SIDE)) & (stored | ((offsets == 0) & (sizes == 0) & ~aside))
    check.rows(fits, rules.FLAGS, columns.starts, lambda row: f"{entry(row)}: flags {flags[row]}, {sizes[row]} bytes")
    shapes = Shapes(front, columns["dims@"], columns["rank"], 4)
    counts, exact = shapes.counts()
    with check.together():
        with check.scope():
            first = np.where(aside, np.uint64(len(SIDE_MAGIC)), np.uint64(len(front)))
            inside = (offsets >= first) & np.where(aside, fit(offsets, sizes, side.size), fit(offsets, sizes, end))
            check.rows(
                inside | ~stored, rules.DATA, columns.starts,
                lambda row: f"{entry(row)}: {sizes[row]} bytes at {offsets[row]} lie outside its file",
            )  # fmt: skip
        with check.scope():
            possible = exact & (counts <= np.uint64(8 * max(main.size, side.size)))
            needed = (np.where(possible, counts, np.uint64(0)) * _BITS[codes] + np.uint64(7)) // np.uint64(8)

            def message(row: int) -> str:
                wanted = figure(_PALETTE[int(codes[row])].nbytes(shapes[row]))
                return f"{entry(row)}: its shape needs {wanted} bytes, its entry says {sizes[row]}"

            check.rows((possible & (needed == sizes)) | ~stored, rules.DATA, columns.starts, message)
    held = np.where(stored, sizes, np.uint64(0))
    ledger.payloads("tensor", np.where(aside, 0, offsets), np.where(aside, np.uint64(0), held), names.__getitem__)
    if aside.any():
        beside = ledger.member(side)
        beside.region("magic", 0, len(SIDE_MAGIC))
        beside.payloads("tensor", offsets[aside], held[aside])
    return ColumnTable(
        main, names, _PALETTE, codes, shapes, offsets, sizes, has_data=stored,
        source_of=lambda row: side if aside[row] else main,
    )  # fmt: skip
