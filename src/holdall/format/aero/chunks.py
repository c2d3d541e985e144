"""Chunks: the rows of the table of contents, and the content of a chunk, proven by its hash."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.check import Check
from holdall.binary.compression import FrameError, expand, expand_hashed
from holdall.format.aero import rules
from holdall.format.aero.layout import COMPRESSED, MAX_METADATA, WTSH

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["Chunk", "Chunks", "fourccs", "iter_content", "read_content"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """One row of the table of contents."""

    fourcc: str
    name: str
    flags: int
    offset: int
    length: int  # the bytes that the chunk takes in the file
    ulen: int  # uncompressed
    blake3: bytes  # the hash of the uncompressed bytes
    index: int  # the row in the table of contents

    @property
    def compressed(self) -> bool:
        """Whether the stored bytes are a zstd frame."""
        return bool(self.flags & COMPRESSED)

    @property
    def what(self) -> str:
        """The chunk's description in messages."""
        return f"chunk {self.index} {self.fourcc} {self.name!r}"


class Chunks(Sequence[Chunk]):
    """The table of contents; a :class:`Chunk` is made only when it is asked for."""

    def __init__(self, table: NDArray[np.void], names: list[str]) -> None:
        self.table = table
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, row: int) -> Chunk:  # type: ignore[override]  # rows only, no slices
        fourcc, flags, offset, length, ulen, _, _, _, digest = self.table[row].tolist()
        row = row % len(self)
        return Chunk(fourcc.decode("latin-1"), self.names[row], flags, offset, length, ulen, digest, row)

    def rows(self, fourcc: bytes) -> list[int]:
        """The rows of one kind of chunk, in order."""
        code = np.frombuffer(fourcc, "<u4")[0]
        found: list[int] = (fourccs(self.table) == code).nonzero()[0].tolist()
        return found

    def all(self, fourcc: bytes) -> list[Chunk]:
        """The chunks of one kind, in order."""
        return [self[row] for row in self.rows(fourcc)]

    def first(self, fourcc: bytes) -> Chunk | None:
        """The first chunk of a kind; None if there is none."""
        found = self.rows(fourcc)
        return self[found[0]] if found else None


def fourccs(table: NDArray[np.void]) -> NDArray[np.uint32]:
    """The fourcc of every entry as a number, which can be compared as a column."""
    return np.ascontiguousarray(table["fourcc"]).view("<u4")


def read_content(source: Source, chunk: Chunk, check: Check, *, weighed: bool = False) -> bytes:
    """Read the uncompressed bytes of a metadata chunk, proven by their BLAKE3.

    ``weighed`` says that the caller has added what they take to the expansion of the file: then they may be any number
    of times as many as the compressed ones.
    """
    _check_size(chunk, check)
    if chunk.compressed and not weighed:
        check.limit_growth(chunk.length, chunk.ulen, chunk.offset, f"aero: {chunk.what}")
    try:
        if chunk.compressed and chunk.length <= chunk.ulen:  # else most of it may be no frame, and is not held
            stored = source.read(chunk.offset, chunk.length)
            return expand_hashed(lambda: [stored], chunk.ulen, chunk.blake3)
        if chunk.compressed:
            return expand_hashed(lambda: source.chunks(chunk.offset, chunk.length), chunk.ulen, chunk.blake3)
    except FrameError as error:
        rule = rules.HASH if "BLAKE3" in str(error) else rules.ZSTD
        check.fail(rule, chunk.offset, f"aero: {chunk.what}: {error}")
    from blake3 import blake3

    data = source.read(chunk.offset, chunk.length)
    found = blake3(data).digest()
    if found != chunk.blake3:
        message = f"aero: {chunk.what}: its BLAKE3 is {found.hex()}, the TOC says {chunk.blake3.hex()}"
        check.fail(rules.HASH, chunk.offset, message)
    return data


def iter_content(source: Source, chunk: Chunk, check: Check) -> Iterator[bytes | memoryview]:
    """The uncompressed bytes of any chunk, piece by piece; the caller checks their hash."""
    stored: Iterable[memoryview] = source.chunks(chunk.offset, chunk.length)
    if not chunk.compressed:
        yield from stored
        return
    _check_size(chunk, check)
    check.limit_growth(chunk.length, chunk.ulen, chunk.offset, f"aero: {chunk.what}")
    try:
        yield from expand(stored, chunk.ulen)
    except FrameError as error:
        check.fail(rules.ZSTD, chunk.offset, f"aero: {chunk.what}: {error}")


def _check_size(chunk: Chunk, check: Check) -> None:
    """Fail if the stated size of the uncompressed chunk is above the format's bound or the limits."""
    if chunk.ulen > MAX_METADATA and chunk.fourcc != WTSH.decode():
        message = f"aero: {chunk.what}: {chunk.ulen} uncompressed bytes are above the {MAX_METADATA} of the format"
        check.fail(rules.ULEN, chunk.offset, message)
    check.limit("decompressed_bytes", chunk.ulen, chunk.offset, f"aero: {chunk.what}")
