"""The index of a sharded model: which tensor is in which file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from holdall import kernels
from holdall.check import Check
from holdall.documents.json import DocumentError, Tape, decode, tokenize
from holdall.formats.hf import rules
from holdall.kernels.json_reference import ABSENT, KIND, NULL, OBJECT, STRING
from holdall.sizes import tuned
from holdall.source import Source

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["HfNative", "ShardMap", "ShardedIndex", "read_index"]

_SAMPLE, _WORDS = tuned(256), tuned(64)  # rows that are looked at to find the files, and files that they may find


class ShardMap(Mapping[str, str]):
    """Tensor to file, from the names that each file holds; the mapping itself is made when first looked at."""

    def __init__(self, files: Sequence[tuple[str, Sequence[str]]]) -> None:
        self._files = files

    @cached_property
    def _map(self) -> dict[str, str]:
        return {name: file for file, names in self._files for name in names}

    def __getitem__(self, name: str) -> str:
        return self._map[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._map)

    def __len__(self) -> int:
        return len(self._map)

    def __repr__(self) -> str:
        return f"<ShardMap of {len(self._files)} files>"


@dataclass(frozen=True, slots=True)
class HfNative:
    """What only the folder has: its files, which tensor is in which, and the metadata of the index."""

    files: tuple[str, ...] = ()
    weight_map: Mapping[str, str] = field(default_factory=dict)
    index_metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class ShardedIndex:
    """A decoded index: the names of the tensors, each once, and the place of each one's file in ``files``."""

    name: str
    data: bytes
    names: list[str]
    files: list[str]
    codes: NDArray[np.intp]
    metadata: dict[str, Any]

    @cached_property
    def weight_map(self) -> dict[str, str]:
        """Tensor to file."""
        return dict(zip(self.names, map(self.files.__getitem__, self.codes.tolist()), strict=True))

    @cached_property
    def tape(self) -> Tape:
        """Its tokens, for whoever asks for a place."""
        return tokenize(self.data)

    def listed(self, file: str) -> list[str]:
        """The tensors that are said to be in ``file``."""
        return [self.names[row] for row in self._rows.get(file, ())]

    @cached_property
    def _rows(self) -> dict[str, list[int]]:
        """The tensors of each file, by their places in ``names``."""
        order = np.argsort(self.codes, kind="stable")
        bounds = np.searchsorted(self.codes[order], np.arange(len(self.files) + 1))
        return {file: order[bounds[n] : bounds[n + 1]].tolist() for n, file in enumerate(self.files)}


def read_index(source: Source, name: str, check: Check) -> ShardedIndex:
    """The index in ``source``."""
    check.limit("index_bytes", source.size, 0, f"hf: bytes of {name}")
    data = source.read(0, source.size)
    if not kernels.NATIVE:
        quick = _quick(data, name, check)
        if quick is not None:
            return quick
    try:
        tape = tokenize(data, depth=check.limits.nesting)
    except DocumentError as error:
        check.fail(rules.JSON, error.offset, f"hf: {name} is not strict JSON: {error.message}", inner=error.path)
    if tape.kind(0) != OBJECT:
        check.fail(rules.TYPE, tape.offset(0), f"hf: {name} is not an object with a weight_map")
    members: dict[str, int] = {}
    for key, value in tape.members(0):
        if tape.text(key) in members:
            check.fail(rules.DUPLICATE, tape.offset(key), f"hf: {name} has {tape.text(key)!r} twice")
        members[tape.text(key)] = value
    if "weight_map" not in members or tape.kind(members["weight_map"]) != OBJECT:
        check.fail(rules.TYPE, 0, f"hf: {name} is not an object with a weight_map")
    names, files, codes = _weight_map(tape, members["weight_map"], name, check)
    return ShardedIndex(name, data, names, files, codes, _metadata(tape, members.get("metadata"), name, check))


