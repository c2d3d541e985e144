"""The index of a sharded model: which tensor is in which file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from holdall.check import Check
from holdall.documents.json import Document, DocumentError, decode
from holdall.formats.hf import rules
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
    document: Document
    weight_map: dict[str, str]
    metadata: dict[str, Any]

    @property
    def files(self) -> list[str]:
        """The files that hold the tensors, sorted."""
        return sorted(set(self.weight_map.values()))


def read_index(source: Source, name: str, check: Check) -> ShardedIndex:
    """The index in ``source``."""
    check.limit("index_bytes", source.size, 0, f"hf: bytes of {name}")
    try:
        document = decode(source.read(0, source.size), depth=check.limits.nesting)
    except DocumentError as error:
        check.fail(rules.JSON, error.offset, f"hf: {name} is not strict JSON: {error.message}", inner=error.path)
    for duplicate in document.duplicates[:1]:
        message = f"hf: {name} has a key twice"
        check.fail(rules.DUPLICATE, duplicate.offset, message, inner=duplicate.path)
    value = document.value
    if not isinstance(value, dict) or not isinstance(value.get("weight_map"), dict):
        check.fail(rules.TYPE, 0, f"hf: {name} is not an object with a weight_map")
    weight_map: dict[str, Any] = value["weight_map"]
    check.limit("tensors", len(weight_map), 0, f"hf: tensors of {name}")
    for tensor, file in weight_map.items():
        if not isinstance(file, str):
            at = document.tape.offset(document.tape.find("$.weight_map"))
            check.fail(rules.TYPE, at, f"hf: {name} gives {type(file).__name__}, not a file, for tensor {tensor!r}")
    metadata = value.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        check.fail(rules.TYPE, document.offset("$.metadata"), f"hf: the metadata of {name} is not an object")
    return ShardedIndex(name, document, weight_map, metadata or {})


def encode_index(metadata: Mapping[str, Any], weight_map: Mapping[str, str]) -> bytes:
    """The index file, as the ecosystem writes it: sorted, two spaces deep."""
    content = {"metadata": dict(metadata), "weight_map": dict(weight_map)}
    return (json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
