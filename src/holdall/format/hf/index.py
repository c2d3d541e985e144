"""The index of a sharded model: which tensor is in which file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.base.check import Check
from holdall.base.once import computed_once
from holdall.base.repeats import find_repeat
from holdall.binary import kernels
from holdall.binary.documents.json import DocumentError, Tape, decode, tokenize
from holdall.binary.kernels.json_tokens import ABSENT, KIND, NULL, OBJECT, STRING
from holdall.format.hf import rules
from holdall.source import Source

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["HfNative", "ShardMap", "ShardedIndex", "read_index"]

_SAMPLE = buffer_size(256)  # rows in which the names of the files are looked up first
_WORDS = buffer_size(64)  # files that this sample may find


class ShardMap(Mapping[str, str]):
    """Maps tensors to files, given the tensor names of each file. The dict is made on first use."""

    def __init__(self, files: Sequence[tuple[str, Sequence[str]]]) -> None:
        self._files = files

    @computed_once
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
    """What only a Hugging Face folder has: its files, the file of each tensor, and the metadata of the index."""

    files: tuple[str, ...] = ()
    weight_map: Mapping[str, str] = field(default_factory=dict)
    index_metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class ShardedIndex:
    """A decoded index: the tensor names, each once, and for each the place of its file in ``files``."""

    name: str
    data: bytes
    names: list[str]
    files: list[str]
    codes: NDArray[np.intp]
    metadata: dict[str, Any]

    @computed_once
    def weight_map(self) -> dict[str, str]:
        """Tensor to file."""
        return dict(zip(self.names, map(self.files.__getitem__, self.codes.tolist()), strict=True))

    @computed_once
    def tape(self) -> Tape:
        """The tokens of the index, made when an error has to name a place."""
        return tokenize(self.data)

    def names_in(self, file: str) -> list[str]:
        """The tensors that the index places in ``file``."""
        return [self.names[row] for row in self._rows.get(file, ())]

    @computed_once
    def _rows(self) -> dict[str, list[int]]:
        """The places in ``names`` of the tensors of each file."""
        order = np.argsort(self.codes, kind="stable")
        bounds = np.searchsorted(self.codes[order], np.arange(len(self.files) + 1))
        return {file: order[bounds[n] : bounds[n + 1]].tolist() for n, file in enumerate(self.files)}


def read_index(source: Source, name: str, check: Check) -> ShardedIndex:
    """Read the index in ``source``."""
    check.limit("index_bytes", source.size, 0, f"hf: bytes of {name}")
    data = source.read(0, source.size)
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
    names, files, codes = _read_weight_map(tape, members["weight_map"], name, check)
    return ShardedIndex(name, data, names, files, codes, _read_metadata(tape, members.get("metadata"), name, check))


def _number_texts(texts: Sequence[str]) -> tuple[list[str], NDArray[np.intp]]:
    """Return the distinct texts, sorted, and the place of each text among them."""
    files = sorted(set(texts))
    places = {file: place for place, file in enumerate(files)}
    return files, np.array([places[text] for text in texts], np.intp)


def _read_weight_map(tape: Tape, index: int, name: str, check: Check) -> tuple[list[str], list[str], NDArray[np.intp]]:
    rows = np.frombuffer(kernels.json_records(tape.data, tape.stored, index, ()), "<u4").reshape(-1, 3)
    check.limit("tensors", len(rows), tape.offset(index), f"hf: tensors of {name}")
    names = tape.texts(rows[:, 0])
    check.rows(
        tape.table[rows[:, 1], 0] & KIND == STRING, rules.TYPE, lambda row: tape.offset(int(rows[row, 1])),
        lambda row: f"hf: {name} gives something else than a file for tensor {names[row]!r}",
    )  # fmt: skip
    again = find_repeat(names)
    if again is not None:
        check.fail(rules.DUPLICATE, tape.offset(int(rows[again, 0])), f"hf: {name} has tensor {names[again]!r} twice")
    return names, *_read_files(tape, np.ascontiguousarray(rows[:, 1]))


def _read_files(tape: Tape, indexes: NDArray[np.uint32]) -> tuple[list[str], NDArray[np.intp]]:
    """Read the distinct texts at ``indexes``, sorted, and the place of each text among them.

    There are few files, so a sample usually finds all of them; if not, every text is decoded.
    """
    words = sorted(set(tape.texts(indexes[:: max(1, len(indexes) // _SAMPLE)])))[:_WORDS]
    codes = np.empty(len(indexes), np.uint8)
    kernels.json_words(tape.data, tape.stored, indexes, tuple(word.encode() for word in words), codes)
    if (codes == ABSENT).any():
        return _number_texts(tape.texts(indexes))
    return words, codes.astype(np.intp)


def _read_metadata(tape: Tape, index: int | None, name: str, check: Check) -> dict[str, Any]:
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
