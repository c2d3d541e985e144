"""Reads TensorIndex as columns, and checks that entries fit their tables, their payloads and their quant records."""

from __future__ import annotations

from collections.abc import Callable
from operator import lt
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.check import Check, figure
from holdall.base.repeats import find_repeat
from holdall.binary import kernels
from holdall.binary.columns import Shapes, fit
from holdall.format.mcf import quantinfo, rules
from holdall.format.mcf.encodings import BareCodes, Unassigned
from holdall.format.mcf.layout import (
    ALIGNED64,
    BLOCK_ALIGN,
    DTYPES,
    ENTRY,
    INDEX,
    INT4,
    INT8,
    LOOSE,
    METHODS,
    NAMES_SORTED,
    NAMES_UTF8,
    QUANT_INFO,
    TENSOR_DATA,
    TENSOR_INDEX,
)
from holdall.format.mcf.sections import McfNative, Section
from holdall.model.dtypes import DTYPES as NEUTRAL
from holdall.model.encodings import Stored
from holdall.model.table import ColumnTable, ListTable, TensorTable
from holdall.quant.encodings import MCF, encoding_of
from holdall.quant.methods import ACTIVATIONS, WEIGHTS
from holdall.source.ledger import Ledger

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["read_tensors"]

_VERSION = 1
_U64 = np.uint64
_NONE = -1

