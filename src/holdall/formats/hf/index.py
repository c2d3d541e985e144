"""The index of a sharded model: which tensor is in which file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from holdall import kernels
from holdall.check import Check
from holdall.documents.json import DocumentError, Tape, decode, tokenize
from holdall.formats.hf import rules
from holdall.kernels.json_reference import KIND, NULL, OBJECT, STRING
from holdall.source import Source

__all__ = ["HfNative", "ShardMap", "ShardedIndex", "encode_index", "read_index"]


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


@dataclass(slots=True)
class ShardedIndex:
    """A decoded index."""

    name: str
    tape: Tape
    weight_map: dict[str, str]
    metadata: dict[str, Any]

    @property
    def files(self) -> list[str]:
        """The files that hold the tensors, sorted."""
        return sorted(set(self.weight_map.values()))


def read_index(source: Source, name: str, check: Check) -> ShardedIndex:
    """The index in ``source``."""
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
    weight_map = _weight_map(tape, members["weight_map"], name, check)
    return ShardedIndex(name, tape, weight_map, _metadata(tape, members.get("metadata"), name, check))


def _weight_map(tape: Tape, index: int, name: str, check: Check) -> dict[str, str]:
    rows = np.frombuffer(kernels.json_records(tape.data, tape.stored, index, ()), "<u4").reshape(-1, 3)
    check.limit("tensors", len(rows), tape.offset(index), f"hf: tensors of {name}")
    names = tape.texts(rows[:, 0])
    check.rows(
        tape.table[rows[:, 1], 0] & KIND == STRING, rules.TYPE, lambda row: tape.offset(int(rows[row, 1])),
        lambda row: f"hf: {name} gives something else than a file for tensor {names[row]!r}",
    )  # fmt: skip
    weight_map = dict(zip(names, tape.texts(rows[:, 1]), strict=True))
    if len(weight_map) != len(names):
        seen: set[str] = set()
        for row, tensor in enumerate(names):
            if tensor in seen:
                check.fail(rules.DUPLICATE, tape.offset(int(rows[row, 0])), f"hf: {name} has tensor {tensor!r} twice")
            seen.add(tensor)
    return weight_map


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


def encode_index(metadata: Mapping[str, Any], weight_map: Mapping[str, str]) -> bytes:
    """The index file, as the ecosystem writes it: sorted, two spaces deep."""
    content = {"metadata": dict(metadata), "weight_map": dict(weight_map)}
    return (json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