class _Canonical(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    metadata: msgspec.Raw = msgspec.Raw()
    weight_map: dict[str, str] = {}  # a struct makes its own


def _quick(data: bytes, name: str, check: Check) -> ShardedIndex | None:
    """The quick way where the C tokenizer is missing; None for whatever is not in the usual form, right or wrong.

    An index that is, but for white space, what an encoder makes of its decoded content is strict JSON with unique keys.
    """
    try:
        compact = msgspec.json.format(data, indent=-1)
        found = msgspec.json.decode(compact, type=_Canonical)
        if msgspec.json.encode(found) != compact or len(found.weight_map) > check.limits.tensors:
            return None
        document = decode(bytes(found.metadata) or b"{}", depth=check.limits.nesting - 1)
    except (msgspec.DecodeError, DocumentError, UnicodeError, ValueError, RecursionError):
        return None
    if not isinstance(document.value, dict) or document.duplicates or not found.weight_map:
        return None
    files, codes = _numbered(list(found.weight_map.values()))
    return ShardedIndex(name, data, list(found.weight_map), files, codes, document.value)


def _numbered(texts: Sequence[str]) -> tuple[list[str], NDArray[np.intp]]:
    """The different texts, sorted, and for each its place among them."""
    files = sorted(set(texts))
    places = {file: place for place, file in enumerate(files)}
    return files, np.array([places[text] for text in texts], np.intp)


def _weight_map(tape: Tape, index: int, name: str, check: Check) -> tuple[list[str], list[str], NDArray[np.intp]]:
    rows = np.frombuffer(kernels.json_records(tape.data, tape.stored, index, ()), "<u4").reshape(-1, 3)
    check.limit("tensors", len(rows), tape.offset(index), f"hf: tensors of {name}")
    names = tape.texts(rows[:, 0])
    check.rows(
        tape.table[rows[:, 1], 0] & KIND == STRING, rules.TYPE, lambda row: tape.offset(int(rows[row, 1])),
        lambda row: f"hf: {name} gives something else than a file for tensor {names[row]!r}",
    )  # fmt: skip
    if len(set(names)) != len(names):
        seen: set[str] = set()
        for row, tensor in enumerate(names):
            if tensor in seen:
                check.fail(rules.DUPLICATE, tape.offset(int(rows[row, 0])), f"hf: {name} has tensor {tensor!r} twice")
            seen.add(tensor)
    return names, *_files(tape, np.ascontiguousarray(rows[:, 1]))


def _files(tape: Tape, indexes: NDArray[np.uint32]) -> tuple[list[str], NDArray[np.intp]]:
    """The different texts at ``indexes``, sorted, and for each its place among them.

    There are few: a sample finds them, and only what it does not find is decoded text by text.
    """
    words = sorted(set(tape.texts(indexes[:: max(1, len(indexes) // _SAMPLE)])))[:_WORDS]
    codes = np.empty(len(indexes), np.uint8)
    kernels.json_words(tape.data, tape.stored, indexes, tuple(word.encode() for word in words), codes)
    if (codes == ABSENT).any():
        return _numbered(tape.texts(indexes))
    return words, codes.astype(np.intp)


def _metadata(tape: Tape, index: int | None, name: str, check: Check) -> dict[str, Any]:
    if index is None or tape.kind(index) == NULL:
        return {}
    if tape.kind(index) != OBJECT:
        check.fail(rules.TYPE, tape.offset(index), f"hf: the metadata of {name} is not an object")
    _, start, end, _ = tape.row(index)
    try:
        document = decode(tape.data[start:end], depth=check.limits.nesting)
    except DocumentError as error:  # numbers beyond what Python holds
        check.fail(rules.JSON, start + error.offset, f"hf: the metadata of {name}: {error.message}", inner=error.path)
    for duplicate in document.duplicates[:1]:
        message = f"hf: the metadata of {name} have a key twice"
        check.fail(rules.DUPLICATE, start + duplicate.offset, message, inner=duplicate.path)
    found: dict[str, Any] = document.value
    return found
