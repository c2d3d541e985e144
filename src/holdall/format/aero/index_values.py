"""The values of TIDX entries that are decoded on demand: verifying decodes them all."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from holdall.base.buffer_sizes import buffer_size
from holdall.binary.documents import msgpack
from holdall.binary.documents.msgpack import DocumentError

if TYPE_CHECKING:
    from holdall.format.aero.tidx import Index

__all__ = ["check_values"]

_TOGETHER = buffer_size(1 << 16)  # bytes of entries that are decoded together


def check_values(index: Index, nesting: int) -> None:
    """Decode all values that are otherwise decoded on demand; the index fails for one that cannot be."""
    rows: list[int] = []
    entries: list[bytes] = []
    size = 0
    for row in index.valued.nonzero()[0].tolist():
        entry = index.entry_bytes(row)
        if size + len(entry) > _TOGETHER:
            _decode_together(index, rows, entries, nesting)
            rows, entries, size = [], [], 0
        rows.append(row)
        entries.append(entry)
        size += len(entry)
    _decode_together(index, rows, entries, nesting)


def _decode_together(index: Index, rows: list[int], entries: list[bytes], nesting: int) -> None:
    """Decode entries as one array, in a fraction of the time; one by one if that fails, to name the entry."""
    if len(rows) > 1:
        with suppress(DocumentError):
            msgpack.decode(msgpack.encode_array_head(len(entries)) + b"".join(entries), depth=nesting + 1)
            return
    for row in rows:
        index.read_stated(row)