# The stored types; _CODE leads from a dtype number to one of them. For int8 and int4 it leads to the layout of weights,
# until the size of a payload shows that it has activations or bare codes.
_PALETTE: list[Stored] = [NEUTRAL[name] for name in DTYPES.values()]
_PALETTE += [MCF[f"mcf.{method.name}"] for method in METHODS.values()]
_CODE = np.full(256, _NONE, np.int64)
_CODE[list(DTYPES)] = np.arange(len(DTYPES))
_CODE[list(METHODS)] = np.arange(len(DTYPES), len(_PALETTE))
_WIDTH = np.zeros(256, _U64)  # bytes of an element of a plain type
_WIDTH[list(DTYPES)] = [NEUTRAL[name].bits // 8 for name in DTYPES.values()]
_IS_FLAT, _IS_BLOCKS = np.zeros(256, np.bool_), np.zeros(256, np.bool_)
_IS_FLAT[[INT8, INT4]] = True
_IS_BLOCKS[[number for number in METHODS if number not in (INT8, INT4)]] = True

_FLAT: dict[tuple[int, int], int] = {}  # from int8 or int4 and the number of bytes before the codes to the stored type
for _id in (INT8, INT4):
    _bare = BareCodes(METHODS[_id])
    for _stored in (encoding_of(_bare.method, WEIGHTS), encoding_of(_bare.method, ACTIVATIONS), _bare):
        _FLAT[_id, _stored.nbytes((1,)) - _bare.nbytes((1,))] = len(_PALETTE)
        _PALETTE.append(_stored)
_BARE, _HEAD = 0, BLOCK_ALIGN  # bytes before the codes: none, one region for weights, two regions for activations


def read_tensors(source: Source, native: McfNative, check: Check, ledger: Ledger) -> TensorTable:
    """Read the tensors of a file; its sections have been checked before.

    No section is required: without TensorData the tensors have no data, and without TensorIndex there are none.
    """
    index, data = native.get(TENSOR_INDEX), native.get(TENSOR_DATA)
    if index is None:
        _check_loose(native, check)
        return ListTable([])
    if data is None:
        message = "mcf: there is a section TensorIndex, but none TensorData: its tensors have no data"
        check.note(rules.SECTION_PAIR, index.offset, message)
    return _Reader(source, native, index, data, check, ledger).read()


def _check_loose(native: McfNative, check: Check) -> None:
    """Note the sections about tensors in a file without TensorIndex, which has no tensors."""
    for section in native.sections:
        if section.type in LOOSE:
            message = f"but none TensorIndex: it has {LOOSE[section.type]} of no tensor"
            check.note(rules.SECTION_PAIR, section.offset, f"mcf: there is a section {section.name}, {message}")
        if section.type == QUANT_INFO:
            check.limit("index_bytes", section.size, section.offset, "mcf: QuantInfo")
            quantinfo.read_head(section.data, section.offset, check)


class _Reader:
    """One TensorIndex, in memory. Its offsets count from its start, which is byte ``at`` of the file."""

    def __init__(
        self, source: Source, native: McfNative, index: Section, data: Section | None, check: Check, ledger: Ledger
    ) -> None:
        check.limit("index_bytes", index.size, index.offset, "mcf: TensorIndex")
        self.source = source
        self.native = native
        self.section = data
        self.check = check
        self.ledger = ledger
        self.at = index.offset
        self.names: list[str] = []
        self.bytes = memoryview(bytearray(index.size))
        source.read_into(index.offset, self.bytes)

    def read(self) -> ColumnTable:
        check = self.check
        head = self._read_head()
        entries = self.entries = ENTRY.table(self.bytes, head.entries_off, head.tensor_count)
        self.start = self.at + head.entries_off
        self.names = self._read_names(head)
        shapes = self.shapes = self._read_shapes(head)
        dtypes = entries["dtype"]
        self._check_rows(dtypes <= 0xFFFF, rules.DTYPE_RANGE, lambda row: f"dtype {dtypes[row]} does not fit 16 bits")
        small = np.minimum(dtypes, 255).astype(np.uint8)  # 255 stands for all larger ones: none of them is assigned
        codes = _CODE[small]
        known = codes != _NONE
        palette = list(_PALETTE)
        self._check_rows(known, rules.DTYPE, lambda row: f"dtype {dtypes[row]} is not assigned")
        for number in np.unique(dtypes[~known]).tolist():
            codes[dtypes == number] = len(palette)
            palette.append(Unassigned(number))
        offsets, sizes = entries["data_off"].copy(), entries["data_size"].copy()
        records = None
        data = self.section
        if data is None:  # what the entries say of their payloads means nothing
            offsets, sizes = np.zeros_like(offsets), np.zeros_like(sizes)
        with check.together():
            if data is not None:
                with check.scope():
                    self._check_places(data, offsets, sizes)
            with check.scope():
                records = self._read_records(dtypes)
            if data is not None:
                with check.scope():
                    self._check_sizes(small, known, shapes, offsets, sizes, codes)
        if data is not None and records is not None:
            with check.scope():
                self._check_domains(records, dtypes, codes)
        self.ledger.payloads("tensor", offsets, sizes, self.names.__getitem__)
        return ColumnTable(
            self.source, self.names, palette, codes, shapes, offsets, sizes,
            has_data=np.zeros(len(self.names), np.bool_) if data is None else None,
            native_of=None if records is None else records.of,
        )  # fmt: skip

    def _label(self, row: int) -> str:
        return self.names[row] if self.names else str(row)  # the names of a damaged index may be unreadable

    def _check_rows(self, ok: NDArray[np.bool_], rule: Any, message: Callable[[int], str]) -> None:
        """Check a rule for every entry; the name of the tensor is put before the message."""
        self.check.rows(
            ok, rule, lambda row: self.start + row * ENTRY.size,
            lambda row: f"mcf: tensor {self.names[row]!r}: {message(row)}",
        )  # fmt: skip

    def _read_head(self) -> SimpleNamespace:
        check, at, size = self.check, self.at, len(self.bytes)
        if size < INDEX.size:
            check.fail(rules.INDEX_SIZE, at, f"mcf: TensorIndex: {size} bytes cannot hold the head of {INDEX.size}")
        head = INDEX.read(self.bytes, 0)
        if head.version != _VERSION:
            check.fail(rules.INDEX_VERSION, at, f"mcf: TensorIndex: version {head.version} is unknown; 1 is known")
        if head.tensor_count == 0:
            check.fail(rules.INDEX_COUNT, at + INDEX.offset_of("tensor_count"), "mcf: TensorIndex: it has no tensors")
        for name, start, count, width in (
            ("entries", head.entries_off, head.tensor_count, ENTRY.size),
            ("dims", head.dims_off, head.dims_count, 8),
            ("strings", head.strings_off, head.strings_size, 1),
        ):
            if start + count * width > size:
                message = f"mcf: TensorIndex: {name}: {count * width} bytes at {start} run past its end at {size}"
                check.fail(rules.INDEX_SIZE, at + INDEX.offset_of(f"{name}_off"), message)
        check.limit("tensors", head.tensor_count, at, "mcf: tensors")
        if head.flags & ~(NAMES_SORTED | NAMES_UTF8):
            check.note(rules.INDEX_FLAGS, at + 4, f"mcf: TensorIndex: flags {head.flags:#x} have unknown bits")
        self.ledger.record(INDEX, at)
        self.ledger.table(ENTRY, at + head.entries_off, head.tensor_count, self._label)
        self.ledger.region("dims", at + head.dims_off, 8 * head.dims_count)
        self.ledger.region("tensor names", at + head.strings_off, head.strings_size)
        return head

    def _read_names(self, head: SimpleNamespace) -> list[str]:
        check, entries = self.check, self.entries
        starts, lengths = entries["name_off"].astype(_U64), entries["name_len"].astype(_U64)

        def rows(ok: NDArray[np.bool_], rule: Any, message: Callable[[int], str]) -> None:
            check.rows(ok, rule, lambda row: self.start + row * ENTRY.size, message)

        rows(
            fit(starts, lengths, head.strings_size), rules.NAME_PLACE,
            lambda row: f"mcf: the name of tensor {row}: {lengths[row]} bytes at {starts[row]} "
            f"run past the string table of {head.strings_size}",
        )  # fmt: skip
        rows(lengths > 0, rules.NAME_EMPTY, lambda row: f"mcf: the name of tensor {row} is empty")
        check.limit("name_bytes", int(lengths.max()), None, "mcf: the name of a tensor")
        self._limit_total(int(lengths.sum()), "names")
        names, bad = kernels.texts(self.bytes, starts + _U64(head.strings_off), lengths)
        if bad >= 0:
            at = self.at + head.strings_off + int(starts[bad])
            check.fail(rules.NAME_UTF8, at, f"mcf: the name of tensor {bad} is not UTF-8")
        # Text compares by code points, which is the byte order of UTF-8. Rising names cannot repeat.
        rising = all(map(lt, names, names[1:]))
        if not rising:
            repeat = find_repeat(names)
            if repeat is not None:
                message = f"mcf: two tensors are called {names[repeat]!r}"
                check.fail(rules.NAME_REPEATED, self.start + repeat * ENTRY.size, message)
            if head.flags & NAMES_SORTED:
                row = next(row for row in range(1, len(names)) if not names[row - 1] < names[row])
                message = f"mcf: the index says its names are sorted, but {names[row]!r} follows {names[row - 1]!r}"
                check.fail(rules.INDEX_SORTED, self.start + row * ENTRY.size, message)
        reserved = entries["reserved"] == 0
        rows(reserved, rules.INDEX_ZERO, lambda row: f"mcf: tensor {names[row]!r}: the reserved field is not 0")
        return names

    def _read_shapes(self, head: SimpleNamespace) -> Shapes:
        ranks, firsts = self.entries["rank"].astype(_U64), self.entries["dim_off"].astype(_U64)
        self.check.limit("rank", int(ranks.max()), None, "mcf: the rank of a tensor")
        self._check_rows(
            (ranks == 0) | fit(firsts, ranks, head.dims_count), rules.DIMS_PLACE,
            lambda row: f"{ranks[row]} dims from dim {firsts[row]} on run past the table of {head.dims_count}",
        )  # fmt: skip
        self._limit_total(8 * int(ranks.sum()), "shapes")
        firsts[ranks == 0] = 0  # a scalar has no dims, so its place in the table may be anything
        shapes = Shapes(self.bytes, firsts * _U64(8) + _U64(head.dims_off), ranks)
        dims = self.dims = np.frombuffer(self.bytes, "<u8", head.dims_count, head.dims_off)
        if not ((dims > 0) & (dims < _U64(1 << 63))).all():  # only now find out which tensors have a wrong dim
            good = np.array([all(0 < dim < 1 << 63 for dim in shape) for shape in shapes], np.bool_)
            self._check_rows(good, rules.DIM, lambda row: f"a dim of {list(shapes[row])} is 0 or beyond 2^63")
        return shapes

    def _limit_total(self, size: int, what: str) -> None:
        """Refuse entries that share names or dims so much that a small file takes much memory."""
        if size > len(self.bytes):
            message = f"mcf: TensorIndex: its {what} take {size} bytes, the section has {len(self.bytes)}"
            self.check.fail(rules.INDEX_TOTAL, self.at, message)

    def _check_places(self, data: Section, offsets: NDArray[np.uint64], sizes: NDArray[np.uint64]) -> None:
        start, end = data.offset, data.offset + data.size
        self._check_rows(
            (offsets >= _U64(start)) & fit(offsets, sizes, end), rules.DATA_PLACE,
            lambda row: f"{sizes[row]} bytes at {offsets[row]} do not lie in TensorData at {start}..{end}",
        )  # fmt: skip

    def _check_sizes(
        self,
        dtypes: NDArray[np.uint8],
        known: NDArray[np.bool_],
        shapes: Shapes,
        offsets: NDArray[np.uint64],
        sizes: NDArray[np.uint64],
        codes: NDArray[np.int64],
    ) -> None:
        """Check that data_size is what dtype and dims need; sets the ``codes`` of int8 and int4 by their size."""
        counts, exact = self._count_elements(shapes)
        # Every type takes at least two bits an element, so the file cannot hold more elements than this.
        possible = exact & (counts <= _U64(8 * self.source.size))
        counts = np.where(possible, counts, _U64(0))
        needed = counts * _WIDTH[dtypes]
        blocks, flat = _IS_BLOCKS[dtypes], _IS_FLAT[dtypes]
        if blocks.any():
            self._size_blocks(blocks, possible, dtypes, offsets, needed)
        for number in (INT8, INT4) if flat.any() else ():
            chosen = dtypes == number
            if chosen.any():
                bare = (counts[chosen] * _U64(METHODS[number].bits) + _U64(7)) // _U64(8)
                needed[chosen] = bare
                heads = sizes[chosen] - bare  # a negative one wraps, and is then not in _FLAT
                codes[chosen] = [_FLAT.get((number, head), _NONE) for head in heads.tolist()]
        fits = np.where(flat, possible & (codes != _NONE), possible & (needed == sizes)) | ~known

        def message(row: int) -> str:
            stored, shape = _PALETTE[int(_CODE[dtypes[row]])], shapes[row]
            wanted = figure(stored.nbytes(shape))
            if flat[row]:
                wanted += f" (weights), {figure(stored.nbytes(shape) + _HEAD)} (activations) or "
                wanted += figure(stored.nbytes(shape) - _HEAD) + " (bare codes)"
            return f"needs {wanted} bytes for {stored}{list(shape)} but its entry says {sizes[row]}"

        self._check_rows(fits, rules.DATA_SIZE, message)
        spec = flat & (codes != _FLAT[INT8, _BARE]) & (codes != _FLAT[INT4, _BARE])
        self._check_rows(
            ~spec | (offsets % _U64(BLOCK_ALIGN) == 0), rules.QUANT_ALIGN,
            lambda row: f"its payload at {offsets[row]} is not on a multiple of {BLOCK_ALIGN}",
        )  # fmt: skip

    def _count_elements(self, shapes: Shapes) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """Count like ``shapes.counts()``, but faster if shapes follow each other, as writers leave them."""
        ranks, firsts = self.entries["rank"].astype(np.int64), self.entries["dim_off"].astype(np.int64)
        if not ranks.all() or firsts[0] or not np.array_equal(firsts[1:], np.cumsum(ranks)[:-1]):
            return shapes.counts()
        dims = self.dims[: firsts[-1] + ranks[-1]]
        counts = np.multiply.reduceat(dims, firsts)
        # If the product of floats is below 2^62, the product of integers did not wrap.
        return counts, np.multiply.reduceat(dims.astype(np.float64), firsts) < 2.0**62

    def _size_blocks(
        self,
        blocks: NDArray[np.bool_],
        possible: NDArray[np.bool_],
        dtypes: NDArray[np.uint8],
        offsets: NDArray[np.uint64],
        needed: NDArray[np.uint64],
    ) -> None:
        """Check rank, alignment and flag of the q* and k* tensors, and fill in the bytes that they need."""
        ranks = self.entries["rank"]
        self._check_rows(
            ~blocks | (ranks == 2), rules.QUANT_RANK, lambda row: f"{ranks[row]} dims; quantized ones have 2"
        )
        self._check_rows(
            ~blocks | (offsets % _U64(BLOCK_ALIGN) == 0), rules.QUANT_ALIGN,
            lambda row: f"its payload at {offsets[row]} is not on a multiple of {BLOCK_ALIGN}",
        )  # fmt: skip
        if not self.native.flags & ALIGNED64:
            row = int(blocks.argmax())
            message = f"mcf: tensor {self.names[row]!r} is quantized, but bit 0 of the header's flags is not set"
            self.check.fail(rules.FLAG, 32, message)
        rows = (blocks & possible).nonzero()[0]
        first = self.entries["dim_off"][rows].astype(np.int64)
        high, low = self.dims[first], self.dims[first + 1]
        small = (high | low) < _U64(1 << 28)
        # Many tensors share few shapes, so the size of each pair of type and shape, as one number, is computed once.
        keys = (dtypes[rows].astype(_U64) << _U64(56) | high << _U64(28) | low)[small]
        found, where = np.unique(keys, return_inverse=True)
        mask = (1 << 28) - 1
        sizes = [METHODS[key >> 56].lay_out_blocks((key >> 28 & mask, key & mask)).size for key in found.tolist()]
        needed[rows[small]] = np.array(sizes, _U64)[where]
        for row in (~small).nonzero()[0].tolist():
            method = METHODS[int(dtypes[rows[row]])]
            needed[rows[row]] = method.lay_out_blocks((int(high[row]), int(low[row]))).size

    def _read_records(self, dtypes: NDArray[np.uint32]) -> quantinfo.Records | None:
        section = self.native.get(QUANT_INFO)
        if section is None:
            return None
        self.check.limit("index_bytes", section.size, section.offset, "mcf: QuantInfo")
        return quantinfo.read(section.data, section.offset, dtypes, self.check, self.ledger)

    def _check_domains(self, records: quantinfo.Records, dtypes: NDArray[np.uint32], codes: NDArray[np.int64]) -> None:
        """Check that the record of an int8 or int4 tensor names the domain that its size shows."""
        domains = records.domains()
        wanted = np.full(len(dtypes), _NONE)
        for number in (INT8, INT4):
            for domain in (WEIGHTS, ACTIVATIONS):
                wanted[(dtypes == number) & (domains == domain)] = _FLAT[number, _HEAD * (1 + domain)]
        self._check_rows(
            (wanted == _NONE) | (wanted == codes), rules.QUANT_LAYOUT,
            lambda row: f"its record says {('weights', 'activations')[domains[row]]}, its size another layout",
        )  # fmt: skip
