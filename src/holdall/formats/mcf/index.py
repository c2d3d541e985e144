"""TensorIndex: the entries as columns, proven to fit their tables, their payloads and their records."""

from __future__ import annotations

from collections.abc import Callable
from operator import lt
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall import kernels
from holdall.check import Check, figure
from holdall.columns import Shapes
from holdall.dtypes import DTYPES as NEUTRAL
from holdall.encodings import Stored
from holdall.formats.mcf import quantinfo, rules
from holdall.formats.mcf.encodings import BareCodes, Unassigned
from holdall.formats.mcf.layout import (
    ALIGNED64,
    BLOCK_ALIGN,
    DTYPES,
    ENTRY,
    INDEX,
    INT4,
    INT8,
    METHODS,
    NAMES_SORTED,
    NAMES_UTF8,
    QUANT_INFO,
    TENSOR_DATA,
    TENSOR_INDEX,
)
from holdall.formats.mcf.sections import McfNative, Section
from holdall.ledger import Ledger
from holdall.model import ColumnTable, ListTable, TensorTable
from holdall.quant.encodings import MCF, encoding_of
from holdall.quant.methods import ACTIVATIONS, WEIGHTS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["read_tensors"]

_VERSION = 1
_U64 = np.uint64
_NONE = -1

# One place a stored type; the table below leads from the dtype number to it. int8 and int4 take the place of their
# weights first, and that of activations or bare codes once the size is known.
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

_FLAT: dict[tuple[int, int], int] = {}  # (int8 or int4, bytes before its codes) -> place
for _id in (INT8, INT4):
    _bare = BareCodes(METHODS[_id])
    for _stored in (encoding_of(_bare.method, WEIGHTS), encoding_of(_bare.method, ACTIVATIONS), _bare):
        _FLAT[_id, _stored.nbytes((1,)) - _bare.nbytes((1,))] = len(_PALETTE)
        _PALETTE.append(_stored)
_BARE, _HEAD = 0, BLOCK_ALIGN  # bytes before the codes: none, one region (weights), two (activations)


def read_tensors(source: Source, native: McfNative, check: Check, ledger: Ledger) -> TensorTable:
    """The tensors of a file whose sections are known to be in place."""
    index, data = native.get(TENSOR_INDEX), native.get(TENSOR_DATA)
    if index is None or data is None:
        if index is not None or data is not None:
            there, missing = ("TensorIndex", "TensorData") if data is None else ("TensorData", "TensorIndex")
            check.fail(rules.SECTION_PAIR, None, f"mcf: there is a section {there}, but none {missing}")
        return ListTable([])
    return _Reader(source, native, index, data, check, ledger).tensors()


