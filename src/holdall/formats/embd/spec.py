"""Reading the layout of the document: a 64-byte header, four sections, a footer."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from holdall import kernels
from holdall.check import Check
from holdall.columns import Shapes
from holdall.dtypes import DTYPES
from holdall.errors import UnsupportedError
from holdall.formats.embd import layout, rules
from holdall.formats.embd.layout import (
    ALIGN,
    END_MAGIC,
    FOOTER,
    HEADER,
    KEYS,
    KNOWN_FLAGS,
    METADATA,
    METADATA_HEAD,
    SPECIAL,
    TENSOR,
    TOKEN,
    VOCAB_HEAD,
    VOCAB_SPECIAL,
)
from holdall.formats.embd.native import EmbdNative
from holdall.ledger import Ledger
from holdall.metadata import Entry, Metadata
from holdall.model import ColumnTable, ListTable, Model, TensorTable
from holdall.proof import Proof
from holdall.vocab import Vocab

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["SMALLEST", "read"]

_DTYPES = [DTYPES[name] for name in layout.DTYPES]
_ITEM = np.array([dtype.bits // 8 for dtype in _DTYPES], np.uint64)
SMALLEST = HEADER.size + FOOTER.size


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """The model in ``source``."""
    return _Reader(source, check, ledger).model()


def _at(name: str) -> int:
    return HEADER.offset_of(name)


class _Reader:
    """One file of the 64-byte-header layout. Each section is one scope."""

    def __init__(self, source: Source, check: Check, ledger: Ledger) -> None:
        self.source = source
        self.check = check
        self.ledger = ledger
        self.size = source.size
        self.header = self._header()
        self.flags: int = self.header.flags
        self.data: int = self.header.tensor_data_offset
        check.limit("index_bytes", self.data, _at("tensor_data_offset"), f"embd: {source.name}: header and sections")
        self.index = source.read(0, self.data)
        self.sections: list[tuple[int, int, str]] = []

    def model(self) -> Model:
        check, header = self.check, self.header
        self.ledger.pad_to = ALIGN if self.flags & layout.ALIGNED else 1
        self.ledger.record(HEADER, 0)
        self.ledger.record(FOOTER, self.size - FOOTER.size)
        metadata: Metadata | None = None
        vocab, order = None, None
        tensors: TensorTable = ListTable([])
        with check.scope():
            metadata = self.metadata()
        with check.scope():
            vocab = self.vocab()
        with check.scope():
            tensors, order = self.tensors()
        with check.scope():
            self._sections_apart()
        if metadata is not None:
            self._model_rules(metadata, vocab)
        native = EmbdNative(
            vocab,
            aligned=bool(self.flags & layout.ALIGNED),
            checksums=bool(self.flags & layout.CHECKSUMS),
            payload_order=order,
            data_checksum=self._data_checksum(tensors),
        )
        return Model(
            tensors,
            metadata=metadata,
            native=native,
            format="embd",
            version=(header.version_major, header.version_minor),
            sources=[self.source],
            ledger=self.ledger,
        )

    # -- header and footer ------------------------------------------------------------------------------------------

    def _header(self) -> SimpleNamespace:
        check, size = self.check, self.size
        if size < SMALLEST:
            check.fail(rules.SIZE, size, f"embd: {size} bytes cannot hold header and footer of {SMALLEST}")
        stored = self.source.read(0, HEADER.size)
        header = HEADER.read(stored, 0)
        footer = FOOTER.read(self.source.read(size - FOOTER.size, FOOTER.size), 0)
        if header.version_major != 1:
            message = f"embd: version {header.version_major}.{header.version_minor} is unknown; 1.0 is known"
            check.fail(rules.VERSION, _at("version_major"), message)
        if header.flags & layout.COMPRESSED:
            message = "embd: COMPRESSED is set, and the format defines no algorithm: the data cannot be decoded"
            if not check.collecting:
                raise UnsupportedError(f"{self.source.name}: {message}")
            check.fail(rules.COMPRESSED, _at("flags"), message)
        with check.together():
            with check.scope():
                if header.total_file_size != size:
                    message = f"embd: the header says {header.total_file_size} bytes, the file has {size}"
                    check.fail(rules.FILE_SIZE, _at("total_file_size"), message, needs=header.total_file_size)
            with check.scope():
                if footer.magic_end != END_MAGIC:
                    message = f"embd: the footer holds {footer.magic_end!r}, not {END_MAGIC!r}"
                    check.fail(rules.END_MAGIC, size - 8, message)
            with check.scope():
                self._header_checksum(header, stored)
            with check.scope():
                self._data_range(header)
        if header.flags > KNOWN_FLAGS:
            check.note(rules.FLAGS, _at("flags"), f"embd: flags {header.flags:#x} have bits beyond {KNOWN_FLAGS:#x}")
        for at, value in ((_at("reserved"), header.reserved), (size - 4, footer.reserved)):
            if value:
                check.note(rules.RESERVED, at, f"embd: a reserved word is {value:#x}, not 0")
        return header

    def _data_checksum(self, tensors: TensorTable) -> Proof | None:
        """What the footer states of the tensor data."""
        if not self.flags & layout.CHECKSUMS:
            return None
        end = self.size - FOOTER.size
        footer = FOOTER.read(self.source.read(end, FOOTER.size), 0)
        holds = tensors.names_between if isinstance(tensors, ColumnTable) else None
        return Proof(self.source, self.data, end, "crc32", footer.data_checksum, rules.DATA_CRC.id,
                     "embd: the tensor data", stated="data_checksum", holds=holds, wide=True)  # fmt: skip

    def _header_checksum(self, header: SimpleNamespace, stored: bytes) -> None:
        from isal.isal_zlib import crc32

        at = _at("header_checksum")
        found = crc32(stored[:at])
        if header.flags & layout.CHECKSUMS and found != header.header_checksum:
            message = f"embd: header_checksum is {header.header_checksum:#010x}; bytes 0-{at - 1} give {found:#010x}"
            self.check.fail(rules.HEADER_CRC, at, message)

    def _data_range(self, header: SimpleNamespace) -> None:
        start, count, end = header.tensor_data_offset, header.tensor_data_size, self.size - FOOTER.size
        if start < HEADER.size or start + count != end:
            message = f"embd: {count} bytes of tensor data at {start} do not end at the footer at {end}"
            self.check.fail(rules.DATA_RANGE, _at("tensor_data_offset"), message)

    # -- sections ---------------------------------------------------------------------------------------------------

    def _section(self, name: str, start: int, size: int) -> None:
        """Refuse a section that does not lie between header and tensor data; remember its place."""
        if not HEADER.size <= start <= self.data or size > self.data - start:
            message = f"embd: {size} bytes of {name} at {start} do not lie in {HEADER.size}..{self.data}"
            self.check.fail(rules.SECTION, _at(f"{name}_offset"), message)
        self.sections.append((start, start + size, name))

    def _sections_apart(self) -> None:
        reached, before = 0, ""
        for start, stop, name in sorted(section for section in self.sections if section[0] < section[1]):
            if start < reached:
                self.check.fail(rules.OVERLAP, start, f"embd: {name} at {start} begins inside {before}")
            reached, before = stop, name

    def metadata(self) -> Metadata:
        header, check = self.header, self.check
        start, size = header.metadata_offset, header.metadata_size
        if size < METADATA_HEAD.size:
            message = f"embd: metadata_size is {size}; the section header alone takes {METADATA_HEAD.size}"
            check.fail(rules.META_SIZE, _at("metadata_size"), message)
        self._section("metadata", start, size)
        head = METADATA_HEAD.read(self.index, start)
        self.ledger.record(METADATA_HEAD, start)
        if METADATA_HEAD.size + head.total_size != size:
            message = f"embd: metadata_size is {size}, but total_size + {METADATA_HEAD.size} is {head.total_size + 8}"
            check.fail(rules.META_SIZE, start + 4, message)
        check.limit("metadata_entries", head.entry_count, start, "embd: metadata entries")
        columns = METADATA.scan(self.index, start + METADATA_HEAD.size, start + size, head.entry_count)
        if columns.failed is not None or columns.end != start + size:
            what = f"its {columns.failed} runs past" if columns.failed else f"ends at {columns.end}, before"
            message = f"embd: metadata entry {len(columns)} of {head.entry_count}: {what} the section's end"
            check.fail(rules.META_ENTRY, columns.end, message)
        keys = self._texts(columns["key@"], columns["key_length"], "metadata key")
        self.ledger.entries(columns, keys.__getitem__)
        values = self._texts(columns["value@"], columns["value_length"], "metadata value")
        return Metadata([Entry(key, value, "string") for key, value in zip(keys, values, strict=True)])

    def _texts(self, positions: NDArray[np.uint64], lengths: NDArray[np.uint64], what: str) -> list[str]:
        texts, bad = kernels.texts(self.index, np.ascontiguousarray(positions), np.ascontiguousarray(lengths))
        if bad >= 0:
            self.check.fail(rules.META_UTF8, int(positions[bad]), f"embd: {what} {bad} is not UTF-8")
        return texts

    def vocab(self) -> Vocab | None:
        header, check = self.header, self.check
        start, size = header.vocab_offset, header.vocab_size
        if not self.flags & layout.VOCAB:
            if start or size:
                message = f"embd: VOCAB_EMBEDDED is not set, yet there are {size} bytes at {start}"
                check.note(rules.UNUSED_VOCAB, _at("vocab_offset"), message)
            return None
        fixed = VOCAB_HEAD.size + VOCAB_SPECIAL.size
        if size < fixed:
            message = f"embd: VOCAB_EMBEDDED is set, but vocab_size is {size}; at least {fixed} bytes are needed"
            check.fail(rules.VOCAB_SIZE, _at("vocab_size"), message)
        self._section("vocab", start, size)
        head = VOCAB_HEAD.read(self.index, start)
        self.ledger.record(VOCAB_HEAD, start)
        if fixed + head.total_size != size:
            message = f"embd: vocab_size is {size}, but total_size + {fixed} is {head.total_size + fixed}"
            check.fail(rules.VOCAB_SIZE, start + 4, message)
        special, first = self._special(start, size, head)
        self.ledger.record(VOCAB_SPECIAL, special)
        check.limit("metadata_entries", head.token_count, start, "embd: tokens")
        stop = first + head.total_size
        columns = TOKEN.scan(self.index, first, stop, head.token_count)
        if columns.failed is not None or columns.end != stop:
            what = "runs past" if columns.failed else f"ends at {columns.end}, before"
            message = f"embd: token {len(columns)} of {head.token_count} {what} the end of the tokens at {stop}"
            check.fail(rules.VOCAB_TOKEN, columns.end, message)
        tokens, bad = kernels.texts(
            self.index, np.ascontiguousarray(columns["token@"]), np.ascontiguousarray(columns["token#"])
        )
        if bad >= 0:
            check.fail(rules.VOCAB_UTF8, int(columns["token@"][bad]), f"embd: token {bad} is not UTF-8")
        self.ledger.entries(columns, tokens.__getitem__)
        stored = VOCAB_SPECIAL.read(self.index, special)
        return Vocab(tokens, {name: getattr(stored, f"{name}_id") for name in SPECIAL})

    def _special(self, start: int, size: int, head: SimpleNamespace) -> tuple[int, int]:
        """Where the special table is, from byte 0 or from the section, and where the tokens begin."""
        check, at = self.check, head.special_tokens
        last = size - VOCAB_SPECIAL.size
        if start + VOCAB_HEAD.size <= at <= start + last:
            place = at
        elif VOCAB_HEAD.size <= at <= last:
            place = start + at
        else:
            message = f"embd: special_tokens is {at}, outside the vocabulary of {size} bytes at {start}"
            check.fail(rules.VOCAB_SPECIAL, start + 8, message)
        first = start + VOCAB_HEAD.size
        if place == first:
            return place, first + VOCAB_SPECIAL.size
        if place < first + head.total_size:
            check.fail(rules.VOCAB_SPECIAL, start + 8, f"embd: the special table at {place} lies among the tokens")
        return place, first

    # -- tensors ----------------------------------------------------------------------------------------------------

    def tensors(self) -> tuple[ColumnTable, tuple[str, ...] | None]:
        header, check, ledger = self.header, self.check, self.ledger
        start, count = header.tensor_index_offset, header.tensor_index_count
        check.limit("tensors", count, _at("tensor_index_count"), "embd: tensors")
        names_at = start + count * TENSOR.size
        if start < HEADER.size or names_at > self.data:
            message = f"embd: {count} descriptors at {start} do not lie in {HEADER.size}..{self.data}"
            check.fail(rules.INDEX, _at("tensor_index_offset"), message)
        table = TENSOR.table(self.index, start, count)
        lengths = table["name_length"].astype(np.uint64)
        ends = np.cumsum(lengths, dtype=np.uint64)
        stop = names_at + (int(ends[-1]) if count else 0)
        if stop > self.data:
            message = f"embd: the names end at {stop}, inside the tensor data at {self.data}"
            check.fail(rules.INDEX, names_at, message)
        ledger.region("tensor names", names_at, stop - names_at)
        self.sections.append((start, stop, "tensor_index"))
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
                self._names(table, names, positions, lengths, at)
            with check.scope():
                shapes, sizes = self._sizes(table, names, at)
        assert shapes is not None
        places = offsets + np.uint64(self.data)
        ledger.payloads("tensor", places, sizes, names.__getitem__)
        if check.wants("strict"):
            self._shared(names, places, sizes)
        order = None
        if count and (offsets[1:] < offsets[:-1]).any():
            order = tuple(names[row] for row in np.argsort(offsets, kind="stable").tolist())
        return ColumnTable(self.source, names, _DTYPES, table["dtype"], shapes, places, sizes), order

    def _names(
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
        if len(set(names)) != len(names):
            seen: set[str] = set()
            for row, name in enumerate(names):
                if name in seen:
                    self.check.fail(rules.DUPLICATE, at(row), f"embd: two tensors are called {name!r}")
                seen.add(name)

    def _sizes(
        self, table: NDArray[np.void], names: list[str], at: Callable[[int], int]
    ) -> tuple[Shapes, NDArray[np.uint64]]:
        """dtype, rank and dims of every descriptor, and that its bytes lie in the tensor data."""
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
        possible = exact & (counts <= np.uint64(room))  # so that nothing below can wrap
        sizes = np.where(possible, counts, np.uint64(0)) * _ITEM[table["dtype"]]
        offsets, space = table["data_offset"], np.uint64(room)
        inside = possible & (offsets <= space) & (sizes <= space - np.minimum(offsets, space))

        def outside(row: int) -> str:
            dtype, shape = _DTYPES[table["dtype"][row]], shapes[row]
            return (
                f"embd: tensor {names[row]!r}: {dtype.nbytes(shape)} bytes of {dtype}{list(shape)} at {offsets[row]} "
                f"do not lie in the {room} bytes of tensor data"
            )

        check.rows(inside, rules.PLACE, at, outside)
        if self.flags & layout.ALIGNED:
            check.rows(
                offsets % np.uint64(ALIGN) == 0, rules.TENSOR_ALIGN, at,
                lambda row: f"embd: tensor {names[row]!r}: data_offset {offsets[row]} is not a multiple of {ALIGN}",
            )  # fmt: skip
            if self.data % ALIGN:
                message = f"embd: tensor_data_offset is {self.data}, not a multiple of {ALIGN}"
                check.note(rules.DATA_ALIGN, _at("tensor_data_offset"), message)
        return shapes, sizes

    def _shared(self, names: list[str], starts: NDArray[np.uint64], sizes: NDArray[np.uint64]) -> None:
        """Strictly, payloads overlap only where they are the same bytes: tied weights."""
        used = sizes.nonzero()[0]
        order = used[np.lexsort((sizes[used], starts[used]))]
        begins, ends = starts[order], starts[order] + sizes[order]
        reached = np.maximum.accumulate(ends)
        same = (begins[1:] == begins[:-1]) & (ends[1:] == ends[:-1])
        for place in ((begins[1:] < reached[:-1]) & ~same).nonzero()[0].tolist():
            name = names[int(order[place + 1])]
            self.check.note(rules.SHARED, int(begins[place + 1]), f"embd: tensor {name!r} begins inside another")

    # -- the model --------------------------------------------------------------------------------------------------

    def _model_rules(self, metadata: Metadata, vocab: Vocab | None) -> None:
        missing = [key for key in KEYS if key not in metadata]
        if missing:
            message = f"embd: the required metadata keys {', '.join(missing)} are missing"
            self.check.note(rules.MODEL_KEYS, self.header.metadata_offset, message)
        stated = metadata.get("vocab_size")
        if vocab is not None and stated is not None and stated != str(len(vocab)):
            message = f"embd: metadata vocab_size is {stated!r}, the vocabulary has {len(vocab)} tokens"
            self.check.note(rules.MODEL_VOCAB, self.header.vocab_offset, message)
