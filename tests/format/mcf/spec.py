"""MCF files made and decoded with struct and numpy alone, from the format's document: an oracle that shares no code."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

INT = {0x10: 8, 0x11: 4}
BLOCK = {0x20: 8, 0x21: 4}
SUPER = {0x30: 6, 0x31: 4, 0x32: 3, 0x33: 2}
METHODS = {"int8": 0x10, "int4": 0x11, "q8": 0x20, "q4": 0x21, "k6": 0x30, "k4": 0x31, "k3": 0x32, "k2": 0x33}


def align64(size: int) -> int:
    return (size + 63) & ~63


@dataclass
class Entry:
    """A tensor; ``offset`` and ``size`` replace what would be right."""

    name: str
    dtype: int
    dims: Sequence[int]
    payload: bytes
    offset: int | None = None
    size: int | None = None


@dataclass
class File:
    """Sections by type, in the order given; tensors add TensorData and TensorIndex behind them."""

    sections: Sequence[tuple[int, bytes]] = ()
    tensors: Sequence[Entry] = ()
    header: dict[str, int] = field(default_factory=dict)
    header_size: int = 40
    directory_first: bool = False

    def data(self) -> bytes:
        count = len(self.sections) + (2 if self.tensors else 0)
        start = self.header_size + (24 * count if self.directory_first else 0)
        body, places = bytearray(start), []
        for type, data in self.sections:
            body += bytes(-len(body) % 8)
            places.append((type, 1, len(body), len(data)))
            body += data
        if self.tensors:
            body += bytes(-len(body) % 8)
            at, offsets = len(body), []
            for entry in self.tensors:
                body += bytes(-len(body) % 64)
                offsets.append(len(body))
                body += entry.payload
            places.append((4, 1, at, len(body) - at))
            body += bytes(-len(body) % 8)
            index = self._index(offsets)
            places.append((3, 1, len(body), len(index)))
            body += index
        directory = b"".join(struct.pack("<IIQQ", *place) for place in places)
        if self.directory_first:
            at = self.header_size
            body[at : at + len(directory)] = directory
        else:
            body += bytes(-len(body) % 8)
            at = len(body)
            body += directory
        fields = {"major": 1, "minor": 1, "header_size": self.header_size, "count": len(places), "directory": at,
                  "file_size": len(body), "flags": 1, **self.header}  # fmt: skip
        body[:40] = struct.pack("<4sHHIIQQQ", b"MCF\0", *fields.values())
        return bytes(body)

    def _index(self, offsets: Sequence[int]) -> bytes:
        entries, dims, names = b"", b"", b""
        for entry, offset in zip(self.tensors, offsets, strict=True):
            place = offset if entry.offset is None else entry.offset
            size = len(entry.payload) if entry.size is None else entry.size
            name = entry.name.encode()
            entries += struct.pack(
                "<IIIIIIQQ", len(names), len(name), entry.dtype, len(entry.dims), len(dims) // 8, 0, place, size
            )
            dims += struct.pack(f"<{len(entry.dims)}Q", *entry.dims)
            names += name
        tables = (48, 48 + len(entries), 48 + len(entries) + len(dims), len(names))
        return struct.pack("<IIIIQQQQ", 1, 3, len(self.tensors), len(dims) // 8, *tables) + entries + dims + names


def record(
    tensor: int, method: int, domain: int = 0, block: int | None = None, super: int | None = None,
    low: float = -1.0, high: float = 1.0, reserved: bytes = bytes(6),
) -> bytes:  # fmt: skip
    block = (0 if method in INT else 32) if block is None else block
    super = (256 if method in SUPER else 0) if super is None else super
    return struct.pack("<IBBHH6sff", tensor, method, domain, block, super, reserved, low, high)


def quant_info(*records: bytes, version: int = 1, count: int | None = None) -> tuple[int, bytes]:
    return 2, struct.pack("<II", version, len(records) if count is None else count) + b"".join(records)


def unpack(data: bytes, bits: int, count: int) -> np.ndarray[Any, Any]:
    """Signed codes of some bits each, the lowest bit of a byte first."""
    stream = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[: count * bits].reshape(count, bits)
    codes = (stream.astype(np.int64) << np.arange(bits)).sum(1)
    return np.where(codes >= 1 << bits - 1, codes - (1 << bits), codes)


@dataclass
class Payload:
    """The regions of a q* or k* payload of a shape, as the document places them."""

    method: int
    shape: tuple[int, int]
    data: bytes

    def __post_init__(self) -> None:
        rows, cols = self.shape
        self.blocks = -(-cols // 32)
        self.supers = -(-self.blocks // 8)
        self.bits = {**BLOCK, **SUPER}[self.method]
        scales = 2 * rows * (self.blocks if self.method in BLOCK else self.supers)
        self.regions = [(0, scales)]
        if self.method in SUPER:
            self.regions.append((align64(scales), rows * self.blocks))
        at, size = self.regions[-1]
        self.regions.append((align64(at + size), rows * self.blocks * 4 * self.bits))
        assert len(self.data) == sum(self.regions[-1])

    def codes(self) -> np.ndarray[Any, Any]:
        at, size = self.regions[-1]
        count = self.shape[0] * self.blocks * 32
        return unpack(self.data[at : at + size], self.bits, count).reshape(self.shape[0], self.blocks, 32)

    def subs(self) -> np.ndarray[Any, Any]:
        at, size = self.regions[1]
        return np.frombuffer(self.data[at : at + size], np.uint8).reshape(self.shape[0], self.blocks)

    def gaps(self) -> bytes:
        """The bytes between the regions."""
        ends = [sum(region) for region in self.regions[:-1]]
        return b"".join(self.data[end : self.regions[n + 1][0]] for n, end in enumerate(ends))

    def decode(self) -> np.ndarray[Any, Any]:
        """w = S_block * q, where S_block = S_super * (u6 / 32) for k*; in float32."""
        rows, cols = self.shape
        scales = np.frombuffer(self.data[: self.regions[0][1]], "<f2").astype(np.float32).reshape(rows, -1)
        if self.method in SUPER:
            scales = np.repeat(scales, 8, 1)[:, : self.blocks] * (
                (self.subs() & 63).astype(np.float32) / np.float32(32)
            )
        values = scales[:, :, None] * self.codes().astype(np.float32)
        return values.reshape(rows, -1)[:, :cols] + np.float32(0)