class _Reader:
    """One TensorIndex, read whole; positions below are inside it, and ``at`` is where it starts in the file."""

    def __init__(
        self, source: Source, native: McfNative, index: Section, data: Section, check: Check, ledger: Ledger
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

    def tensors(self) -> ColumnTable:
        check = self.check
        head = self._head()
        entries = self.entries = ENTRY.table(self.bytes, head.entries_off, head.tensor_count)
        self.start = self.at + head.entries_off
        self.names = self._names(head)
        shapes = self.shapes = self._shapes(head)
        dtypes = entries["dtype"]
        self._rows(dtypes <= 0xFFFF, rules.DTYPE_RANGE, lambda row: f"dtype {dtypes[row]} does not fit 16 bits")
        small = np.minimum(dtypes, 255).astype(np.uint8)  # 255 is not assigned
        codes = _CODE[small]
        known = codes != _NONE
        palette = list(_PALETTE)
        self._rows(known, rules.DTYPE, lambda row: f"dtype {dtypes[row]} is not assigned")
        for number in np.unique(dtypes[~known]).tolist():
            codes[dtypes == number] = len(palette)
            palette.append(Unassigned(number))
        offsets, sizes = entries["data_off"].copy(), entries["data_size"].copy()
        records = None
        with check.together():
            with check.scope():
                self._places(offsets, sizes)
            with check.scope():
                records = self._records(dtypes)
            with check.scope():
                self._sizes(small, known, shapes, offsets, sizes, codes)
        if records is not None:
            with check.scope():
                self._domains(records, dtypes, codes)
        self.ledger.payloads("tensor", offsets, sizes, self.names.__getitem__)
        return ColumnTable(
            self.source, self.names, palette, codes, shapes, offsets, sizes,
            native_of=None if records is None else records.of,
        )  # fmt: skip

    def _label(self, row: int) -> str:
        return self.names[row] if self.names else str(row)  # a damaged index has no names

    def _rows(self, ok: NDArray[np.bool_], rule: Any, message: Callable[[int], str]) -> None:
        """A rule on every entry; the message is completed by the tensor's name."""
        self.check.rows(
            ok, rule, lambda row: self.start + row * ENTRY.size,
            lambda row: f"mcf: tensor {self.names[row]!r}: {message(row)}",
        )  # fmt: skip

    # -- the tables -------------------------------------------------------------------------------------------------

    def _head(self) -> SimpleNamespace:
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
            if start > size or count > (size - start) // width:
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

    def _names(self, head: SimpleNamespace) -> list[str]:
        check, entries = self.check, self.entries
        starts, lengths = entries["name_off"].astype(_U64), entries["name_len"].astype(_U64)

        def rows(ok: NDArray[np.bool_], rule: Any, message: Callable[[int], str]) -> None:
            check.rows(ok, rule, lambda row: self.start + row * ENTRY.size, message)

        rows(
            starts + lengths <= _U64(head.strings_size), rules.NAME_PLACE,
            lambda row: f"mcf: the name of tensor {row}: {lengths[row]} bytes at {starts[row]} "
            f"run past the string table of {head.strings_size}",
        )  # fmt: skip
        rows(lengths > 0, rules.NAME_EMPTY, lambda row: f"mcf: the name of tensor {row} is empty")
        check.limit("name_bytes", int(lengths.max()), None, "mcf: the name of a tensor")
        self._total(int(lengths.sum()), "names")
        names, bad = kernels.texts(self.bytes, starts + _U64(head.strings_off), lengths)
        if bad >= 0:
            at = self.at + head.strings_off + int(starts[bad])
            check.fail(rules.NAME_UTF8, at, f"mcf: the name of tensor {bad} is not UTF-8")
        # Text compares by code points, which is the byte order of UTF-8; a rising list has nothing twice.
        rising = all(map(lt, names, names[1:]))
        if not rising:
            self._twice(names)
            if head.flags & NAMES_SORTED:
                row = next(row for row in range(1, len(names)) if not names[row - 1] < names[row])
                message = f"mcf: the index says its names are sorted, but {names[row]!r} follows {names[row - 1]!r}"
                check.fail(rules.INDEX_SORTED, self.start + row * ENTRY.size, message)
        reserved = entries["reserved"] == 0
        rows(reserved, rules.INDEX_ZERO, lambda row: f"mcf: tensor {names[row]!r}: the reserved field is not 0")
        return names

    def _twice(self, names: list[str]) -> None:
        if len(set(names)) == len(names):
            return
        seen: set[str] = set()
        for row, name in enumerate(names):
            if name in seen:
                self.check.fail(
                    rules.NAME_TWICE, self.start + row * ENTRY.size, f"mcf: two tensors are called {name!r}"
                )
            seen.add(name)

    def _shapes(self, head: SimpleNamespace) -> Shapes:
        ranks, firsts = self.entries["rank"].astype(_U64), self.entries["dim_off"].astype(_U64)
        self.check.limit("rank", int(ranks.max()), None, "mcf: the rank of a tensor")
        self._rows(
            (ranks == 0) | (firsts + ranks <= _U64(head.dims_count)), rules.DIMS_PLACE,
            lambda row: f"{ranks[row]} dims from dim {firsts[row]} on run past the table of {head.dims_count}",
        )  # fmt: skip
        self._total(8 * int(ranks.sum()), "shapes")
        firsts[ranks == 0] = 0  # a scalar's place in the table means nothing
        shapes = Shapes(self.bytes, firsts * _U64(8) + _U64(head.dims_off), ranks)
        dims = self.dims = np.frombuffer(self.bytes, "<u8", head.dims_count, head.dims_off)
        if not ((dims > 0) & (dims < _U64(1 << 63))).all():  # some dim is wrong: whose is it?
            good = np.array([all(0 < dim < 1 << 63 for dim in shape) for shape in shapes], np.bool_)
            self._rows(good, rules.DIM, lambda row: f"a dim of {list(shapes[row])} is 0 or beyond 2^63")
        return shapes

    def _total(self, size: int, what: str) -> None:
        """Entries may share names' and dims' bytes, but not so that a small file unfolds into a large one."""
        if size > len(self.bytes):
            message = f"mcf: TensorIndex: its {what} take {size} bytes, the section has {len(self.bytes)}"
            self.check.fail(rules.INDEX_TOTAL, self.at, message)

    # -- the payloads -----------------------------------------------------------------------------------------------

    def _places(self, offsets: NDArray[np.uint64], sizes: NDArray[np.uint64]) -> None:
        start, size = _U64(self.section.offset), _U64(self.section.size)
        inside = (offsets >= start) & (sizes <= size)
        inside &= offsets - np.minimum(offsets, start) <= size - np.minimum(sizes, size)
        end = self.section.offset + self.section.size
        self._rows(
            inside, rules.DATA_PLACE,
            lambda row: f"{sizes[row]} bytes at {offsets[row]} do not lie in TensorData at {start}..{end}",
        )  # fmt: skip

    def _sizes(
        self,
        dtypes: NDArray[np.uint8],
        known: NDArray[np.bool_],
        shapes: Shapes,
        offsets: NDArray[np.uint64],
        sizes: NDArray[np.uint64],
        codes: NDArray[np.int64],
    ) -> None:
        """data_size is what dtype and dims need, in numbers that cannot wrap; settles ``codes`` of int8 and int4."""
        counts, exact = self._counts(shapes)
        # No type takes less than two bits an element, so that more elements than this cannot be in the file.
        possible = exact & (counts <= _U64(8 * self.source.size))
        counts = np.where(possible, counts, _U64(0))
        needed = counts * _WIDTH[dtypes]
        blocks, flat = _IS_BLOCKS[dtypes], _IS_FLAT[dtypes]
        if blocks.any():
            self._blocks(blocks, possible, dtypes, offsets, needed)
        for number in (INT8, INT4) if flat.any() else ():
            chosen = dtypes == number
            if chosen.any():
                bare = (counts[chosen] * _U64(METHODS[number].bits) + _U64(7)) // _U64(8)
                needed[chosen] = bare
                heads = sizes[chosen] - bare  # wraps where it is negative, and then is no known head
                codes[chosen] = [_FLAT.get((number, head), _NONE) for head in heads.tolist()]
        fits = np.where(flat, possible & (codes != _NONE), possible & (needed == sizes)) | ~known

        def message(row: int) -> str:
            stored, shape = _PALETTE[int(_CODE[dtypes[row]])], shapes[row]
            wanted = figure(stored.nbytes(shape))
            if flat[row]:
                wanted += f" (weights), {figure(stored.nbytes(shape) + _HEAD)} (activations) or "
                wanted += figure(stored.nbytes(shape) - _HEAD) + " (bare codes)"
            return f"needs {wanted} bytes for {stored}{list(shape)} but its entry says {sizes[row]}"

        self._rows(fits, rules.DATA_SIZE, message)
        spec = flat & (codes != _FLAT[INT8, _BARE]) & (codes != _FLAT[INT4, _BARE])
        self._rows(
            ~spec | (offsets % _U64(BLOCK_ALIGN) == 0), rules.QUANT_ALIGN,
            lambda row: f"its payload at {offsets[row]} is not on a multiple of {BLOCK_ALIGN}",
        )  # fmt: skip

    def _counts(self, shapes: Shapes) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """As ``shapes.counts()``; several times faster where shapes follow each other, as every writer leaves them."""
        ranks, firsts = self.entries["rank"].astype(np.int64), self.entries["dim_off"].astype(np.int64)
        if not ranks.all() or firsts[0] or not np.array_equal(firsts[1:], np.cumsum(ranks)[:-1]):
            return shapes.counts()
        dims = self.dims[: firsts[-1] + ranks[-1]]
        counts = np.multiply.reduceat(dims, firsts)
        # A product of floats that is below 2^62 shows that the one of integers did not wrap.
        return counts, np.multiply.reduceat(dims.astype(np.float64), firsts) < 2.0**62

    def _blocks(
        self,
        blocks: NDArray[np.bool_],
        possible: NDArray[np.bool_],
        dtypes: NDArray[np.uint8],
        offsets: NDArray[np.uint64],
        needed: NDArray[np.uint64],
    ) -> None:
        """The q* and k* tensors: rank, alignment, flag, and the bytes they need."""
        ranks = self.entries["rank"]
        self._rows(~blocks | (ranks == 2), rules.QUANT_RANK, lambda row: f"{ranks[row]} dims; quantized ones have 2")
        self._rows(
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
        # Many tensors have few shapes: type and both dims as one number, so that each is reckoned once.
        keys = (dtypes[rows].astype(_U64) << _U64(56) | high << _U64(28) | low)[small]
        found, where = np.unique(keys, return_inverse=True)
        mask = (1 << 28) - 1
        sizes = [METHODS[key >> 56].blocks((key >> 28 & mask, key & mask)).size for key in found.tolist()]
        needed[rows[small]] = np.array(sizes, _U64)[where]
        for row in (~small).nonzero()[0].tolist():
            method = METHODS[int(dtypes[rows[row]])]
            needed[rows[row]] = method.blocks((int(high[row]), int(low[row]))).size

    # -- the records ------------------------------------------------------------------------------------------------

    def _records(self, dtypes: NDArray[np.uint32]) -> quantinfo.Records | None:
        section = self.native.get(QUANT_INFO)
        if section is None:
            return None
        self.check.limit("index_bytes", section.size, section.offset, "mcf: QuantInfo")
        return quantinfo.read(section.data, section.offset, dtypes, self.check, self.ledger)

    def _domains(self, records: quantinfo.Records, dtypes: NDArray[np.uint32], codes: NDArray[np.int64]) -> None:
        """The record of an int8 or int4 tensor names the domain that its size shows."""
        domains = records.domains()
        wanted = np.full(len(dtypes), _NONE)
        for number in (INT8, INT4):
            for domain in (WEIGHTS, ACTIVATIONS):
                wanted[(dtypes == number) & (domains == domain)] = _FLAT[number, _HEAD * (1 + domain)]
        self._rows(
            (wanted == _NONE) | (wanted == codes), rules.QUANT_LAYOUT,
            lambda row: f"its record says {('weights', 'activations')[domains[row]]}, its size another layout",
        )  # fmt: skip
