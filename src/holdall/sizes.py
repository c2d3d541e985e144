"""The sizes of working buffers: as tuned for speed, or tiny for tests."""

from __future__ import annotations

import os

__all__ = ["TINY", "tuned"]

# A few bytes, rows or elements: a multiple of 8, so that packed elements end on a byte, and enough for two varints.
TINY = 24

_TINY = os.environ.get("HOLDALL_TINY_BUFFERS") == "1"


def tuned(size: int) -> int:
    """``size``, or a few bytes where HOLDALL_TINY_BUFFERS=1: then small files cross the ends of every buffer.

    For sizes that change only how fast the work is and how much memory it takes, never for limits.

    >>> tuned(4 << 20) in (4 << 20, TINY)
    True
    """
    return min(size, TINY) if _TINY else size
