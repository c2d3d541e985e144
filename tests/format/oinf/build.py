"""OINF files made with struct alone, from the tables of the format's document: an oracle that shares no code."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

HEADER = {"version": 5, "flags": 9, "n_sizevars": 13, "n_metadata": 17, "n_tensors": 21, "reserved": 25}
HEADER |= {"offset_sizevars": 29, "offset_metadata": 37, "offset_tensors": 45, "offset_data": 53, "file_size": 61}


@dataclass
class Value:
    """A metadata entry. ``nbytes``, ``offset`` and ``flags`` replace what would be right."""

    key: str | bytes
    tag: int
    payload: bytes
    flags: int = 0
    nbytes: int | None = None
    offset: int | None = None


@dataclass
class Entry:
    """A tensor entry; without payload it is declared."""

    name: str | bytes
    tag: int
    dims: Sequence[int]
    payload: bytes | None = None
    flags: int | None = None
    nbytes: int | None = None
    offset: int | None = None


@dataclass
class File:
    """The three tables. ``data()`` are the bytes; ``padding`` then lists the bytes that only fill up to 8."""

    sizevars: Sequence[tuple[str | bytes, int]] = ()
    metadata: Sequence[Value] = ()
    tensors: Sequence[Entry] = ()
    version: int = 1
    padding: list[int] = field(default_factory=list)

    def data(self) -> bytes:
        sizes = b"".join(string(name) + struct.pack("<Q", value) for name, value in self.sizevars)
        after_sizes = 72 + len(sizes)
        after_metadata = after_sizes + sum(len(string(value.key)) + 24 for value in self.metadata)
        extra = 16 if self.version == 2 else 0
        end = after_metadata + sum(len(string(t.name)) + 28 + extra + 8 * len(t.dims) for t in self.tensors)
        start = end + -end % 8
        blobs, places = b"", []
        payloads = [value.payload for value in self.metadata] + [tensor.payload for tensor in self.tensors]
        for payload in payloads:
            places.append(start + len(blobs))
            blobs += pad(payload or b"")
        metadata = b"".join(map(self._value, self.metadata, places))
        tensors = b"".join(map(self._entry, self.tensors, places[len(self.metadata) :]))
        head = struct.pack(
            "<5s6I5Q3x", b"OINF\0", self.version, 0, len(self.sizevars), len(self.metadata), len(self.tensors), 0,
            72, after_sizes, after_metadata, start, start + len(blobs),
        )  # fmt: skip
        made = head + sizes + metadata + tensors + bytes(start - end) + blobs
        self.padding = [69, 70, 71, *range(end, start)]
        for payload, place in zip(payloads, places, strict=True):
            size = len(payload or b"")
            self.padding += range(place + size, place + size + -size % 8)
        return made

    def _value(self, value: Value, place: int) -> bytes:
        nbytes = len(value.payload) if value.nbytes is None else value.nbytes
        place = place if value.offset is None else value.offset
        return string(value.key) + struct.pack("<IIQQ", value.tag, value.flags, nbytes, place)

    def _entry(self, entry: Entry, place: int) -> bytes:
        has_data = entry.payload is not None
        flags = int(has_data) if entry.flags is None else entry.flags
        nbytes = len(entry.payload or b"") if entry.nbytes is None else entry.nbytes
        place = (place if has_data else 0) if entry.offset is None else entry.offset
        head = struct.pack(f"<III{len(entry.dims)}Q", entry.tag, len(entry.dims), flags, *entry.dims)
        return string(entry.name) + head + struct.pack("<QQ", nbytes, place) + bytes(16 if self.version == 2 else 0)


def pad(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return pad(struct.pack("<I", len(data)) + data)


def bitset(bits: str) -> bytes:
    data = bytearray(-(-len(bits) // 8))
    for index, bit in enumerate(bits):
        data[index // 8] |= int(bit) << index % 8
    return pad(struct.pack("<II", len(bits), len(data)) + data)


def ndarray(tag: int, dims: Sequence[int], elements: bytes) -> bytes:
    return pad(struct.pack(f"<II{len(dims)}Q", tag, len(dims), *dims) + elements)


def patch(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def header(data: bytes, **fields: int) -> bytes:
    """The file with other numbers in its header."""
    for name, value in fields.items():
        at = HEADER[name]
        data = patch(data, at, struct.pack("<I" if at < 29 else "<Q", value))
    return data
