"""Reads GPTRSCHK and GPTRSTEN: version 2 has an index of entries, version 1 each tensor with its data."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.check import Check, figure
from holdall.base.repeats import find_repeat
from holdall.base.text import plural
from holdall.binary import kernels
from holdall.binary.columns import Shapes, find_end, find_overlaps, fit
from holdall.binary.documents.json import DocumentError, decode
from holdall.binary.layout import Columns, Layout
from holdall.format.gptrs import config, rules
from holdall.format.gptrs.layout import (
    ALIGN,
    ARCHIVE_ENTRY,
    ARCHIVE_MAGIC,
    CHECKPOINT_ENTRY,
    CHECKPOINT_MAGIC,
    CONFIG_LENGTH,
    COUNT,
    DTYPE_TAG,
    DTYPES,
    HEADER,
    INDEX_LENGTH,
    INLINE_ENTRY,
    NEW_DTYPES,
)
from holdall.format.gptrs.native import GptrsNative, GptrsTensor
from holdall.model.dtypes import DTYPES as ALL_DTYPES
from holdall.model.metadata import Entry, Metadata
from holdall.model.model import Model
from holdall.model.table import ColumnTable, ListTable, TensorTable
from holdall.source.interleaved import walk
from holdall.source.ledger import Ledger

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["read"]

_DTYPES = [ALL_DTYPES[name] for name in DTYPES]
_ITEM = np.array([dtype.bits // 8 for dtype in _DTYPES], np.uint64)


def read(source: Source, check: Check, ledger: Ledger, *, checkpoint: bool) -> Model:
    """Read the checkpoint or archive in ``source``."""
    return _Reader(source, check, ledger, checkpoint).read()


class _Reader:
    """One checkpoint or archive."""

    def __init__(self, source: Source, check: Check, ledger: Ledger, checkpoint: bool) -> None:
        self.source = source
        self.check = check
        self.ledger = ledger
        self.checkpoint = checkpoint
        self.size = source.size

    def read(self) -> Model:
        check, source = self.check, self.source
        version = self._read_version()
        at = HEADER.size
        metadata, native = Metadata(), GptrsNative()
        tensors: TensorTable = ListTable([])
        if self.checkpoint:
            length = self._read_length(CONFIG_LENGTH, at, "the configuration")
            start, at = at + CONFIG_LENGTH.size, at + CONFIG_LENGTH.size + length
            with check.scope():
                metadata, native = self._read_config(start, length)
        with check.scope():
            tensors = self._read_index(at) if version == 2 else self._read_inline(at)
        return Model(
            tensors,
            metadata=metadata,
            native=native,
            format="gptrs-checkpoint" if self.checkpoint else "gptrs-archive",
            version=(version,),
            sources=[source],
            ledger=self.ledger,
        )

    def _read_version(self) -> int:
        check, magic = self.check, CHECKPOINT_MAGIC if self.checkpoint else ARCHIVE_MAGIC
        head = self.source.read(0, min(self.size, HEADER.size))
        if head[: len(magic)] != magic:
            check.fail(rules.MAGIC, 0, f"gptrs: the file begins with {head[:8]!r}, not {magic!r}")
        if len(head) < HEADER.size:
            check.fail(rules.SHORT, self.size, f"gptrs: the file ends after {self.size} bytes, inside the header")
        version: int = HEADER.read(head, 0).version
        if version not in (1, 2):
            check.fail(rules.VERSION, len(magic), f"gptrs: version {version} is unknown; 1 and 2 are known")
        self.ledger.record(HEADER, 0)
        return version

    def _read_number(self, at: int, what: str) -> int:
        """Read the u32 at ``at``."""
        if at + 4 > self.size:
            self.check.fail(rules.SHORT, at, f"gptrs: the file ends at {self.size}, before {what}")
        return int.from_bytes(self.source.read(at, 4), "little")

    def _read_length(self, layout: Layout, at: int, what: str) -> int:
        """Read the u32 at ``at``, which counts the bytes after it."""
        length = self._read_number(at, f"the length of {what}")
        if length > self.size - at - 4:
            message = f"gptrs: {what} of {length} bytes at {at + 4} runs past the end of the file at {self.size}"
            self.check.fail(rules.SHORT, at, message)
        self.ledger.record(layout, at)
        return length

    def _read_config(self, start: int, length: int) -> tuple[Metadata, GptrsNative]:
        check = self.check
        check.limit("metadata_bytes", length, start - 4, "gptrs: the configuration")
        self.ledger.region("configuration", start, length)
        stored = self.source.read(start, length)
        try:
            document = decode(stored, depth=check.limits.nesting)
        except DocumentError as error:
            message = f"gptrs: the configuration: {error.message}"
            check.fail(rules.CONFIG_JSON, start + error.offset, message, inner=error.path)
        wrong = config.breach(document.value)
        if wrong is not None:
            rule, path, message = wrong
            check.fail(rule, start, f"gptrs: {message}", inner=path)
        for duplicate in document.duplicates:
            message = f"gptrs: the configuration has {duplicate.path} twice; the last counts"
            check.note(rules.CONFIG_DUPLICATE, start + duplicate.offset, message, inner=duplicate.path)
        legacy = config.is_legacy(document.value)
        members = config.normalize(document.value) if legacy else document.value
        return Metadata([Entry(key, value, "json") for key, value in members.items()]), GptrsNative(stored, legacy)

    def _read_index(self, at: int) -> ColumnTable:
        check, source, size = self.check, self.source, self.size
        length = self._read_length(INDEX_LENGTH, at, "the index")
        start, stop = at + INDEX_LENGTH.size, at + INDEX_LENGTH.size + length
        check.limit("index_bytes", stop, at, "gptrs: configuration and index")
        if length < COUNT.size:
            check.fail(rules.SHORT, at, f"gptrs: an index of {length} bytes has no room for the count of tensors")
        data = source.read(0, stop)  # from byte 0, so that offsets in it are offsets in the file
        count = COUNT.read(data, start).tensor_count
        check.limit("tensors", count, start, "gptrs: tensors")
        layout = CHECKPOINT_ENTRY if self.checkpoint else ARCHIVE_ENTRY
        columns = layout.scan(data, start + COUNT.size, stop, count)
        self.ledger.pad_to = ALIGN
        self.ledger.record(COUNT, start)
        if columns.failed is not None:
            message = (
                f"gptrs: entry {len(columns)} of {count}: its {columns.failed} runs past the index's end at {stop}"
            )
            check.fail(rules.ENTRY, columns.end, message)
        if columns.end < stop:
            message = f"gptrs: {stop - columns.end} bytes follow the last entry of the index"
            check.note(rules.INDEX_END, columns.end, message)
            self.ledger.region("ignored", columns.end, stop - columns.end)
        positions, lengths = columns["name@"], columns["name#"]
        names, bad = kernels.texts(data, positions, lengths)
        if bad >= 0:
            check.fail(rules.NAME_UTF8, int(positions[bad]), f"gptrs: the name of tensor {bad} is not UTF-8")
        self.ledger.entries(columns, names.__getitem__)
        shapes = Shapes(data, columns["dims@"], columns["rank"])
        offsets, sizes = columns["offset"], columns["byte_len"]
        with check.together():
            with check.scope():
                self._check_names(columns, names)
            if self.checkpoint:
                with check.scope():
                    self._check_base_ids(data, columns, names)
            with check.scope():
                self._check_sizes(columns, names, shapes)
            with check.scope():
                check.rows(
                    fit(offsets, sizes, size), rules.PLACE, columns.starts,
                    lambda row: f"gptrs: tensor {names[row]!r}: {sizes[row]} bytes at {offsets[row]} run past the end "
                    f"of the file at {size}",
                    needs=lambda: find_end(offsets, sizes),
                )  # fmt: skip
        self.ledger.payloads("tensor", offsets, sizes, names.__getitem__)
        if check.wants("strict"):
            self._check_strict(columns, names, offsets, sizes, stop)
        return self._build_table(columns, names, shapes, offsets)

    def _check_base_ids(self, data: bytes, columns: Columns, names: list[str]) -> None:
        """Check that every stored id is the one of its name."""
        low, high = columns["id_low"], columns["id_high"]
        stored = ((low | high) != 0).nonzero()[0]
        if not stored.size:
            return
        ids = np.empty((len(stored), 2), np.uint64)
        kernels.blake3_16(data, columns["name@"][stored], columns["name#"][stored], ids)
        ok = np.ones(len(names), np.bool_)
        ok[stored] = (ids[:, 0] == low[stored]) & (ids[:, 1] == high[stored])

        def message(row: int) -> str:
            found = ids[int(np.searchsorted(stored, row))]
            return (
                f"gptrs: tensor {names[row]!r}: the stored base id {int(high[row]):016x}{int(low[row]):016x} "
                f"is not that of its name, {int(found[1]):016x}{int(found[0]):016x}"
            )

        self.check.rows(ok, rules.BASE_ID, columns.starts, message)

    def _check_strict(
        self,
        columns: Columns,
        names: list[str],
        offsets: NDArray[np.uint64],
        sizes: NDArray[np.uint64],
        data_start: int,
    ) -> None:
        check = self.check
        used = sizes != 0
        check.rows(
            (offsets >= np.uint64(data_start)) | ~used, rules.BEFORE_DATA, columns.starts,
            lambda row: f"gptrs: tensor {names[row]!r}: offset {offsets[row]} lies before the data at {data_start}",
        )  # fmt: skip
        for row in range(1, len(names)):
            if names[row] < names[row - 1]:
                message = f"gptrs: {names[row]!r} comes after {names[row - 1]!r} in the index"
                check.note(rules.SORTED, int(columns.starts[row]), message)
                break
        for _, row in find_overlaps(offsets, sizes):
            message = f"gptrs: tensor {names[row]!r} begins inside the payload before it"
            check.note(rules.OVERLAP, int(offsets[row]), message)
        self._note_trailing(max(data_start, int((offsets + sizes).max(initial=0))))  # empty payloads count too

    def _note_trailing(self, end: int) -> None:
        if end < self.size:
            self.check.note(rules.TRAILING, end, f"gptrs: {self.size - end} bytes follow the last payload")
            self.ledger.region("ignored", end, self.size - end)

    def _read_inline(self, at: int) -> ColumnTable:
        check = self.check
        count = self._read_number(at, "the count of tensors")
        check.limit("tensors", count, at, "gptrs: tensors")
        self.ledger.record(COUNT, at)
        found = walk(self.source, INLINE_ENTRY, at + COUNT.size, self.size, count)
        columns, names, shapes = found.columns, found.texts.get("name", []), found.shapes
        assert shapes is not None
        if found.unreadable is not None:
            row = found.unreadable[1]
            check.fail(rules.NAME_UTF8, int(columns["name@"][row]), f"gptrs: the name of tensor {row} is not UTF-8")
        if columns.failed is not None:
            message = f"gptrs: tensor {len(columns)} of {count}: its {columns.failed} runs past the file's end"
            check.fail(rules.ENTRY, columns.end, f"{message} at {self.size}")
        self.ledger.entries(columns, names.__getitem__, payload="data")
        with check.together():
            with check.scope():
                self._check_names(columns, names)
            with check.scope():
                self._check_sizes(columns, names, shapes)
        self.ledger.payloads("tensor", columns["data@"], columns["byte_len"], names.__getitem__)
        if check.wants("strict"):
            self._note_trailing(columns.end)
        return self._build_table(columns, names, shapes, columns["data@"])

    def _check_names(self, columns: Columns, names: list[str]) -> None:
        check = self.check
        if len(names):
            longest = int(columns["name#"].argmax())
            at = int(columns.starts[longest])
            check.limit("name_bytes", int(columns["name#"][longest]), at, f"gptrs: the name of tensor {longest}")
        if self.checkpoint and not "".join(names).isascii():
            row = next(row for row, name in enumerate(names) if not name.isascii())
            message = f"gptrs: the name {names[row]!r} is not ASCII, so that it has no base id"
            check.fail(rules.NAME_ASCII, int(columns.starts[row]), message)
        repeat = find_repeat(names)
        if repeat is not None:
            message = f"gptrs: two tensors are called {names[repeat]!r}"
            check.fail(rules.DUPLICATE, int(columns.starts[repeat]), message)

    def _check_sizes(self, columns: Columns, names: list[str], shapes: Shapes) -> None:
        """Check that dtype_tag is known and byte_len exactly what dtype and dims need; no product can wrap."""
        check, tags, sizes = self.check, columns["dtype"], columns["byte_len"]
        if len(names):
            check.limit("rank", int(columns["rank"].max()), None, "gptrs: the rank of a tensor")
        known = tags < len(DTYPES)
        check.rows(
            known, rules.DTYPE, columns.starts,
            lambda row: f"gptrs: tensor {names[row]!r}: dtype tag {tags[row]} is unknown",
        )  # fmt: skip
        counts, exact = shapes.counts()
        possible = exact & (counts < np.uint64(1 << 62))  # items have at most 4 bytes: the product does not wrap
        needed = np.where(possible, counts, np.uint64(0)) * _ITEM[tags.astype(np.intp)]

        def message(row: int) -> str:
            dtype, shape = _DTYPES[int(tags[row])], shapes[row]
            return (
                f"gptrs: tensor {names[row]!r} needs {figure(dtype.nbytes(shape))} bytes for {dtype}{list(shape)} "
                f"but its entry says {sizes[row]}"
            )

        check.rows(possible & (needed == sizes), rules.SIZE, columns.starts, message)
        if check.collecting:
            self._note_refused_elsewhere(columns, names)

    def _note_refused_elsewhere(self, columns: Columns, names: list[str]) -> None:
        """Note what this reader takes and others of the format do not."""
        new = np.isin(columns["dtype"], [DTYPE_TAG[name] for name in NEW_DTYPES]).nonzero()[0]
        flat = (columns["rank"] == 0).nonzero()[0]
        for rows, rule, what, why in (
            (new, rules.OLD_READERS, "of f16 or bf16", "older gpt-rs readers refuse these types"),
            (flat, rules.SCALAR, "without dimensions", "the Rust reader panics on it"),
        ):
            if rows.size:
                named = f"{plural(len(rows), 'tensor')} {what}, {names[rows[0]]!r} first"
                self.check.note(rule, int(columns.starts[rows[0]]), f"gptrs: {named}: {why}")

    def _build_table(self, columns: Columns, names: list[str], shapes: Shapes, offsets: NDArray[Any]) -> ColumnTable:
        flags = columns["flag"]
        native_of: Callable[[int], object] | None = None
        if flags.any():

            def native_of(row: int) -> object:
                return GptrsTensor(int(flags[row])) if flags[row] else None

        return ColumnTable(
            self.source, names, _DTYPES, columns["dtype"], shapes, offsets, columns["byte_len"],
            native_of=native_of, requires_grad=flags != 0,
        )  # fmt: skip
