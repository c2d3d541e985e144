"""Opening files so that ctrl-C cannot lose a descriptor.

Python looks for signals after each call of a C function. After a plain ``fd = os.open(...)`` that is before the number
is stored, and an interrupt would lose it for good. So the callers keep a rule: descriptors come from here, and only
Python functions hand them on, never a ``partial``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

__all__ = ["copy_descriptor", "keep_descriptor", "open_descriptor"]


def open_descriptor(path: str | os.PathLike[str], flags: int, mode: int = 0o777) -> int:
    """Open a file as ``os.open`` does. An interrupt that comes with it closes the descriptor again."""
    return keep_descriptor(map(os.open, (path,), (flags,), (mode,)))


def copy_descriptor(fd: int) -> int:
    """Make another descriptor of an open file, as ``os.dup`` does; an interrupt closes it again."""
    return keep_descriptor(map(os.dup, (fd,)))


def keep_descriptor(made: Iterable[int]) -> int:
    """Return the descriptor that a ``map`` of a C function makes: making and storing it is one step."""
    held: list[int] = []
    try:
        held.extend(made)
        return held[0]
    except BaseException:
        for fd in held:
            os.close(fd)
        raise
