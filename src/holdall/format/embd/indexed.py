"""Reads the layout of the document: a 64-byte header, four sections and a footer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.check import Check
from holdall.binary import kernels
from holdall.errors import UnsupportedError
from holdall.format.embd import layout, rules
from holdall.format.embd.layout import (
    ALIGN,
    END_MAGIC,
    FOOTER,
    HEADER,
    KEYS,
    KNOWN_FLAGS,
    METADATA,
    METADATA_HEAD,
    SPECIAL,
    TOKEN,
    VOCAB_HEAD,
    VOCAB_SPECIAL,
)
from holdall.format.embd.native import EmbdNative
from holdall.format.embd.tensor_index import IndexReader
from holdall.format.proof import Proof
from holdall.model.metadata import Entry, Metadata
from holdall.model.model import Model
from holdall.model.table import ColumnTable, ListTable, TensorTable
from holdall.model.vocab import Vocab
from holdall.source.ledger import Ledger

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["SMALLEST", "read"]

_at = HEADER.offset_of

SMALLEST = HEADER.size + FOOTER.size  # the least bytes of a file of this layout


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """Read the model in ``source``."""
    return _Reader(source, check, ledger).read()


class _Reader:
    """One file of this layout. Each section is read in a scope, so that a breach in one leaves the others."""

    def __init__(self, source: Source, check: Check, ledger: Ledger) -> None:
        self.source = source
        self.check = check
        self.ledger = ledger
        self.size = source.size
        self.header = self._read_header()
        self.flags: int = self.header.flags
        self.data: int = self.header.tensor_data_offset
        check.limit("index_bytes", self.data, _at("tensor_data_offset"), f"embd: {source.name}: header and sections")
        self.index = source.read(0, self.data)
        self.sections: list[tuple[int, int, str]] = []

    def read(self) -> Model:
        check, header = self.check, self.header
        self.ledger.pad_to = ALIGN if self.flags & layout.ALIGNED else 1
        self.ledger.record(HEADER, 0)
        self.ledger.record(FOOTER, self.size - FOOTER.size)
        metadata: Metadata | None = None
        vocab, order = None, None
        tensors: TensorTable = ListTable([])
        with check.scope():
            metadata = self._read_metadata()
        with check.scope():
            vocab = self._read_vocab()
        index = IndexReader(self.source, header, self.index, check, self.ledger)
        with check.scope():
            tensors, order = index.read()
        if index.range is not None:
            self.sections.append((*index.range, "tensor_index"))
        with check.scope():
            self._check_sections_apart()
        if metadata is not None:
            self._check_model(metadata, vocab)
        native = EmbdNative(
            vocab,
            aligned=bool(self.flags & layout.ALIGNED),
            checksums=bool(self.flags & layout.CHECKSUMS),
            payload_order=order,
            data_checksum=self._read_data_checksum(tensors),
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

    def _read_header(self) -> SimpleNamespace:
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
            message = (
                "embd: the flag COMPRESSED is set, which the format's document reserves: it names no algorithm, so "
                "that the data cannot be decoded"
            )
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
                self._check_header_checksum(header, stored)
            with check.scope():
                self._check_data_range(header)
        if header.flags > KNOWN_FLAGS:
            check.note(rules.FLAGS, _at("flags"), f"embd: flags {header.flags:#x} have bits beyond {KNOWN_FLAGS:#x}")
        for at, value in ((_at("reserved"), header.reserved), (size - 4, footer.reserved)):
            if value:
                check.note(rules.RESERVED, at, f"embd: a reserved word is {value:#x}, not 0")
        return header

    def _read_data_checksum(self, tensors: TensorTable) -> Proof | None:
        """Read the checksum of the tensor data that the footer states."""
        if not self.flags & layout.CHECKSUMS:
            return None
        end = self.size - FOOTER.size
        footer = FOOTER.read(self.source.read(end, FOOTER.size), 0)
        holds = tensors.names_between if isinstance(tensors, ColumnTable) else None
        return Proof(self.source, self.data, end, "crc32", footer.data_checksum, rules.DATA_CRC.id,
                     "embd: the tensor data", stated="data_checksum", holds=holds, wide=True)  # fmt: skip

    def _check_header_checksum(self, header: SimpleNamespace, stored: bytes) -> None:
        from isal.isal_zlib import crc32

        at = _at("header_checksum")
        found = crc32(stored[:at])
        if header.flags & layout.CHECKSUMS and found != header.header_checksum:
            message = f"embd: header_checksum is {header.header_checksum:#010x}; bytes 0-{at - 1} give {found:#010x}"
            self.check.fail(rules.HEADER_CRC, at, message)

    def _check_data_range(self, header: SimpleNamespace) -> None:
        start, count, end = header.tensor_data_offset, header.tensor_data_size, self.size - FOOTER.size
        if start < HEADER.size or start + count != end:
            message = f"embd: {count} bytes of tensor data at {start} do not end at the footer at {end}"
            self.check.fail(rules.DATA_RANGE, _at("tensor_data_offset"), message)

    def _add_section(self, name: str, start: int, size: int) -> None:
        """Note where a section lies; refuse one that does not lie between header and tensor data."""
        if not HEADER.size <= start <= self.data or size > self.data - start:
            message = f"embd: {size} bytes of {name} at {start} do not lie in {HEADER.size}..{self.data}"
            self.check.fail(rules.SECTION, _at(f"{name}_offset"), message)
        self.sections.append((start, start + size, name))

    def _check_sections_apart(self) -> None:
        reached, before = 0, ""
        for start, stop, name in sorted(section for section in self.sections if section[0] < section[1]):
            if start < reached:
                self.check.fail(rules.OVERLAP, start, f"embd: {name} at {start} begins inside {before}")
            reached, before = stop, name

    def _read_metadata(self) -> Metadata:
        header, check = self.header, self.check
        start, size = header.metadata_offset, header.metadata_size
        if size < METADATA_HEAD.size:
            message = f"embd: metadata_size is {size}; the section header alone takes {METADATA_HEAD.size}"
            check.fail(rules.META_SIZE, _at("metadata_size"), message)
        self._add_section("metadata", start, size)
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
        keys = self._decode_texts(columns["key@"], columns["key_length"], "metadata key")
        self.ledger.entries(columns, keys.__getitem__)
        values = self._decode_texts(columns["value@"], columns["value_length"], "metadata value")
        return Metadata([Entry(key, value, "string") for key, value in zip(keys, values, strict=True)])

    def _decode_texts(self, positions: NDArray[np.uint64], lengths: NDArray[np.uint64], what: str) -> list[str]:
        texts, bad = kernels.texts(self.index, np.ascontiguousarray(positions), np.ascontiguousarray(lengths))
        if bad >= 0:
            self.check.fail(rules.META_UTF8, int(positions[bad]), f"embd: {what} {bad} is not UTF-8")
        return texts

    def _read_vocab(self) -> Vocab | None:
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
        self._add_section("vocab", start, size)
        head = VOCAB_HEAD.read(self.index, start)
        self.ledger.record(VOCAB_HEAD, start)
        if fixed + head.total_size != size:
            message = f"embd: vocab_size is {size}, but total_size + {fixed} is {head.total_size + fixed}"
            check.fail(rules.VOCAB_SIZE, start + 4, message)
        special, first = self._locate_special_tokens(start, size, head)
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

    def _locate_special_tokens(self, start: int, size: int, head: SimpleNamespace) -> tuple[int, int]:
        """Find where the special table and the tokens begin. Writers count from byte 0 or from the section."""
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

    def _check_model(self, metadata: Metadata, vocab: Vocab | None) -> None:
        missing = [key for key in KEYS if key not in metadata]
        if missing:
            message = f"embd: the required metadata keys {', '.join(missing)} are missing"
            self.check.note(rules.MODEL_KEYS, self.header.metadata_offset, message)
        stated = metadata.get("vocab_size")
        if vocab is not None and stated is not None and stated != str(len(vocab)):
            message = f"embd: metadata vocab_size is {stated!r}, the vocabulary has {len(vocab)} tokens"
            self.check.note(rules.MODEL_VOCAB, self.header.vocab_offset, message)
