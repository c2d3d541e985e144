"""Reads the JSON header into columns (names, dtype codes, shapes, offsets), without making a dict for each tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from holdall.base.check import Check, Rule
from holdall.base.repeats import find_repeats
from holdall.binary import kernels
from holdall.binary.columns import Shapes
from holdall.binary.documents.json import DocumentError, Tape, tokenize
from holdall.binary.kernels.json_tokens import ABSENT, ARRAY, INT, OBJECT, STRING
from holdall.format.safetensors import rules
from holdall.format.safetensors.layout import DTYPES, FIELDS, HEADER, METADATA
from holdall.model.metadata import Entry, Metadata

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["WORDS", "Index", "read_header"]

WORDS = tuple(DTYPES)
_WORDS = tuple(word.encode() for word in WORDS)
_FIELDS = tuple(field.encode() for field in FIELDS)
_KINDS = ("", "an object", "an array", "", "text", "an integer", "a fraction", "true", "false", "null")
_COLUMN = {"name": 0, "entry": 1, "dtype": 2, "shape": 3, "data_offsets": 4}  # the columns of a row of json_records


@dataclass(slots=True)
class Index:
    """The content of a header, one row for each tensor in the header's order.

    ``complete`` is False when broken entries were left out. ``place(row, field)`` is the offset of a tensor's field in
    the file.
    """

    names: list[str]
    codes: NDArray[np.uint8]
    shapes: Shapes
    begins: NDArray[np.uint64]
    ends: NDArray[np.uint64]
    metadata: Metadata
    place: Callable[[int, str], int]
    complete: bool = True


def read_header(header: bytes, check: Check) -> Index:
    """Read a header and check everything that does not depend on the data."""
    return Entries(header, check).index()


class Entries:
    """The members of the header object, as tokens of a tape."""

    def __init__(self, header: bytes, check: Check) -> None:
        self.check = check
        self.header = header
        self.tape = _tokenize(header, check)
        rows = kernels.json_records(header, self.tape.stored, 0, _FIELDS)
        self.records = np.frombuffer(rows, "<u4").reshape(-1, len(FIELDS) + 3)
        check.limit("tensors", len(self.records), HEADER.size, "safetensors: members of the header")

    def index(self) -> Index:
        """The columns. A broken entry is reported and left out."""
        check, before = self.check, self.check.abandoned
        names = self.names()
        with check.scope():
            self._check_unique(names)
        metadata = Metadata()
        mine = np.ones(len(names), np.bool_)
        if METADATA in names:
            row = names.index(METADATA)
            mine[row] = False
            with check.scope():
                metadata = self._read_metadata(int(self.records[row, _COLUMN["entry"]]))
        columns = _Columns(self, names, mine)
        keep = columns.keep.nonzero()[0]
        kept = self.records[keep]
        return Index(
            names if len(keep) == len(names) else [names[row] for row in keep.tolist()],
            columns.codes[keep],
            Shapes(columns.dims.data, columns.dim_starts[keep] * np.uint64(8), columns.ranks[keep]),
            columns.begins[keep],
            columns.ends[keep],
            metadata,
            lambda row, field: self.at(int(kept[row, _COLUMN[field]]) or int(kept[row, 0])),
            check.abandoned == before,
        )

    def at(self, token: int) -> int:
        """The offset of a token in the file."""
        return HEADER.size + self.tape.offset(token)

    def names(self) -> list[str]:
        """The keys of the header object, unescaped."""
        keys = self.tape.table[self.records[:, 0]]
        if len(keys):
            lengths = keys[:, 2] - keys[:, 1]
            longest = int(lengths.argmax())
            at = HEADER.size + int(keys[longest, 1])
            self.check.limit("name_bytes", int(lengths[longest]), at, f"safetensors: the name of tensor {longest}")
        return self.tape.texts(self.records[:, 0])

    def _check_unique(self, names: list[str]) -> None:
        ok = np.ones(len(names), np.bool_)
        ok[find_repeats(names)] = False
        self.check.rows(
            ok, rules.DUPLICATE, lambda row: self.at(int(self.records[row, 0])),
            lambda row: f"safetensors: the header has {names[row]!r} twice",
        )  # fmt: skip

    def _read_metadata(self, index: int) -> Metadata:
        check, tape = self.check, self.tape
        if tape.kind(index) != OBJECT:
            check.fail(rules.META_TYPE, self.at(index), f"safetensors: {METADATA} is {self._describe(index)}")
        _, start, end, link = tape.row(index)
        check.limit("metadata_entries", (link - index) // 2, self.at(index), f"safetensors: {METADATA}")
        check.limit("metadata_bytes", end - start, self.at(index), f"safetensors: {METADATA}")
        entries: dict[str, Entry] = {}
        for key, value in tape.members(index):
            with check.scope():
                name = tape.text(key)
                if tape.kind(value) != STRING:
                    message = f"safetensors: metadata {name!r} is {self._describe(value)}, not text"
                    check.fail(rules.META_VALUE, self.at(value), message)
                if name in entries:
                    check.fail(rules.META_DUPLICATE, self.at(key), f"safetensors: metadata has {name!r} twice")
                entries[name] = Entry(name, tape.text(value), "string")
        return Metadata(entries.values())

    def read_entry(self, row: int, name: str) -> tuple[int, list[int], int, int]:
        """Dtype code, dims, begin and end of one entry that the columns could not take; fails with the reason."""
        check, tape, index = self.check, self.tape, int(self.records[row, _COLUMN["entry"]])
        what = f"safetensors: tensor {name!r}"
        if tape.kind(index) != OBJECT:
            check.fail(rules.ENTRY, self.at(index), f"{what} is described by {self._describe(index)}, not by an object")
        found: dict[str, int] = {}
        for key, value in tape.members(index):
            field = tape.text(key)
            if field not in FIELDS:
                check.fail(rules.FIELD, self.at(key), f"{what} has the unknown field {field!r}")
            if field in found:
                check.fail(rules.FIELD_DUPLICATE, self.at(key), f"{what} has {field} twice")
            found[field] = value
        missing = [field for field in FIELDS if field not in found]
        if missing:
            check.fail(rules.MISSING, self.at(index), f"{what} has no {' and no '.join(missing)}")
        dtype, shape, offsets = (found[field] for field in FIELDS)
        if tape.kind(dtype) != STRING:
            check.fail(rules.DTYPE_TYPE, self.at(dtype), f"{what}: dtype is {self._describe(dtype)}, not text")
        word = tape.text(dtype)
        if word not in DTYPES:
            check.fail(rules.DTYPE, self.at(dtype), f"{what}: dtype {word!r} is unknown; known are {' '.join(WORDS)}")
        if tape.kind(shape) != ARRAY:
            check.fail(rules.SHAPE, self.at(shape), f"{what}: shape is {self._describe(shape)}, not an array")
        dims = [self._read_integer(item, rules.DIM, f"{what}: a dim") for item in tape.items(shape)]
        pair = list(tape.items(offsets)) if tape.kind(offsets) == ARRAY else []
        if len(pair) != 2:
            shown = f"an array of {len(pair)}" if tape.kind(offsets) == ARRAY else self._describe(offsets)
            check.fail(rules.OFFSETS, self.at(offsets), f"{what}: data_offsets are {shown}, not two integers")
        begin, end = (self._read_integer(item, rules.OFFSETS, f"{what}: a data offset") for item in pair)
        return WORDS.index(word), dims, begin, end

    def _read_integer(self, token: int, rule: Rule, what: str) -> int:
        _, start, end, _ = self.tape.row(token)
        text = self.header[start : min(end, start + 40)].decode("utf-8", "replace")
        if self.tape.kind(token) != INT:
            self.check.fail(rule, self.at(token), f"{what} is {self._describe(token)}, not an integer")
        if text.startswith("-"):
            self.check.fail(rule, self.at(token), f"{what} is {text}, which is negative")
        if end - start > 20 or int(text) >> 64:
            self.check.fail(rule, self.at(token), f"{what} is {text}, which does not fit 64 bits")
        return int(text)

    def _describe(self, token: int) -> str:
        return _KINDS[self.tape.kind(token)]


class _Columns:
    """The numbers of all entries. Ordinary entries are read together by the kernels, the others one by one."""

    def __init__(self, entries: Entries, names: list[str], mine: NDArray[np.bool_]) -> None:
        header, tape, records, count = entries.header, entries.tape, entries.records, len(names)
        self.codes = np.empty(count, np.uint8)
        kernels.json_words(header, tape.stored, np.ascontiguousarray(records[:, _COLUMN["dtype"]]), _WORDS, self.codes)
        ordinary = mine & (records[:, -1] == 0) & (self.codes != ABSENT)
        shape_ok, self.ranks, self.dims = _read_uints(entries, "shape", ordinary)
        pair_ok, pairs, offsets = _read_uints(entries, "data_offsets", ordinary)
        self.dim_starts = np.cumsum(self.ranks, dtype=np.uint64) - self.ranks
        pair_starts = np.cumsum(pairs, dtype=np.uint64) - pairs
        ordinary = shape_ok & pair_ok & (pairs == 2)
        self.begins, self.ends = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
        self.begins[ordinary] = offsets[pair_starts[ordinary]]
        self.ends[ordinary] = offsets[pair_starts[ordinary] + np.uint64(1)]
        self.keep = ordinary
        self._read_others(entries, names, (mine & ~ordinary).nonzero()[0].tolist())
        if count:
            longest = int(self.ranks.argmax())
            at = entries.at(int(records[longest, 0]))
            entries.check.limit("rank", int(self.ranks[longest]), at, f"safetensors: the rank of {names[longest]!r}")

    def _read_others(self, entries: Entries, names: list[str], rows: list[int]) -> None:
        more: list[int] = []
        for row in rows:
            with entries.check.scope():
                self.codes[row], dims, self.begins[row], self.ends[row] = entries.read_entry(row, names[row])
                self.ranks[row], self.dim_starts[row] = len(dims), len(self.dims) + len(more)
                more += dims
                self.keep[row] = True
        if more:
            self.dims = np.concatenate([self.dims, np.array(more, np.uint64)])


def _read_uints(
    entries: Entries, field: str, rows: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.uint64], NDArray[np.uint64]]:
    """Read the arrays of unsigned integers in ``field``: which ``rows`` have one, its length, and all the values."""
    chosen = rows.nonzero()[0]
    indexes = np.ascontiguousarray(entries.records[chosen, _COLUMN[field]])
    counts = np.zeros(len(chosen), np.uint64)
    values = np.empty(len(entries.tape), np.uint64)
    at = used = 0
    ok = rows.copy()
    while at < len(chosen):
        got, bad = kernels.json_uints(entries.header, entries.tape.stored, indexes[at:], counts[at:], values[used:])
        used += got
        if bad < 0:
            break
        ok[chosen[at + bad]] = False
        at += bad + 1
    every = np.zeros(len(rows), np.uint64)
    every[chosen] = counts
    return ok, every, values[:used]


def _tokenize(header: bytes, check: Check) -> Tape:
    try:
        return tokenize(header, depth=check.limits.nesting)
    except DocumentError as error:
        _refuse(error, check)


def _refuse(error: DocumentError, check: Check) -> NoReturn:
    rule = rules.UTF8 if error.message == "not UTF-8" else rules.JSON
    message = f"safetensors: the header is not strict JSON: {error.message}"
    check.fail(rule, HEADER.size + error.offset, message, inner=error.path)
