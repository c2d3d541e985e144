"""Reads EMBD in whichever layout the file has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdall.base.check import Check
from holdall.format.embd import indexed, rules, sequential
from holdall.format.embd.layout import END_MAGIC, HEADER, KNOWN_FLAGS, MAGIC
from holdall.model.model import Model
from holdall.source.ledger import Ledger

if TYPE_CHECKING:
    from holdall.source import Source

__all__ = ["read"]


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """Read the model in ``source``, whichever layout it has."""
    size = source.size
    head = source.read(0, min(size, HEADER.size))
    if size < 4 or head[:4] != MAGIC:
        check.fail(rules.MAGIC, 0, f"embd: the file begins with {head[:4]!r}, not {MAGIC!r}")
    if _is_whole(source, head):
        return indexed.read(source, check, ledger)
    # Bytes 4-7 are the same in every layout, so the file is sequential if a walk over its tensors reaches the end.
    found = sequential.walk_file(source, check.limits)
    if found.breach is None:
        return sequential.read(source, found, check, ledger)
    if size >= 16:
        flags, offset = (int.from_bytes(head[at : at + 4], "little") for at in (8, 12))
        if offset == 16 + 100 * flags <= size:
            message = f"embd: {source.name}: the draft layout of 100-byte entries, which no program writes or reads"
            check.fail(rules.DRAFT, 12, message)
        if flags <= KNOWN_FLAGS and (offset == HEADER.size or HEADER.size < offset < size):
            return indexed.read(source, check, ledger)
    return sequential.read(source, found, check, ledger)


def _is_whole(source: Source, head: bytes) -> bool:
    """Whether the file has a 64-byte header that states its size, and a footer."""
    size = source.size
    if size < indexed.SMALLEST:
        return False
    at = HEADER.offset_of("total_file_size")
    return int.from_bytes(head[at : at + 8], "little") == size and source.read(size - 8, 4) == END_MAGIC
