"""GPTRSCHK and GPTRSTEN files made with struct and blake3 alone, from the lists of the format's document."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from blake3 import blake3

CONFIG = {"kind": "gpt", "config": {"num_layers": 1}}


def base_id(name: str) -> bytes:
    return blake3(name.encode()).digest()[:16]


@dataclass
class Entry:
    """A tensor; what is not None replaces what would be right."""

    name: str | bytes
    tag: int
    dims: Sequence[int]
    payload: bytes
    id: bytes | None = None
    grad: int = 0
    offset: int | None = None
    size: int | None = None


def checkpoint(entries: Sequence[Entry], config: Any = CONFIG, **options: Any) -> bytes:
    data = config if isinstance(config, bytes) else json.dumps(config, separators=(",", ":")).encode()
    return _build(b"GPTRSCHK", struct.pack("<I", len(data)) + data, entries, **options)


def archive(entries: Sequence[Entry], **options: Any) -> bytes:
    return _build(b"GPTRSTEN", b"", entries, **options)


def _build(
    magic: bytes, config: bytes, entries: Sequence[Entry], align: int = 1, ids: bool = True, version: int = 2,
    index_len: int | None = None, count: int | None = None,
) -> bytes:  # fmt: skip
    with_ids = magic == b"GPTRSCHK"
    size = 4 + sum(29 + (16 if with_ids else 0) + len(_raw(e.name)) + 8 * len(e.dims) for e in entries)
    start = 12 + len(config) + 4 + size
    index, payloads = struct.pack("<I", len(entries) if count is None else count), b""
    for entry in entries:
        payloads += bytes(-(start + len(payloads)) % align)
        place = start + len(payloads) if entry.offset is None else entry.offset
        stored = (base_id(str(entry.name)) if ids else bytes(16)) if entry.id is None else entry.id
        name = _raw(entry.name)
        index += struct.pack("<I", len(name)) + name + (stored if with_ids else b"")
        index += struct.pack(f"<I{len(entry.dims)}QIB", len(entry.dims), *entry.dims, entry.tag, entry.grad)
        index += struct.pack("<QQ", place, len(entry.payload) if entry.size is None else entry.size)
        payloads += entry.payload
    length = len(index) if index_len is None else index_len
    return magic + struct.pack("<I", version) + config + struct.pack("<I", length) + index + payloads


def _raw(name: str | bytes) -> bytes:
    return name.encode() if isinstance(name, str) else name


def read(data: bytes) -> dict[str, np.ndarray]:
    """The arrays of a file as a reader finds them that follows the document and nothing else."""
    magic, version, length = struct.unpack_from("<8sII", data)
    assert version == 2
    at = 16
    if magic == b"GPTRSCHK":
        at += length + 4
    (count,) = struct.unpack_from("<I", data, at)
    at += 4
    found = {}
    for _ in range(count):
        (length,) = struct.unpack_from("<I", data, at)
        name = data[at + 4 : at + 4 + length].decode()
        at += 4 + length + (16 if magic == b"GPTRSCHK" else 0)
        (rank,) = struct.unpack_from("<I", data, at)
        *dims, tag, _, place, size = struct.unpack_from(f"<{rank}QIBQQ", data, at + 4)
        at += 4 + 8 * rank + 21
        kind = {0: "<f4", 1: "<f2", 3: "<i4"}[tag]
        found[name] = np.frombuffer(data[place : place + size], kind).reshape(dims)
    return found
