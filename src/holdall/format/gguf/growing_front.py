"""The front of a file whose header does not state its length: it grows as the reader needs more bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdall.base.buffer_sizes import buffer_size
from holdall.format.gguf import rules

if TYPE_CHECKING:
    from holdall.base.check import Check
    from holdall.binary.layout import Columns, Layout
    from holdall.source import Source

__all__ = ["GrowingFront"]

_FIRST = buffer_size(256 << 10)  # bytes of the first read: most tables fit unless they hold a vocabulary
_GROWTH = 4


class GrowingFront:
    """``data`` holds the first bytes of the file, as many as were needed so far."""

    def __init__(self, source: Source, check: Check) -> None:
        self.source = source
        self.check = check
        self.size = source.size
        self.data = bytearray()

    def reach(self, end: int, at: int, what: str) -> None:
        """Read on until ``data`` has the bytes up to ``end``.

        If the file is shorter, ``what``, which begins at byte ``at``, breaks a rule.
        """
        if end <= len(self.data):
            return
        if end > self.size:
            self.check.fail(rules.END, at, f"gguf: {what} runs past the end of the file at {self.size}")
        self.check.limit("index_bytes", end, at, "gguf: bytes of header")
        held = len(self.data)
        wanted = min(self.size, max(end, min(max(_FIRST, _GROWTH * held), self.check.limits.index_bytes)))
        # Bytes are read in place, so that a vocabulary of many megabytes is in memory only once.
        grown = bytearray(wanted)
        grown[:held] = self.data
        self.source.read_into(held, memoryview(grown)[held:])
        self.data = grown

    def scan(self, layout: Layout, start: int, count: int, what: str, longest: int) -> Columns:
        """Scan ``count`` entries from ``start`` on, and read as far as they reach.

        The scan stops early at an entry that runs past the end of the file, has a string above ``longest`` bytes,
        or has more dimensions than the limits allow.
        """
        self.reach(start + count * layout.min_size, start, what)
        while True:
            columns = layout.scan(self.data, start, len(self.data), count)
            needed = self._find_needed(columns, longest)
            if needed is None or needed > self.size:
                return columns
            self.reach(needed, columns.end, what)

    def _find_needed(self, columns: Columns, longest: int) -> int | None:
        """Find the byte up to which to read so that the scan can go on; None if reading more would not help."""
        if columns.failed is None:
            return None
        at, held = columns.end, len(self.data)
        field = columns.layout.fields[columns.failed]
        if field.kind == "text" and at + 8 <= held:
            length = int.from_bytes(self.data[at : at + 8], "little")
            return at + 8 + length if length <= longest else None
        if field.kind == "array":
            count = int.from_bytes(self.data[at - 4 : at], "little")
            return at + 8 * count if count <= self.check.limits.rank else None
        return held + 1
