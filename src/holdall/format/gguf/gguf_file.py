"""One GGUF file: header, metadata and tensor table. No payload is read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.base.check import Check
from holdall.format.gguf import rules
from holdall.format.gguf.growing_front import GrowingFront
from holdall.format.gguf.layout import (
    ALIGNMENT,
    DEFAULT_ALIGNMENT,
    HEADER,
    MAGIC,
    MAX_KEY,
    TAG_OF,
    TENSOR,
)
from holdall.format.gguf.tensor_table import Table, read_table
from holdall.format.gguf.values import Located, Scalar, Text, decode, locate
from holdall.model.metadata import Entry
from holdall.source.ledger import Ledger

if TYPE_CHECKING:
    from holdall.source import Source

__all__ = ["GgufFile", "read_file"]

# Elements of an array, and bytes of a string, up to which a value is decoded when the file is opened. Larger ones,
# such as vocabularies, are decoded when they are asked for.
_EAGER = buffer_size(4096)
_EAGER_BYTES = buffer_size(1 << 20)
_KEY = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")


@dataclass(slots=True)
class GgufFile:
    """One file: a whole model, or a part of a split one. ``known`` are those of the ``located`` entries that were small
    enough to be decoded at open."""

    source: Source
    version: int
    data: bytearray
    located: dict[str, Located]
    known: dict[str, Any]
    alignment: int
    table: Table | None
    count: int  # the number of tensors that the header states

    def entries(self, check: Check) -> list[Entry]:
        """All metadata entries, decoded."""
        found = []
        for key, value in self.located.items():
            with check.scope():
                held = self.known[key] if key in self.known else decode(value, self.data, key, check)
                found.append(Entry(key, held, value.kind))
        return found

    def prove(self, check: Check) -> None:
        """Check the entries that are not decoded yet: decode each, and drop the value."""
        for key, value in self.located.items():
            if key not in self.known:
                with check.scope():
                    decode(value, self.data, key, check)


def read_file(source: Source, check: Check, ledger: Ledger) -> GgufFile:
    """Header, metadata and tensor table of the file ``source``."""
    header = _read_header(source, check, ledger)
    front = GrowingFront(source, check)
    located, bounds = _locate_entries(front, header.n_kv, check)
    edges = np.array(bounds, np.uint64)
    ledger.payloads("metadata", edges[:-1], edges[1:] - edges[:-1], list(located).__getitem__)
    known: dict[str, Any] = {}
    with check.together():
        for key, value in located.items():
            with check.scope():
                if _is_small(value):
                    known[key] = decode(value, front.data, key, check)
        with check.scope():
            alignment = _find_alignment(located, known, check)
    ledger.pad_to = alignment
    table = None
    with check.scope():
        table = read_table(front, header.n_tensors, bounds[-1], alignment, check, ledger)
    return GgufFile(source, header.version, front.data, located, known, alignment, table, header.n_tensors)


def _is_small(value: Located) -> bool:
    match value:
        case Scalar():
            return True
        case Text(_, size):
            return size <= _EAGER_BYTES
        case _:
            return value.count <= _EAGER


def _read_header(source: Source, check: Check, ledger: Ledger) -> SimpleNamespace:
    """Read the header, whose counts must fit the file."""
    size = source.size
    head = source.read(0, min(size, HEADER.size))
    if head[:4] != MAGIC[: len(head)]:
        check.fail(rules.MAGIC, 0, f"gguf: the file begins with {head[:4]!r}, not with {MAGIC!r}")
    version = int.from_bytes(head[4:8], "little")
    if len(head) >= 8 and version == 1:
        check.fail(
            rules.VERSION_1, 4, "gguf: version 1 is of 2023 and was given up: convert it with tools of that time"
        )
    if len(head) >= 8 and version and not version & 0xFFFF:
        swapped = int.from_bytes(head[4:8], "big")
        check.fail(rules.BIG_ENDIAN, 4, f"gguf: this is a big-endian file of version {swapped}; only little-endian "
                   "ones are read")  # fmt: skip
    if size < HEADER.size:
        check.fail(rules.SIZE, size, f"gguf: {size} bytes cannot hold the header of {HEADER.size}")
    ledger.record(HEADER, 0)
    header = HEADER.read(head, 0)
    if version not in (2, 3):
        check.fail(rules.VERSION, 4, f"gguf: version {version} is unknown; 2 and 3 are known")
    check.limit("metadata_entries", header.n_kv, HEADER.offset_of("n_kv"), "gguf: metadata entries")
    check.limit("tensors", header.n_tensors, HEADER.offset_of("n_tensors"), "gguf: tensors")
    least = header.n_kv * 13 + header.n_tensors * TENSOR.min_size
    if least > size - HEADER.size:
        message = f"gguf: {header.n_kv} metadata entries and {header.n_tensors} tensors take at least {least} bytes, "
        check.fail(rules.COUNTS, 8, f"{message}{size - HEADER.size} follow the header")
    return header


def _locate_entries(front: GrowingFront, count: int, check: Check) -> tuple[dict[str, Located], list[int]]:
    """Return every entry by key, and the bytes at which each begins and the last one ends."""
    located: dict[str, Located] = {}
    at = HEADER.size
    bounds = [at]
    for number in range(count):
        start = at
        what = f"the key of metadata entry {number}"
        front.reach(at + 8, at, what)
        size = int.from_bytes(front.data[at : at + 8], "little")
        check.limit("name_bytes", size if size <= front.size else 0, at, f"gguf: {what}")
        front.reach(at + 8 + size + 4, at, what)
        try:
            key = front.data[at + 8 : at + 8 + size].decode()
        except UnicodeDecodeError:
            check.fail(rules.KEY_UTF8, at + 8, f"gguf: {what} is not UTF-8")
        if not key:
            check.fail(rules.KEY_EMPTY, at, f"gguf: {what} is empty")
        if key in located:
            check.fail(rules.KEY_DUPLICATE, at, f"gguf: two metadata entries are called {key!r}")
        at += 8 + size
        tag = int.from_bytes(front.data[at : at + 4], "little")
        located[key], at = locate(front, tag, at + 4, key, check)
        bounds.append(at)
        if check.wants("strict"):
            if size > MAX_KEY:
                check.note(rules.KEY_LENGTH, start, f"gguf: {what} has {size} bytes, more than {MAX_KEY}")
            if not _KEY.fullmatch(key):
                check.note(rules.KEY_CHARSET, start, f"gguf: the key {key[:80]!r} is not words of a-z 0-9 _ - and dots")
    return located, bounds


def _find_alignment(located: dict[str, Located], known: dict[str, Any], check: Check) -> int:
    found = located.get(ALIGNMENT)
    if found is None:
        return DEFAULT_ALIGNMENT
    if not isinstance(found, Scalar) or found.tag != TAG_OF["u32"]:
        check.fail(rules.ALIGNMENT_TYPE, None, f"gguf: {ALIGNMENT} is stored as {found.kind}, not as u32")
    alignment: int = known[ALIGNMENT]
    if alignment < 1 or alignment & (alignment - 1):
        check.fail(rules.ALIGNMENT, found.at, f"gguf: {ALIGNMENT} is {alignment}, not a power of two")
    if alignment % 8:
        check.note(rules.ALIGNMENT_8, found.at, f"gguf: {ALIGNMENT} is {alignment}, not a multiple of 8")
    return alignment
