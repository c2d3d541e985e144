"""GGUF files byte by byte, so that each can be wrong in one place."""

from __future__ import annotations

import struct

STRING, ARRAY = 8, 9


def text(value: str | bytes) -> bytes:
    """A counted string."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def entry(key: str | bytes, tag: int, value: bytes) -> bytes:
    """One metadata entry."""
    return text(key) + struct.pack("<I", tag) + value


def u32(key: str, value: int) -> bytes:
    """A metadata entry of type u32."""
    return entry(key, 4, struct.pack("<I", value))


def u16(key: str, value: int) -> bytes:
    """A metadata entry of type u16."""
    return entry(key, 2, struct.pack("<H", value))


def array(tag: int, count: int, items: bytes) -> bytes:
    """The value of an array."""
    return struct.pack("<IQ", tag, count) + items


def info(name: str | bytes = "w", dims: tuple[int, ...] = (4, 2), type: int = 0, offset: int = 0,
         n_dims: int | None = None) -> bytes:  # fmt: skip
    """One row of the tensor table; dims in the order of the file."""
    rank = len(dims) if n_dims is None else n_dims
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", rank, *dims, type, offset)


def file(
    entries: tuple[bytes, ...] = (),
    infos: tuple[bytes, ...] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    n_kv: int | None = None,
    n_tensors: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A whole file, its data on the first multiple of the alignment."""
    counts = (len(infos) if n_tensors is None else n_tensors, len(entries) if n_kv is None else n_kv)
    head = b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(entries) + b"".join(infos)
    return head + bytes(-len(head) % alignment if infos else 0) + data


GOOD = file((u32("a.b", 7),), (info(),), bytes(32))
