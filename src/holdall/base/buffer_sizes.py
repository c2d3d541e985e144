"""The sizes of working buffers: tuned for speed, or tiny for tests."""

from __future__ import annotations

import os

__all__ = ["TINY", "buffer_size"]

# A few bytes, rows or elements: a multiple of 8, so that packed elements end on a byte, and enough for two varints.
TINY = 24

_TINY = os.environ.get("HOLDALL_TINY_BUFFERS") == "1"


def buffer_size(size: int) -> int:
    """``size``, or a few bytes with HOLDALL_TINY_BUFFERS=1, so that small test files cross the end of every buffer.

    It is for sizes that change only speed and memory, never for limits.

    >>> buffer_size(4 << 20) in (4 << 20, TINY)
    True
    """
    return min(size, TINY) if _TINY else size
