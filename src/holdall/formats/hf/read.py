"""Reading Hugging Face folders: the safetensors files joined into one model, everything else as assets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from holdall.check import Check
from holdall.columns import Shapes
from holdall.errors import FormatError
from holdall.formats.hf import rules
from holdall.formats.hf.assets import assets_of
from holdall.formats.hf.index import HfNative, ShardedIndex, ShardMap, read_index
from holdall.formats.hf.layout import INDEX, INDEX_SUFFIX, SINGLE, SUFFIX, weights_of
from holdall.formats.safetensors.read import PALETTE, Table, read_table
from holdall.ledger import Ledger
from holdall.metadata import Assets, Entry, Metadata
from holdall.model import ColumnTable, Model
from holdall.source.folder import MISSING

if TYPE_CHECKING:
    from holdall.source import Source

__all__ = ["read"]

_FILES = "hf: files of the index"
_PLAIN = re.compile(r"\w[\w.-]*")  # names that can only be those of files in the folder itself


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """The model in the folder ``source``, or in the folder of the index ``source``."""
    opened: list[Source] = []
    try:
        return _Reader(source, check, ledger, opened).model()
    except BaseException:
        for member in opened:
            member.close()
        raise


class _Reader:
    """One folder: ``tables`` are its files that could be read, with their names and sources."""

    def __init__(self, source: Source, check: Check, ledger: Ledger, opened: list[Source]) -> None:
        self.source = source
        self.check = check
        self.ledger = ledger
        self.opened = opened
        self.stored = 0  # bytes of the files of weights among them
        self.tables: list[tuple[str, Source, Table]] = []
        self.index: ShardedIndex | None = None

    def model(self) -> Model:
        self._open()
        if self.index is None or not self._agrees(self.index):
            with self.check.scope():
                self._once()
            if self.index is not None:
                with self.check.scope():
                    self._compare(self.index)
        if self.index is not None:
            self._total(self.index)
        names = [(name, table.index.names) for name, _, table in self.tables]
        native = HfNative(
            tuple(name for name, _ in names), ShardMap(names), {} if self.index is None else self.index.metadata
        )
        return Model(
            self._tensors(),
            metadata=self._metadata(),
            assets=Assets(partial(assets_of, self.source)) if self.source.far else assets_of(self.source),
            native=native,
            format="hf",
            sources=[self.source, *self.opened],
            ledger=self.ledger,
        )

    # -- the files --------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Read the headers of all files."""
        check, source = self.check, self.source
        if not source.is_folder:
            name = source.name.replace("\\", "/").rsplit("/", 1)[-1]
            if name.endswith(INDEX_SUFFIX):
                self.index = read_index(source, name, check)
        else:
            name = self._start()
            if name.endswith(INDEX_SUFFIX):
                with self._inside(name):
                    index = source.sibling(name)
                    self.opened.append(index)
                    self.index = read_index(index, name, check)
        files = [name] if self.index is None else self.index.files
        check.limit("sections", len(files), None, _FILES)
        if len(files) > 1:
            source.expect(files)
        absent = self._absent(files)
        inodes: dict[tuple[object, ...], str] = {}
        for file in files:
            if file in absent:
                continue
            check.limit_files(len(self.opened), self.stored, _FILES)
            with check.scope(), self._inside(file):
                member = source.sibling(file)
                self.opened.append(member)
                self.stored += member.size
                kind, _, *inode = member.identity if len(files) > 1 else ("", "")
                other = inodes.setdefault(tuple(inode), file) if kind == "file" else file
                if other != file:  # one header under many names would be read as often
                    check.fail(rules.SHARED, None, f"hf: {other} and {file} are the same file")
                table = read_table(member, check, self.ledger.member(member))
                if table.sound:
                    self.tables.append((file, member, table))
        for file in absent:
            check.note(MISSING, None, f"the member {file!r} is not in {source.name}")

    def _absent(self, files: Sequence[str]) -> set[str]:
        """Files that need not be looked for: when verifying, those that are missing beyond as many as are reported."""
        kept = self.check.limits.findings_per_rule
        if not self.check.collecting or len(files) <= kept or self.source.far:
            return set()
        there = set(self.source.names())
        return set([file for file in files if file not in there and _PLAIN.fullmatch(file)][kept:])

    def _start(self) -> str:
        check, names = self.check, self.source.names()
        name = weights_of(names)
        if name is None:
            found = [name for name in names if name.endswith((SUFFIX, INDEX_SUFFIX))]
            shown = f"{len(found)} files of weights and no {INDEX}: {', '.join(found[:5])}" if found else "no weights"
            check.fail(rules.WEIGHTS, None, f"hf: {self.source.name} has {shown}")
        if name == SINGLE and INDEX in names:
            check.note(rules.BOTH, None, f"hf: {INDEX} lies beside {SINGLE}, which is the one that is read")
        return name

    @contextmanager
    def _inside(self, file: str) -> Iterator[None]:
        """Findings and errors of this file say so."""
        self.check.file = file
        try:
            yield
        except FormatError as error:
            if self.check.collecting:
                raise
            raise type(error)(error.rule, error.offset, f"{file}: {error.message}") from None
        finally:
            self.check.file = None

    # -- what they must agree on ------------------------------------------------------------------------------------

    def _agrees(self, index: ShardedIndex) -> bool:
        """Whether index and files name the same tensors: then nothing is missing, and nothing is there twice."""
        held = 0
        for file, _, table in self.tables:
            names, listed = table.index.names, index.listed(file)
            held += len(names)
            if not table.index.complete or len(names) != len(listed) or set(names) != set(listed):
                return False
        return held == len(index.names)

    def _compare(self, index: ShardedIndex) -> None:
        """Where index and files differ; only files that could be read are asked."""
        check = self.check
        for file, _, table in self.tables:
            if not table.index.complete:
                continue
            with check.scope():
                self._listed(index, file, table)
            held = set(table.index.names)
            for name in index.listed(file):
                if name not in held:
                    with check.scope():
                        check.fail(rules.MISSING, None, f"hf: {index.name}: tensor {name!r} is not in {file}")

    def _total(self, index: ShardedIndex) -> None:
        stated = index.metadata.get("total_size")
        total = sum(int(table.sizes.sum()) for _, _, table in self.tables)
        if stated is not None and stated != total and len(self.tables) == len(index.files):
            message = f"hf: {index.name}: total_size is {stated!r}, the tensors take {total} bytes"
            at = index.tape.offset(index.tape.find("$.metadata.total_size"))
            self.check.note(rules.TOTAL, at, message)

    def _listed(self, index: ShardedIndex, file: str, table: Table) -> None:
        names = table.index.names

        def message(row: int) -> str:
            place = index.weight_map.get(names[row])
            where = "does not list" if place is None else f"says is in {place}"
            return f"hf: {file} holds tensor {names[row]!r}, which {index.name} {where}"

        ok = np.array([index.weight_map.get(name) == file for name in names], np.bool_)
        self.check.rows(ok, rules.UNLISTED, lambda row: table.index.place(row, "name"), message)

    def _once(self) -> None:
        """No tensor is in two files."""
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

    # -- the slots --------------------------------------------------------------------------------------------------

    def _tensors(self) -> ColumnTable:
        tables = [table for _, _, table in self.tables]
        sources = [source for _, source, _ in self.tables]
        none, ends = np.empty(0, np.uint64), np.cumsum([len(table.index.names) for table in tables])
        return ColumnTable(
            self.source,
            list(chain.from_iterable(table.index.names for table in tables)),
            PALETTE,
            np.concatenate([np.empty(0, np.uint8), *(table.index.codes for table in tables)]),
            Shapes.joined([table.index.shapes for table in tables]),
            np.concatenate([none, *(table.starts for table in tables)]),
            np.concatenate([none, *(table.sizes for table in tables)]),
            source_of=lambda row: sources[int(np.searchsorted(ends, row, "right"))],
        )

    def _metadata(self) -> Metadata:
        """The entries of all files, each once; of different values the first is kept and the rest noted."""
        entries: dict[str, Entry] = {}
        for file, _, table in self.tables:
            for entry in table.index.metadata.entries:
                kept = entries.setdefault(entry.key, entry)
                if kept.value != entry.value:
                    message = f"hf: {file} has another value for the metadata {entry.key!r} than the files before it"
                    self.check.note(rules.METADATA, None, message)
        return Metadata(entries.values())
