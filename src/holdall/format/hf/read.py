"""Reading Hugging Face folders: the safetensors files are joined into one model, and all other files are assets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from holdall.base.check import Check
from holdall.base.text import list_text
from holdall.binary.columns import Shapes
from holdall.errors import ForeignError, FormatError
from holdall.format.hf import rules
from holdall.format.hf.assets import assets_of
from holdall.format.hf.index import HfNative, ShardedIndex, ShardMap, read_index
from holdall.format.hf.layout import INDEX, INDEX_SUFFIX, SINGLE, SUFFIX, find_weights
from holdall.format.safetensors.read import PALETTE, Table, read_table
from holdall.model.metadata import Assets, Entry, Metadata
from holdall.model.model import Model
from holdall.model.table import ColumnTable
from holdall.source.folder import MISSING
from holdall.source.ledger import Ledger

if TYPE_CHECKING:
    from holdall.source import Source

__all__ = ["read"]

_FILES = "hf: files of the index"
_SHARD = re.compile(r"-\d+-of-\d+\.")  # in the name of a file that is a part of a model
_PLAIN = re.compile(r"\w[\w.-]*")  # names of files directly in the folder


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """Read the model in the folder ``source``, or in the folder of the index ``source``."""
    opened: list[Source] = []
    try:
        return _Reader(source, check, ledger, opened).read()
    except BaseException:
        for member in opened:
            member.close()
        raise


class _Reader:
    """Reads one folder; ``tables`` are the headers of its files that could be read, with their names and sources."""

    def __init__(self, source: Source, check: Check, ledger: Ledger, opened: list[Source]) -> None:
        self.source = source
        self.check = check
        self.ledger = ledger
        self.opened = opened
        self.stored = 0  # bytes of the opened files of weights
        self.tables: list[tuple[str, Source, Table]] = []
        self.index: ShardedIndex | None = None

    def read(self) -> Model:
        self._read_headers()
        if self.index is None or not self._agrees(self.index):
            with self.check.scope():
                self._check_once()
            if self.index is not None:
                with self.check.scope():
                    self._report_differences(self.index)
        if self.index is not None:
            self._check_total(self.index)
        names = [(name, table.index.names) for name, _, table in self.tables]
        native = HfNative(
            tuple(name for name, _ in names), ShardMap(names), {} if self.index is None else self.index.metadata
        )
        return Model(
            self._join_tables(),
            metadata=self._join_metadata(),
            assets=Assets(partial(assets_of, self.source)) if self.source.is_remote else assets_of(self.source),
            native=native,
            format="hf",
            sources=[self.source, *self.opened],
            ledger=self.ledger,
        )

    def _read_headers(self) -> None:
        """Read the index, if there is one, and the headers of all files of weights."""
        check, source = self.check, self.source
        if not source.is_folder:
            name = source.name.replace("\\", "/").rsplit("/", 1)[-1]
            if name.endswith(INDEX_SUFFIX):
                self.ledger.region("json", 0, source.size)
                self.index = read_index(source, name, check)
        else:
            name = self._find_start()
            if name.endswith(INDEX_SUFFIX):
                with self._findings_of(name):
                    index = source.sibling(name)
                    self.opened.append(index)
                    self.index = read_index(index, name, check)
        files = [name] if self.index is None else self.index.files
        check.limit("sections", len(files), None, _FILES)
        if len(files) > 1:
            source.expect(files)
        absent = self._find_absent(files)
        inodes: dict[tuple[object, ...], str] = {}
        for file in files:
            if file in absent:
                continue
            check.limit_files(len(self.opened), self.stored, _FILES)
            with check.scope(), self._findings_of(file):
                member = source.sibling(file)
                self.opened.append(member)
                self.stored += member.size
                kind, _, *inode = member.identity if len(files) > 1 else ("", "")
                other = inodes.setdefault(tuple(inode), file) if kind == "file" else file
                if other != file:  # links to one file could make a small folder slow to read
                    check.fail(rules.SHARED, None, f"hf: {other} and {file} are the same file")
                table = read_table(member, check, self.ledger.member(member))
                if table.sound:
                    self.tables.append((file, member, table))
        for file in absent:
            check.note(MISSING, None, f"the member {file!r} is not in {source.name}")

    def _find_absent(self, files: Sequence[str]) -> set[str]:
        """When verifying, the missing files beyond those whose absence is reported; none of them is opened."""
        kept = self.check.limits.findings_per_rule
        if not self.check.collecting or len(files) <= kept or self.source.is_remote:
            return set()
        there = set(self.source.names())
        return set([file for file in files if file not in there and _PLAIN.fullmatch(file)][kept:])

    def _find_start(self) -> str:
        check, names = self.check, self.source.names()
        name = find_weights(names)
        if name is None:
            self._refuse_several(names)
        if name == SINGLE and INDEX in names:
            check.note(rules.BOTH, None, f"hf: {INDEX} lies beside {SINGLE}, which is the one that is read")
        return name

    def _refuse_several(self, names: Sequence[str]) -> NoReturn:
        """Refuse a folder of several models, which may all be intact; parts of one model without its index are not."""
        files = [name for name in names if name.endswith(SUFFIX)]
        indexes = [name for name in names if name.endswith(INDEX_SUFFIX)]
        if indexes or (files and not any(map(_SHARD.search, files))):
            found = indexes or files
            shown = f"{len(found)} models without {INDEX}, each to be opened by itself: {list_text(found)}"
            raise ForeignError(rules.WEIGHTS.id, None, f"{self.source.name}: is a folder of {shown}")
        shown = f"{len(files)} files of weights and no {INDEX}: {list_text(files)}" if files else "no weights"
        self.check.fail(rules.WEIGHTS, None, f"hf: {self.source.name} has {shown}")

    @contextmanager
    def _findings_of(self, file: str) -> Iterator[None]:
        """Findings and errors in this block name ``file``."""
        try:
            with self.check.inside(file):
                yield
        except FormatError as error:
            if self.check.collecting:
                raise
            raise type(error)(error.rule, error.offset, f"{file}: {error.message}") from None

    def _agrees(self, index: ShardedIndex) -> bool:
        """Whether index and files name the same tensors; then none is missing, and none is in two files."""
        held = 0
        for file, _, table in self.tables:
            names, listed = table.index.names, index.names_in(file)
            held += len(names)
            if not table.index.complete or len(names) != len(listed) or set(names) != set(listed):
                return False
        return held == len(index.names)

    def _report_differences(self, index: ShardedIndex) -> None:
        """Report where index and files differ; files that could not be read are left out."""
        check = self.check
        for file, _, table in self.tables:
            if not table.index.complete:
                continue
            with check.scope():
                self._check_listed(index, file, table)
            held = set(table.index.names)
            for name in index.names_in(file):
                if name not in held:
                    with check.scope():
                        check.fail(rules.MISSING, None, f"hf: {index.name}: tensor {name!r} is not in {file}")

    def _check_total(self, index: ShardedIndex) -> None:
        stated = index.metadata.get("total_size")
        total = sum(int(table.sizes.sum()) for _, _, table in self.tables)
        if stated is not None and stated != total and len(self.tables) == len(index.files):
            message = f"hf: {index.name}: total_size is {stated!r}, the tensors take {total} bytes"
            at = index.tape.offset(index.tape.find("$.metadata.total_size"))
            self.check.note(rules.TOTAL, at, message)

    def _check_listed(self, index: ShardedIndex, file: str, table: Table) -> None:
        names = table.index.names

        def message(row: int) -> str:
            place = index.weight_map.get(names[row])
            where = "does not list" if place is None else f"says is in {place}"
            return f"hf: {file} holds tensor {names[row]!r}, which {index.name} {where}"

        ok = np.array([index.weight_map.get(name) == file for name in names], np.bool_)
        self.check.rows(ok, rules.UNLISTED, lambda row: table.index.place(row, "name"), message)

    def _check_once(self) -> None:
        """Report tensors that are in two files."""
        if len(self.tables) < 2:
            return
        first: dict[str, str] = {}
        for file, _, table in self.tables:
            for row, name in enumerate(table.index.names):
                other = first.setdefault(name, file)
                if other != file:
                    with self.check.scope():
                        message = f"hf: tensor {name!r} is in {other} and in {file}"
                        self.check.fail(rules.SHARED, table.index.place(row, "name"), message)

    def _join_tables(self) -> ColumnTable:
        tables = [table for _, _, table in self.tables]
        sources = [source for _, source, _ in self.tables]
        none, counts = np.empty(0, np.uint64), [len(table.index.names) for table in tables]
        owners = np.repeat(np.arange(len(tables)), counts)
        return ColumnTable(
            self.source,
            list(chain.from_iterable(table.index.names for table in tables)),
            PALETTE,
            np.concatenate([np.empty(0, np.uint8), *(table.index.codes for table in tables)]),
            Shapes.join([table.index.shapes for table in tables]),
            np.concatenate([none, *(table.starts for table in tables)]),
            np.concatenate([none, *(table.sizes for table in tables)]),
            source_of=lambda row: sources[owners[row]],
        )

    def _join_metadata(self) -> Metadata:
        """Merge the entries of all files; if values of a key differ, the first is kept and the others are noted."""
        entries: dict[str, Entry] = {}
        for file, _, table in self.tables:
            for entry in table.index.metadata.entries:
                kept = entries.setdefault(entry.key, entry)
                if kept.value != entry.value:
                    message = f"hf: {file} has another value for the metadata {entry.key!r} than the files before it"
                    self.check.note(rules.METADATA, None, message)
        return Metadata(entries.values())
