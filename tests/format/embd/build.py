"""EMBD files made with struct alone, from the tables of the format's document: an oracle that shares no code."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

HEADER = {"major": (4, "H"), "minor": (6, "H"), "flags": (8, "I"), "metadata_offset": (12, "I")}
HEADER |= {"metadata_size": (16, "I"), "vocab_offset": (20, "I"), "vocab_size": (24, "I"), "index_offset": (28, "I")}
HEADER |= {"count": (32, "I"), "data_offset": (36, "I"), "data_size": (40, "Q"), "file_size": (48, "Q")}
VOCAB, ALIGNED, CHECKSUMS, COMPRESSED = 1, 2, 4, 8


@dataclass
class Entry:
    """A tensor; ``hash``, ``ndim`` and ``unused`` replace what would be right."""

    name: str | bytes
    dtype: int
    shape: Sequence[int]
    payload: bytes
    hash: int | None = None
    ndim: int | None = None
    unused: int = 0


@dataclass
class File:
    """The sections of a file. ``metadata_total`` and the like replace what would be right."""

    metadata: Sequence[tuple[str | bytes, str | bytes]] = ()
    tokens: Sequence[str | bytes] | None = None
    special: Sequence[int] = (0, 100, 101, 102, 103)
    tensors: Sequence[Entry] = ()
    flags: int = ALIGNED | CHECKSUMS
    entry_count: int | None = None
    metadata_total: int | None = None
    token_count: int | None = None
    token_total: int | None = None
    special_offset: int | None = None

    def data(self) -> bytes:
        metadata = self._metadata()
        vocab_at = 64 + len(metadata)
        vocab = b"" if self.tokens is None else self._vocab(vocab_at)
        names = b"".join(map(raw, (entry.name for entry in self.tensors)))
        index_at = vocab_at + len(vocab)
        index_end = index_at + 32 * len(self.tensors) + len(names)
        step = 64 if self.flags & ALIGNED else 1
        data_at = index_end + -index_end % step
        descriptors, payloads = b"", b""
        for entry in self.tensors:
            payloads += bytes(-len(payloads) % step)
            descriptors += describe(entry, len(payloads))
            payloads += entry.payload
        flags = self.flags | (VOCAB if self.tokens is not None else 0)
        size = data_at + len(payloads) + 16
        head = struct.pack(
            "<4sHHIIIIIIIIQQ", b"EMBD", 1, 0, flags, 64, len(metadata), vocab_at if vocab else 0, len(vocab),
            index_at, len(self.tensors), data_at, len(payloads), size,
        )  # fmt: skip
        body = metadata + vocab + descriptors + names + bytes(data_at - index_end) + payloads
        return seal(head + bytes(8) + body + bytes(8) + b"DBME" + bytes(4))

    def _metadata(self) -> bytes:
        entries = b"".join(
            struct.pack("<HH", len(raw(key)), len(raw(value))) + raw(key) + raw(value) for key, value in self.metadata
        )
        count = len(self.metadata) if self.entry_count is None else self.entry_count
        total = len(entries) if self.metadata_total is None else self.metadata_total
        return struct.pack("<II", count, total) + entries

    def _vocab(self, at: int) -> bytes:
        tokens = b"".join(struct.pack("<H", len(raw(token))) + raw(token) for token in self.tokens or ())
        count = len(self.tokens or ()) if self.token_count is None else self.token_count
        total = len(tokens) if self.token_total is None else self.token_total
        special_at = at + 12 if self.special_offset is None else self.special_offset
        return struct.pack("<III5I", count, total, special_at, *self.special) + tokens


def raw(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def fnv1a(data: bytes) -> int:
    found = 0x811C9DC5
    for byte in data:
        found = (found ^ byte) * 0x01000193 % 2**32
    return found


def describe(entry: Entry, offset: int) -> bytes:
    name = raw(entry.name)
    shape = [*entry.shape, *[entry.unused] * 4][:4]
    ndim = len(entry.shape) if entry.ndim is None else entry.ndim
    hashed = fnv1a(name) if entry.hash is None else entry.hash
    return struct.pack("<IBBH4IQ", hashed, entry.dtype, ndim, len(name), *shape, offset)


def seal(data: bytes) -> bytes:
    """The file with its three checksums, or zeros where its flags want none."""
    made = bytearray(data)
    at, size = struct.unpack_from("<IQ", made, 36)
    sums = struct.unpack_from("<I", made, 8)[0] & CHECKSUMS
    struct.pack_into("<I", made, 56, zlib.crc32(made[:56]) if sums else 0)
    struct.pack_into("<I", made, len(made) - 16, zlib.crc32(made[at : at + size]) if sums else 0)
    struct.pack_into("<I", made, len(made) - 12, zlib.crc32(made[:-16]) if sums else 0)
    return bytes(made)


def patch(data: bytes, at: int, new: bytes) -> bytes:
    """The file with other bytes somewhere, and checksums that fit them."""
    at %= len(data)
    return seal(data[:at] + new + data[at + len(new) :])


def header(data: bytes, **fields: int) -> bytes:
    for name, value in fields.items():
        at, kind = HEADER[name]
        data = data[:at] + struct.pack(f"<{kind}", value) + data[at + struct.calcsize(kind) :]
    return seal(data)


def sequential(tensors: Sequence[tuple[str, Sequence[int], bytes]], tokens: Sequence[str]) -> bytes:
    """The layout that the real converter writes."""
    parts = [struct.pack("<4sII", b"EMBD", 1, len(tensors))]
    for name, shape, payload in tensors:
        parts += [struct.pack("<I", len(raw(name))), raw(name), struct.pack(f"<{len(shape) + 1}I", len(shape), *shape)]
        parts.append(payload)
    parts.append(struct.pack("<I", len(tokens)))
    return b"".join(parts + [struct.pack("<I", len(raw(token))) + raw(token) for token in tokens])
