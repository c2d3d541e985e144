"""Reads safetensors: the header as columns, with offsets checked against dtype, shape and the size of the file."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.check import Check, figure
from holdall.format.safetensors import rules
from holdall.format.safetensors.header import WORDS, Index, read_header
from holdall.format.safetensors.layout import CAP, DTYPES, HEADER
from holdall.model.dtypes import find_dtype
from holdall.model.model import Model
from holdall.model.table import ColumnTable, ListTable, TensorTable
from holdall.source.ledger import Ledger

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["PALETTE", "SafetensorsNative", "Table", "read", "read_table"]

PALETTE = [find_dtype(DTYPES[word]) for word in WORDS]
_BITS = np.array([dtype.bits for dtype in PALETTE], np.uint64)


@dataclass(frozen=True, slots=True)
class SafetensorsNative:
    """What only safetensors has: where the data begins."""

    data_start: int = 0


@dataclass(slots=True)
class Table:
    """The header of one file, where its data begins, and whether the offsets passed every check."""

    index: Index
    data_start: int
    sound: bool

    @property
    def starts(self) -> NDArray[np.uint64]:
        """Where each tensor begins in the file."""
        return self.index.begins + np.uint64(self.data_start)

    @property
    def sizes(self) -> NDArray[np.uint64]:
        """Stored bytes of each tensor."""
        return self.index.ends - self.index.begins


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """Read the model in ``source``."""
    table = read_table(source, check, ledger)
    index = table.index
    tensors: TensorTable = ListTable([])
    if table.sound:
        tensors = ColumnTable(source, index.names, PALETTE, index.codes, index.shapes, table.starts, table.sizes)
    native = SafetensorsNative(table.data_start)
    return Model(tensors, metadata=index.metadata, native=native, format="safetensors", sources=[source], ledger=ledger)


def read_table(source: Source, check: Check, ledger: Ledger) -> Table:
    """Read and check the header of one file. A sharded model joins several of these tables."""
    length = _read_length(source, check)
    header = source.read(HEADER.size, length)
    start = HEADER.size + length
    ledger.record(HEADER, 0)
    ledger.region("json", HEADER.size, length)
    if not header.startswith(b"{"):
        check.fail(rules.START, HEADER.size, f"safetensors: the header begins with {header[:1]!r}, not with {{")
    index = read_header(header, check)
    _check_form(header, start, index, check)
    before = check.abandoned
    with check.scope(), check.together():
        _check_offsets(index, start, source.size, check)
        with check.scope():
            _check_sizes(index, source.size, check)
        if index.complete:
            with check.scope():
                _check_cover(index, start, source.size, check)
    table = Table(index, start, check.abandoned == before)
    if table.sound:
        ledger.payloads("tensor", table.starts, table.sizes, index.names.__getitem__)
    return table


def _read_length(source: Source, check: Check) -> int:
    size = source.size
    if size < HEADER.size:
        check.fail(rules.SHORT, size, f"safetensors: {size} bytes cannot hold the length of the header")
    length: int = HEADER.read(source.read(0, HEADER.size), 0).length
    if length > size - HEADER.size:
        message = f"safetensors: a header of {length} bytes is announced, {size - HEADER.size} bytes follow"
        check.fail(rules.LENGTH, 0, message)
    check.limit("index_bytes", length, 0, "safetensors: bytes of header")
    return length


def _check_form(header: bytes, start: int, index: Index, check: Check) -> None:
    """Note what readers accept and writers should avoid."""
    if not check.wants("strict"):
        return
    if len(header) > CAP:
        message = f"safetensors: the header has {len(header)} bytes; the format's own library opens {CAP} at most"
        check.note(rules.CAP, 0, message)
    body = len(header.rstrip(b" "))
    if header[:body].rstrip() != header[:body]:
        check.note(rules.PADDING, HEADER.size + body - 1, "safetensors: the padding is not of spaces only")
    if start % 8:
        check.note(rules.ALIGN, start, f"safetensors: the data begins at byte {start}, not at a multiple of 8")
    if "" in index.names:
        row = index.names.index("")
        check.note(rules.EMPTY_NAME, index.place(row, "name"), f"safetensors: the name of tensor {row} is empty")


def _check_offsets(index: Index, start: int, size: int, check: Check) -> None:
    """Check that begin <= end <= the size of the data."""
    begins, ends, names = index.begins, index.ends, index.names
    room = size - start

    def at(row: int) -> int:
        return index.place(row, "data_offsets")

    with check.together():
        with check.scope():
            check.rows(
                begins <= ends, rules.OFFSET_ORDER, at,
                lambda row: f"safetensors: tensor {names[row]!r} begins at {begins[row]} and ends at {ends[row]}",
            )  # fmt: skip
        with check.scope():
            check.rows(
                ends <= np.uint64(room), rules.OFFSET_RANGE, at,
                lambda row: f"safetensors: tensor {names[row]!r} ends at {ends[row]} of the data, which has {room} "
                "bytes: the file may be cut short",
                needs=lambda: start + int(ends.max()),
            )  # fmt: skip


def _check_sizes(index: Index, size: int, check: Check) -> None:
    """Check that offsets span exactly what dtype and shape need. No product below can overflow."""
    codes, names, shapes = index.codes, index.names, index.shapes
    spans = index.ends - index.begins
    counts, exact = shapes.counts()
    # An element has four bits or more, so a file of this size cannot hold more elements than this.
    possible = exact & (counts <= np.uint64(8 * size))
    bits = np.where(possible, counts, np.uint64(0)) * _BITS[codes]

    def describe_row(row: int) -> str:
        return f"safetensors: tensor {names[row]!r}: {WORDS[codes[row]]}{list(shapes[row])}"

    whole = (bits % np.uint64(8) == 0) | ~possible
    check.rows(
        whole, rules.BITS, lambda row: index.place(row, "shape"),
        lambda row: f"{describe_row(row)} takes {int(bits[row])} bits, not whole bytes",
    )  # fmt: skip
    check.rows(
        possible & (bits // np.uint64(8) == spans), rules.SIZE, lambda row: index.place(row, "data_offsets"),
        lambda row: f"{describe_row(row)} needs {figure(PALETTE[codes[row]].nbytes(shapes[row]))} bytes "
        f"but its data_offsets span {spans[row]}",
    )  # fmt: skip
    if not check.wants("strict"):
        return
    empty = ((counts == 0) & exact).nonzero()[0].tolist()
    wraps = [row for row in empty if _overflows(shapes[row])]
    for row in wraps:
        message = f"{describe_row(row)} is empty, but its dims do not multiply within 64 bits on the way"
        check.note(rules.PRODUCT, index.place(row, "shape"), message)


def _overflows(shape: tuple[int, ...]) -> bool:
    """Whether the product of the dims before the first 0 exceeds 64 bits."""
    leading = shape[: shape.index(0)] if 0 in shape else shape
    return prod(leading) >> 64 != 0


def _check_cover(index: Index, start: int, size: int, check: Check) -> None:
    """Check that the tensors cover the data: no holes, no shared bytes, nothing after the last one."""
    order = np.lexsort((index.ends, index.begins))
    begins, ends, names = index.begins[order], index.ends[order], index.names
    reached = np.maximum.accumulate(np.concatenate([np.zeros(1, np.uint64), ends]))
    before, room = reached[:-1], size - start

    def at(place: int) -> int:
        return index.place(int(order[place]), "data_offsets")

    with check.scope():
        check.rows(
            begins >= before, rules.OVERLAP, at,
            lambda place: f"safetensors: tensor {names[order[place]]!r} begins at {begins[place]} of the data, inside "
            f"what ends at {before[place]}",
        )  # fmt: skip
    with check.scope():
        check.rows(
            begins <= before, rules.HOLE, at,
            lambda place: f"safetensors: tensor {names[order[place]]!r} begins at {begins[place]} of the data, "
            f"{int(begins[place]) - int(before[place])} bytes after the one before it ends",
        )  # fmt: skip
    with check.scope():
        end = int(reached[-1])
        if end < room:
            message = f"safetensors: {room - end} bytes follow the last tensor"
            check.fail(rules.TRAILING, start + end, message)
    if check.wants("strict"):
        widths = np.maximum(_BITS[index.codes] // np.uint64(8), np.uint64(1))
        check.rows(
            ((index.begins + np.uint64(start)) % widths == 0) | (index.begins == index.ends), rules.TENSOR_ALIGN,
            lambda row: index.place(row, "data_offsets"),
            lambda row: f"safetensors: tensor {names[row]!r} begins at byte {int(index.begins[row]) + start}, "
            f"not at a multiple of its item size of {widths[row]}",
        )  # fmt: skip
