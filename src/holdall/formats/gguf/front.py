"""The front of a file whose header does not say how long it is: read further as the reader gets there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdall.formats.gguf import rules
from holdall.sizes import tuned

if TYPE_CHECKING:
    from holdall.check import Check
    from holdall.layout import Columns, Layout
    from holdall.source import Source

__all__ = ["Front"]

_FIRST = tuned(256 << 10)  # bytes of the first read: enough for most tables without a vocabulary
_GROWTH = 4


class Front:
    """``data`` is the file from its first byte on, as far as it was needed."""

    def __init__(self, source: Source, check: Check) -> None:
        self.source = source
        self.check = check
        self.size = source.size
        self.data = bytearray()

    def reach(self, end: int, at: int, what: str) -> None:
        """Have the bytes up to ``end``; ``what`` begins at byte ``at`` and is refused when the file is shorter."""
        if end <= len(self.data):
            return
        if end > self.size:
            self.check.fail(rules.END, at, f"gguf: {what} runs past the end of the file at {self.size}")
        self.check.limit("index_bytes", end, at, "gguf: bytes of header")
        held = len(self.data)
        wanted = min(self.size, max(end, min(max(_FIRST, _GROWTH * held), self.check.limits.index_bytes)))
        grown = bytearray(wanted)  # read in place: a vocabulary of many megabytes is in memory once
        grown[:held] = self.data
        self.source.read_into(held, memoryview(grown)[held:])
        self.data = grown

    def scan(self, layout: Layout, start: int, count: int, what: str, longest: int) -> Columns:
        """``count`` entries from ``start`` on, reading as far as they go.

        It comes back with fewer where an entry asks for more than the file holds, for a string above ``longest``
        bytes, or for more dimensions than the limits allow.
        """
        self.reach(start + count * layout.min_size, start, what)
        while True:
            columns = layout.scan(self.data, start, len(self.data), count)
            needed = self._needed(columns, longest)
            if needed is None or needed > self.size:
                return columns
            self.reach(needed, columns.end, what)

    def _needed(self, columns: Columns, longest: int) -> int | None:
        """The byte up to which to read so that the entry that did not fit can go on; None when there is no use."""
        if columns.failed is None:
            return None
        at, held = columns.end, len(self.data)
        field = columns.layout.fields[columns.failed]
        if field.kind == "text" and at + 8 <= held:
            length = int.from_bytes(self.data[at : at + 8], "little")
            return at + 8 + length if length <= longest else None
        if field.kind == "array":  # more dims than there can be are a breach, and the entries after them are read too
            count = int.from_bytes(self.data[at - 4 : at], "little")
            return at + 8 * count if count <= self.check.limits.rank else None
        return held + 1
