"""The tensor table of one GGUF file, as columns; every payload is proven to lie inside the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from holdall.base.check import Check, figure
from holdall.base.repeats import find_repeat
from holdall.binary import kernels
from holdall.binary.columns import Shapes, find_end, find_overlaps, fit
from holdall.format.gguf import rules
from holdall.format.gguf.layout import MAX_DIMS, MAX_NAME, TENSOR
from holdall.format.gguf.unknown_types import Q2_0, extend_palette, measure_gaps
from holdall.model.dtypes import find_dtype
from holdall.model.ggml import BLOCKS, PLAIN, REMOVED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from holdall.binary.layout import Columns
    from holdall.format.gguf.growing_front import GrowingFront
    from holdall.model.encodings import Stored
    from holdall.source.ledger import Ledger

__all__ = ["PALETTE", "TYPES", "TYPE_OF", "Dims", "Table", "read_table"]

_UNKNOWN = 255

# The types of tensors: plain ones, then blocks. ``TYPE_OF`` finds the ggml id by name.
PALETTE: list[Stored] = [*map(find_dtype, PLAIN.values()), *BLOCKS.values()]
_IDS = [*PLAIN, *BLOCKS]
TYPE_OF: dict[str, int] = dict(zip(map(str, PALETTE), _IDS, strict=True))
TYPES = dict(zip(_IDS, PALETTE, strict=True))
_CODES = np.full(256, _UNKNOWN, np.uint8)
_CODES[_IDS] = np.arange(len(_IDS))
_PER_BLOCK = np.ones(256, np.uint64)
_PER_BLOCK[len(PLAIN) : len(_IDS)] = [blocks.elements for blocks in BLOCKS.values()]
_BLOCK_BYTES = np.zeros(256, np.uint64)
_BLOCK_BYTES[: len(PLAIN)] = [find_dtype(name).bits // 8 for name in PLAIN.values()]
_BLOCK_BYTES[len(PLAIN) : len(_IDS)] = [blocks.block_bytes for blocks in BLOCKS.values()]

_Q2_0 = _IDS.index(Q2_0)


class Dims(Shapes):
    """The shapes of a tensor table, row-major: the file has the axis that varies fastest first."""

    def __getitem__(self, row: int) -> tuple[int, ...]:  # type: ignore[override]  # rows only, no slices
        return super().__getitem__(row)[::-1]


@dataclass(slots=True)
class Table:
    """The tensors of one file, proven to lie inside it."""

    names: list[str]
    palette: Sequence[Stored]  # ``PALETTE``, and after it the opaque types of this file
    codes: NDArray[np.unsignedinteger[Any]]  # rows of the palette
    shapes: Dims
    starts: NDArray[np.uint64]  # the byte of the file at which each payload starts
    sizes: NDArray[np.uint64]


def read_table(
    front: GrowingFront, count: int, start: int, alignment: int, check: Check, ledger: Ledger
) -> Table:  # fmt: skip
    """Read the ``count`` tensors whose table begins at byte ``start``."""
    columns = front.scan(TENSOR, start, count, "the tensor table", check.limits.name_bytes)
    if columns.failed is not None:
        _refuse_scan(front, columns, count, check)
    return _TableReader(front, columns, alignment, check).read(ledger)


def _refuse_scan(front: GrowingFront, columns: Columns, count: int, check: Check) -> NoReturn:
    """Say why the entry after the last whole one does not fit."""
    at, row, data = columns.end, len(columns), front.data
    if columns.failed == "dims":
        rank = int.from_bytes(data[at - 4 : at], "little")
        if rank > MAX_DIMS:
            check.fail(rules.RANK, at - 4, f"gguf: tensor {row}: {rank} dimensions, more than {MAX_DIMS}")
    if columns.failed == "name" and at + 8 <= len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        check.limit("name_bytes", length if length <= front.size - at else 0, at, f"gguf: the name of {row}")
    message = f"gguf: tensor {row} of {count}: {columns.failed} runs past the end of the file at {front.size}"
    check.fail(rules.END, at, message)


class _TableReader:
    """Checks the scanned columns of one table and turns them into a :class:`Table`."""

    def __init__(self, front: GrowingFront, columns: Columns, alignment: int, check: Check) -> None:
        self.front = front
        self.columns = columns
        self.alignment = alignment
        self.check = check
        self.names = self._read_names()

    def _read_names(self) -> list[str]:
        """Read the names of all tensors: UTF-8 and unique; at level strict, names that ggml can hold."""
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
        repeat = find_repeat(names)
        if repeat is not None:
            check.fail(rules.NAME_DUPLICATE, int(starts[repeat]), f"gguf: two tensors are called {names[repeat]!r}")
        if check.wants("strict"):
            kept = (lengths >= 1) & (lengths <= MAX_NAME)
            if any("\0" in name for name in names):
                kept &= np.array(["\0" not in name for name in names], np.bool_)
            check.rows(
                kept, rules.NAME_GGML, starts,
                lambda row: f"gguf: the name {names[row][:80]!r} has {lengths[row]} bytes, or a NUL",
            )  # fmt: skip
        return names

    def read(self, ledger: Ledger) -> Table:
        """Read the table, once all of its columns are checked."""
        check, columns, names = self.check, self.columns, self.names
        ledger.entries(columns, names.__getitem__)
        codes = self._find_types()
        first = int(columns.starts[0]) if len(columns) else columns.end
        # Shapes keep these bytes alive: the metadata before the table, often a vocabulary, is not among them.
        table_bytes = self.front.data[first : columns.end]
        shapes = Dims(table_bytes, columns["dims@"] - np.uint64(first), columns["n_dims"])
        sizes = self._compute_sizes(codes, shapes)
        data = columns.end + -columns.end % self.alignment
        opaque = self._find_opaque(codes, sizes, shapes, max(0, self.front.size - data))
        starts = self._place_payloads(sizes, data)
        table = Table(names, PALETTE, codes, shapes, starts, sizes)
        if len(opaque):
            table.palette, table.codes = extend_palette(PALETTE, codes, columns["type"], sizes, opaque)
        ledger.payloads("tensor", starts, sizes, names.__getitem__)
        if check.wants("strict"):
            self._check_order(table)
        return table

    def _find_types(self) -> NDArray[np.uint8]:
        """Find the row of ``PALETTE`` of every tensor; ``_UNKNOWN`` for a type that is not in it."""
        check, columns, names = self.check, self.columns, self.names
        ranks, types = columns["n_dims"], columns["type"]
        codes: NDArray[np.uint8] = _CODES[np.minimum(types, np.uint64(_UNKNOWN)).astype(np.uint8)]
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
        return codes

    def _find_opaque(
        self, codes: NDArray[np.uint8], sizes: NDArray[np.uint64], shapes: Dims, end: int
    ) -> NDArray[np.intp]:  # fmt: skip
        """Find the rows of unknown types and set their ``sizes``: up to the next payload or the ``end`` of the data.

        A fork of ggml has blocks of another size for Q2_0. Where one of them would not fit, all count as unknown.
        """
        unknown = codes == _UNKNOWN
        q2_0 = codes == _Q2_0
        if not (unknown.any() or q2_0.any()):
            return np.empty(0, np.intp)
        check, columns, names, types = self.check, self.columns, self.names, self.columns["type"]
        gaps = measure_gaps(columns["offset"], end)
        if (sizes > gaps)[q2_0].any():
            unknown |= q2_0
        rows: NDArray[np.intp] = unknown.nonzero()[0]
        counts, _ = shapes.counts()
        sizes[rows] = np.where(counts[rows] > 0, gaps[rows], np.uint64(0))
        check.rows(
            ~unknown | (sizes > 0) | (counts == 0), rules.PLACE, columns.starts,
            lambda row: f"gguf: tensor {names[row]!r} is of type {types[row]}, which is unknown, and begins at "
            f"{columns['offset'][row]} of {end} bytes of data: there is nothing for it",
        )  # fmt: skip
        for row in rows.tolist() if check.collecting else ():
            message = f"gguf: tensor {names[row]!r} is of type {types[row]}, which is unknown: {sizes[row]} bytes up to"
            check.note(rules.DTYPE, int(columns.starts[row]), f"{message} the next tensor, or the end, are opaque")
        return rows

    def _compute_sizes(self, codes: NDArray[np.uint8], shapes: Dims) -> NDArray[np.uint64]:
        """Stored bytes of every tensor, in numbers that cannot wrap."""
        check, columns, names = self.check, self.columns, self.names
        counts, exact = shapes.counts()
        # With at least one bit an element, more elements than this cannot be in the file: nothing below can wrap.
        possible = exact & (counts <= np.uint64(8 * self.front.size))

        def explain(row: int) -> str:
            if codes[row] == _UNKNOWN:
                needs = f"{list(shapes[row])} of an unknown type cannot be in"
            else:
                stored = PALETTE[codes[row]]
                needs = f"{stored}{list(shapes[row])} needs {figure(stored.nbytes(shapes[row]))} bytes of"
            return f"gguf: tensor {names[row]!r}: {needs} a file of {self.front.size}"

        check.rows(possible, rules.DATA_SIZE, columns.starts, explain)
        # A tensor that has elements cannot have such a dimension: there would be too many of them.
        for row in (counts == 0).nonzero()[0].tolist():
            if max(shapes[row]) >= 1 << 63:
                message = f"gguf: tensor {names[row]!r}: a dimension of {list(shapes[row])} is 2^63 or more"
                check.fail(rules.DIMS, int(columns.starts[row]), message)
        per_block = _PER_BLOCK[codes]
        blocked = (per_block > 1).nonzero()[0]
        if len(blocked):
            whole = np.ones(len(codes), np.bool_)
            whole[blocked] = self._read_row_lengths(blocked) % per_block[blocked] == 0
            check.rows(
                whole, rules.BLOCK, columns.starts,
                lambda row: f"gguf: tensor {names[row]!r}: rows of {list(shapes[row])} are not whole blocks of "
                f"{per_block[row]} elements of {PALETTE[codes[row]]}",
            )  # fmt: skip
        sizes: NDArray[np.uint64] = counts // per_block * _BLOCK_BYTES[codes]
        return sizes

    def _read_row_lengths(self, rows: NDArray[np.intp]) -> NDArray[np.uint64]:
        """Read the dimension that varies fastest, of each of ``rows``; 1 for scalars."""
        columns = self.columns
        flat = np.frombuffer(self.front.data, np.uint8)
        has = columns["n_dims"][rows] > 0
        lengths = np.ones(len(rows), np.uint64)
        where = columns["dims@"][rows][has][:, None] + np.arange(8, dtype=np.uint64)
        lengths[has] = flat[where].view("<u8")[:, 0]
        return lengths

    def _place_payloads(self, sizes: NDArray[np.uint64], data: int) -> NDArray[np.uint64]:
        """Where each payload begins in the file, whose data begins at ``data``; each of them lies inside it."""
        check, columns, names = self.check, self.columns, self.names
        offsets = columns["offset"]
        with check.together():
            with check.scope():
                check.rows(
                    offsets % np.uint64(self.alignment) == 0, rules.OFFSET_ALIGN, columns.starts,
                    lambda row: f"gguf: tensor {names[row]!r}: offset {offsets[row]} is not a multiple of "
                    f"{self.alignment}",
                )  # fmt: skip
            with check.scope():
                fits = fit(offsets, sizes, max(0, self.front.size - data))
                check.rows(
                    fits & (data <= self.front.size), rules.PLACE, columns.starts,
                    lambda row: f"gguf: tensor {names[row]!r}: {sizes[row]} bytes at {offsets[row]} of the data, which "
                    f"begins at {data}, run past the end of the file at {self.front.size}",
                    needs=lambda: data + find_end(offsets, sizes),
                )  # fmt: skip
        return offsets + np.uint64(data)

    def _check_order(self, table: Table) -> None:
        """Note what other readers refuse: payloads that overlap, are out of order, or lack their padding."""
        check, names, alignment = self.check, table.names, np.uint64(self.alignment)
        padded = table.sizes + (alignment - table.sizes % alignment) % alignment
        ends = table.starts + padded
        expected = np.concatenate([table.starts[:1] - self.columns["offset"][:1], ends[:-1]])
        check.rows(
            table.starts == expected, rules.ORDER, self.columns.starts,
            lambda row: f"gguf: tensor {names[row]!r} begins at {table.starts[row]}; in the order of the table "
            f"it would at {expected[row]}",
        )  # fmt: skip
        for _, row in find_overlaps(table.starts, table.sizes):
            message = f"gguf: tensor {names[row]!r} begins inside the payload before it"
            check.note(rules.OVERLAP, int(table.starts[row]), message)
        if len(ends) and int(ends.max()) > self.front.size:
            message = f"gguf: the file ends at {self.front.size}, before the padding of its last payload"
            check.note(rules.END_PAD, self.front.size, message)
