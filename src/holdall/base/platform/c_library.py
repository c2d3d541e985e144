"""What functions in C can do and Python does not offer: renames of the C library, and memory that is not set."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

__all__ = ["new_memory", "rename_by"]


def rename_by(function: str, *arguments: int | bytes, target: Path) -> bool:
    """Rename to ``target`` by ``function``; False where the C library or the file system has no such call."""
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), function, None)
    if call is None:
        return False
    if call(*arguments) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), os.fspath(target))


def new_memory(size: int) -> bytearray:
    """Make ``size`` bytes of any content, whose pages come when they are first touched.

    ``bytearray(size)`` sets every byte while it has the interpreter lock: on new pages that takes longer than most work
    on them, and no other thread works meanwhile.

    >>> len(new_memory(3))
    3
    """
    return _find_maker()(size)


@cache
def _find_maker() -> Callable[[int], bytearray]:
    """Find the function of CPython that sets no bytes; where there is none, bytearray itself."""
    try:
        from ctypes import c_char_p, c_ssize_t, py_object, pythonapi

        make = pythonapi.PyByteArray_FromStringAndSize
    except (ImportError, AttributeError):
        return bytearray
    make.restype, make.argtypes = py_object, [c_char_p, c_ssize_t]
    return lambda size: make(None, size)
