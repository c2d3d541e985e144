"""AERO files made and parsed with struct, msgspec, zstd and blake3 alone: an oracle that shares no code."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from blake3 import blake3

try:
    from compression import zstd
except ImportError:
    from backports import zstd

ZSTD, MMAP, INDEX, OPTIONAL = 1, 2, 4, 8
HEADER, TOC, ENTRY = "<4sHHIQQQQQ16s28s", "<IIQ", "<4sIQQQIIQ32s"
UUID = bytes(range(16))
pack = msgspec.msgpack.encode
unpack = msgspec.msgpack.decode


@dataclass
class Chunk:
    """A chunk; ``content`` is uncompressed, and what is not None replaces what would be right."""

    fourcc: bytes
    name: str | bytes
    content: bytes
    flags: int = 0
    stored: bytes | None = None
    ulen: int | None = None
    digest: bytes | None = None
    reserved: int = 0

    def payload(self) -> bytes:
        if self.stored is not None:
            return self.stored
        return zstd.compress(self.content, 6) if self.flags & ZSTD else self.content


def file(chunks: Sequence[Chunk], *, names: bytes | None = None, count: int | None = None, **header: Any) -> bytes:
    """Chunks in their order, each on a multiple of 16."""
    table = b"".join(_raw(chunk.name) + b"\0" for chunk in chunks)
    table += bytes(-len(table) % 8)
    toc = 16 + 80 * len(chunks)
    strings = 96 + toc
    at = strings + len(table)
    at += -at % 16
    entries, body, name_at = b"", b"", 0
    for chunk in chunks:
        payload, name = chunk.payload(), _raw(chunk.name)
        body += bytes(-len(body) % 16)
        entries += struct.pack(
            ENTRY, chunk.fourcc, chunk.flags, at + len(body), len(payload),
            len(chunk.content) if chunk.ulen is None else chunk.ulen, name_at, len(name), chunk.reserved,
            blake3(chunk.content).digest() if chunk.digest is None else chunk.digest,
        )  # fmt: skip
        body += payload
        name_at += len(name) + 1
    fields = {"magic": b"AERO", "major": 0, "minor": 1, "size": 96, "toc": 96, "toc_length": toc, "strings": strings,
              "strings_length": len(table), "flags": 0, "uuid": UUID, "reserved": bytes(28), **header}  # fmt: skip
    head = struct.pack(HEADER, *fields.values()) + struct.pack(TOC, len(chunks) if count is None else count, 0, 0)
    control = head + entries + (table if names is None else names)
    return control + bytes(-len(control) % 16) + body


def _raw(name: str | bytes) -> bytes:
    return name.encode() if isinstance(name, str) else name


def entry(
    name: str, dtype: int, shape: Sequence[int], at: int, size: int, shard: int = 0, **more: Any
) -> dict[str, Any]:
    """A tensor of the index."""
    fixed = {"name": name, "dtype": dtype, "shape": list(shape), "shard_id": shard, "data_off": at, "data_len": size}
    return {**fixed, "flags": 0, **more}


def tidx(entries: Sequence[Any], flags: int = ZSTD | INDEX, **more: Any) -> Chunk:
    return Chunk(b"TIDX", "tensors", pack({"tensors": list(entries), **more}), flags)


def shard(content: bytes, number: int = 0, flags: int = MMAP) -> Chunk:
    return Chunk(b"WTSH", f"weights.shard{number}", content, flags)


def mjsn(values: Any, flags: int = 0) -> Chunk:
    return Chunk(b"MJSN", "meta.json", json.dumps(values, sort_keys=True, separators=(",", ":")).encode(), flags)


def mmsg(model: Any) -> Chunk:
    manifest = {"format": {"name": "AERO", "version": [0, 1]}, "model": model, "chunks": [], "shards": []}
    return Chunk(b"MMSG", "manifest", pack(manifest), ZSTD)


@dataclass
class Parsed:
    """What a reader finds that follows the document and nothing else."""

    header: dict[str, Any]
    chunks: list[dict[str, Any]]
    data: bytes

    def content(self, fourcc: bytes, name: str | None = None) -> bytes:
        row = next(row for row in self.chunks if row["fourcc"] == fourcc and name in (None, row["name"]))
        stored = self.data[row["offset"] : row["offset"] + row["length"]]
        return zstd.decompress(stored) if row["flags"] & ZSTD else stored

    def tensors(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = unpack(self.content(b"TIDX"))["tensors"]
        return found

    def raw(self, name: str) -> bytes:
        row = next(row for row in self.tensors() if row["name"] == name)
        held = self.content(b"WTSH", f"weights.shard{row['shard_id']}")
        return held[row["data_off"] : row["data_off"] + row["data_len"]]


def parse(data: bytes) -> Parsed:
    """Parse a file, and check all that the published validators check."""
    keys = ("magic", "major", "minor", "size", "toc", "toc_length", "strings", "strings_length", "flags", "uuid")
    header = dict(zip((*keys, "reserved"), struct.unpack_from(HEADER, data), strict=True))
    assert (header["magic"], header["major"], header["minor"], header["size"]) == (b"AERO", 0, 1, 96)
    assert (header["flags"], header["reserved"]) == (0, bytes(28))
    count, *zeros = struct.unpack_from(TOC, data, header["toc"])
    assert zeros == [0, 0]
    assert header["toc_length"] == 16 + 80 * count
    table = data[header["strings"] : header["strings"] + header["strings_length"]]
    assert len(table) % 8 == header["strings"] % 8 == 0
    names = ("fourcc", "flags", "offset", "length", "ulen", "name_off", "name_len", "reserved", "blake3")
    chunks = []
    for number in range(count):
        row = dict(zip(names, struct.unpack_from(ENTRY, data, header["toc"] + 16 + 80 * number), strict=True))
        row["name"] = table[row["name_off"] : row["name_off"] + row["name_len"]].decode()
        assert table[row["name_off"] + row["name_len"]] == 0
        assert (row["offset"] % 16, row["reserved"]) == (0, 0)
        chunks.append(row)
    parsed = Parsed(header, chunks, data)
    for row in chunks:
        content = parsed.content(row["fourcc"], row["name"])
        assert (len(content), blake3(content).digest()) == (row["ulen"], row["blake3"])
    return parsed


def check_control(parsed: Parsed) -> None:
    """IHSH: the digest of everything before the first payload, with zeros for the hashes of chunks."""
    stored = parsed.content(b"IHSH")
    assert len(stored) == 256
    size = len(stored.rstrip(b"\0"))
    found = next(value for end in range(size, 257) if (value := _try_unpack(stored[:end])) is not None)
    first = min(row["offset"] for row in parsed.chunks)
    assert (found["algo"], found["covered_ranges"]) == ("blake3-256", [[0, first]])
    control = bytearray(parsed.data[:first])
    for number in range(len(parsed.chunks)):
        at = parsed.header["toc"] + 16 + 80 * number + 48
        control[at : at + 32] = bytes(32)
    assert found["digest"] == blake3(bytes(control)).digest()


def _try_unpack(data: bytes) -> Any:
    try:
        return unpack(data)
    except msgspec.DecodeError:
        return None


def check_pages(parsed: Parsed, page: int) -> int:
    """PHSH: a digest for each page of its shard. Returns how many pages there are."""
    total = 0
    for row in parsed.chunks:
        if row["fourcc"] == b"WTSH" and row["length"]:
            held = parsed.content(b"WTSH", row["name"])
            found = unpack(parsed.content(b"PHSH", row["name"] + ".phsh"))
            assert (found["shard_name"], found["page_size"]) == (row["name"], page)
            want = [blake3(held[at : at + page]).digest() for at in range(0, len(held), page)]
            assert found["digests"] == want
            total += len(want)
    return total
