"""Reads the tensor index of the layout with a 64-byte header: descriptors, then names."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.check import Check
from holdall.base.repeats import find_repeat
from holdall.binary import kernels
from holdall.binary.columns import Shapes, fit
from holdall.format.embd import layout, rules
from holdall.format.embd.layout import ALIGN, HEADER, TENSOR
from holdall.model.dtypes import DTYPES
from holdall.model.table import ColumnTable
from holdall.source.ledger import Ledger

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["IndexReader"]

_DTYPES = [DTYPES[name] for name in layout.DTYPES]
_ITEM = np.array([dtype.bits // 8 for dtype in _DTYPES], np.uint64)


class IndexReader:
    """Reads the index out of ``index``, the bytes of the file before the tensor data."""

    def __init__(self, source: Source, header: SimpleNamespace, index: bytes, check: Check, ledger: Ledger) -> None:
        self.source = source
        self.header = header
        self.index = index
        self.check = check
        self.ledger = ledger
        self.data: int = header.tensor_data_offset
        self.range: tuple[int, int] | None = None  # where the index lies in the file, once its end is known

    def read(self) -> tuple[ColumnTable, tuple[str, ...] | None]:
        """Read the tensors, and their names in the order of the payloads where that is not the order of the index."""
        header, check, ledger = self.header, self.check, self.ledger
        start, count = header.tensor_index_offset, header.tensor_index_count
        check.limit("tensors", count, HEADER.offset_of("tensor_index_count"), "embd: tensors")
        names_at = start + count * TENSOR.size
        if start < HEADER.size or names_at > self.data:
            message = f"embd: {count} descriptors at {start} do not lie in {HEADER.size}..{self.data}"
            check.fail(rules.INDEX, HEADER.offset_of("tensor_index_offset"), message)
        table = TENSOR.table(self.index, start, count)
        lengths = table["name_length"].astype(np.uint64)
        ends = np.cumsum(lengths, dtype=np.uint64)
        stop = names_at + (int(ends[-1]) if count else 0)
        if stop > self.data:
            message = f"embd: the names end at {stop}, inside the tensor data at {self.data}"
            check.fail(rules.INDEX, names_at, message)
        ledger.region("tensor names", names_at, stop - names_at)
        self.range = start, stop
        positions = ends - lengths + np.uint64(names_at)
        names, bad = kernels.texts(self.index, positions, lengths)
        if bad >= 0:
            check.fail(rules.NAME_UTF8, int(positions[bad]), f"embd: the name of tensor {bad} is not UTF-8")
        ledger.table(TENSOR, start, count, names.__getitem__)

        def at(row: int) -> int:
            return int(start + row * TENSOR.size)

        offsets, sizes, shapes = table["data_offset"].astype(np.uint64), np.zeros(count, np.uint64), None
        with check.together():
            with check.scope():
                self._check_names(table, names, positions, lengths, at)
            with check.scope():
                shapes, sizes = self._read_sizes(table, names, at)
        assert shapes is not None
        places = offsets + np.uint64(self.data)
        ledger.payloads("tensor", places, sizes, names.__getitem__)
        if check.wants("strict"):
            self._check_sharing(names, places, sizes)
        order = None
        if count and (offsets[1:] < offsets[:-1]).any():
            order = tuple(names[row] for row in np.argsort(offsets, kind="stable").tolist())
        return ColumnTable(self.source, names, _DTYPES, table["dtype"], shapes, places, sizes), order

    def _check_names(
        self,
        table: NDArray[np.void],
        names: list[str],
        positions: NDArray[np.uint64],
        lengths: NDArray[np.uint64],
        at: Callable[[int], int],
    ) -> None:
        hashes = np.empty(len(names), np.uint32)
        kernels.fnv1a(self.index, positions, lengths, hashes)
        stored = table["name_hash"]
        self.check.rows(
            stored == hashes, rules.NAME_HASH, at,
            lambda row: f"embd: tensor {names[row]!r}: name_hash {stored[row]:#010x} is not its {hashes[row]:#010x}",
        )  # fmt: skip
        repeat = find_repeat(names)
        if repeat is not None:
            self.check.fail(rules.DUPLICATE, at(repeat), f"embd: two tensors are called {names[repeat]!r}")

    def _read_sizes(
        self, table: NDArray[np.void], names: list[str], at: Callable[[int], int]
    ) -> tuple[Shapes, NDArray[np.uint64]]:
        """Read the shape of every tensor and its bytes, which are checked to lie in the tensor data."""
        check, ranks, room = self.check, table["ndim"], self.header.tensor_data_size
        known = table["dtype"] < len(_DTYPES)
        check.rows(
            known, rules.DTYPE, at, lambda row: f"embd: tensor {names[row]!r}: dtype {table['dtype'][row]} is unknown"
        )
        ranked = (ranks >= 1) & (ranks <= 4)
        check.rows(ranked, rules.RANK, at, lambda row: f"embd: tensor {names[row]!r}: ndim {ranks[row]} is not 1 to 4")
        clean = np.ones(len(names), np.bool_)
        for axis in (1, 2, 3):
            clean &= (ranks > axis) | (table[f"shape{axis}"] == 0)
        check.rows(
            clean, rules.UNUSED_DIM, at,
            lambda row: f"embd: tensor {names[row]!r}: a shape entry beyond its {ranks[row]} dims is not 0",
        )  # fmt: skip
        first = self.header.tensor_index_offset + TENSOR.offset_of("shape0")
        places = np.arange(len(names), dtype=np.uint64) * np.uint64(TENSOR.size) + np.uint64(first)
        shapes = Shapes(self.index, places, ranks.astype(np.uint64), 4)
        counts, exact = shapes.counts()
        possible = exact & (counts <= np.uint64(room))  # more cannot be in the file, and nothing below wraps
        sizes = np.where(possible, counts, np.uint64(0)) * _ITEM[table["dtype"]]
        offsets = table["data_offset"]
        inside = possible & fit(offsets, sizes, room)

        def outside(row: int) -> str:
            dtype, shape = _DTYPES[table["dtype"][row]], shapes[row]
            return (
                f"embd: tensor {names[row]!r}: {dtype.nbytes(shape)} bytes of {dtype}{list(shape)} at {offsets[row]} "
                f"do not lie in the {room} bytes of tensor data"
            )

        check.rows(inside, rules.PLACE, at, outside)
        if self.header.flags & layout.ALIGNED:
            check.rows(
                offsets % np.uint64(ALIGN) == 0, rules.TENSOR_ALIGN, at,
                lambda row: f"embd: tensor {names[row]!r}: data_offset {offsets[row]} is not a multiple of {ALIGN}",
            )  # fmt: skip
            if self.data % ALIGN:
                message = f"embd: tensor_data_offset is {self.data}, not a multiple of {ALIGN}"
                check.note(rules.DATA_ALIGN, HEADER.offset_of("tensor_data_offset"), message)
        return shapes, sizes

    def _check_sharing(self, names: list[str], starts: NDArray[np.uint64], sizes: NDArray[np.uint64]) -> None:
        """At level strict, payloads share either all their bytes, as tied weights do, or none."""
        used = sizes.nonzero()[0]
        order = used[np.lexsort((sizes[used], starts[used]))]
        begins, ends = starts[order], starts[order] + sizes[order]
        reached = np.maximum.accumulate(ends)
        same = (begins[1:] == begins[:-1]) & (ends[1:] == ends[:-1])
        for place in ((begins[1:] < reached[:-1]) & ~same).nonzero()[0].tolist():
            name = names[int(order[place + 1])]
            self.check.note(rules.SHARED, int(begins[place + 1]), f"embd: tensor {name!r} begins inside another")
