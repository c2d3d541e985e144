"""Open files, always fewer than the system allows.

A :class:`Descriptor` is open while it is in use, and as long after that as there is room; one that was closed for the
room of others is opened again when it is needed, and then has to be the same file as before. So a process can have
more models open than it may have files.
"""

from __future__ import annotations

import errno
import mmap
import os
import resource
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar
from weakref import WeakSet

from holdall.check import SHORT, Rule
from holdall.errors import ClosedError, FormatError

__all__ = ["CHANGED", "Descriptor", "mapping", "with_room"]

CHANGED = Rule("core.changed", "the file is the one that was opened, and nobody has written to it since")

_SHARE = 4  # a quarter of what the process may have is for descriptors, another for maps: the rest is the caller's
_LEAST, _MOST = 8, 1024
_SPARE = 16  # of so many descriptors that may be open one is kept free

_T = TypeVar("_T")

# Reentrant: the collector may end a source in the middle of a line that holds the lock.
_lock = threading.RLock()
_open: dict[Descriptor, None] = {}  # in the order in which they were opened
_maps: WeakSet[mmap.mmap] = WeakSet()


class Descriptor:
    """One file. ``opener`` opens it now, and whenever it was closed to make room: ``with descriptor as number``.

    Reading takes no lock: it puts a pin in first and looks for the number then, and whoever closes takes the number
    away first and looks for pins then. So one of the two always sees the other.
    """

    __slots__ = ("_closed", "_fd", "_name", "_opener", "_pins", "_used", "status")

    def __init__(self, name: str, opener: Callable[[], int]) -> None:
        self._name = name
        self._opener = opener
        self._pins: list[None] = []  # one for each read that is under way
        self._used = True  # since room was last made
        self._closed = False
        self._fd: int | None = with_room(name, opener)
        self.status = _status(self._fd, name)  # as it was when it was first opened
        with _lock:
            _open[self] = None
        _make_room(_share())

    def __enter__(self) -> int:
        self._pins.append(None)
        fd = self._fd
        if fd is None:
            try:
                fd = self._open_again()
            except BaseException:
                self._pins.pop()
                raise
        self._used = True
        return fd

    def __exit__(self, *error: object) -> None:
        self._pins.pop()
        if self._closed:
            self._let_go()

    def check(self, fd: int) -> None:
        """Raise when somebody has written to the file, which is open as ``fd``."""
        now, then = _status(fd, self._name), self.status
        if now.st_mtime_ns == then.st_mtime_ns and now.st_size == then.st_size:
            return
        if now.st_size < then.st_size:
            message = f"{self._name}: ended {then.st_size - now.st_size} bytes early: it was cut while open"
            raise FormatError(SHORT.id, now.st_size, message)
        raise FormatError(CHANGED.id, None, f"{self._name}: was written to while open; open it again")

    def close(self) -> None:
        """Close it for good: at once, or when the last read that is under way has ended."""
        self._closed = True
        self._let_go()

    def _open_again(self) -> int:
        """The number after opening the file again; raises when it is not the same file any more."""
        if self._closed:
            raise ClosedError(f"{self._name}: is closed")
        fd = with_room(self._name, self._opener)
        now, then = _status(fd, self._name), self.status
        if (now.st_dev, now.st_ino) != (then.st_dev, then.st_ino):
            os.close(fd)
            raise FormatError(CHANGED.id, None, f"{self._name}: another file has taken its place since it was opened")
        with _lock:
            if self._fd is None:
                self._fd = fd
                _open[self] = None
            else:  # another thread was faster
                os.close(fd)
                fd = self._fd
        _make_room(_share())
        return fd

    def _let_go(self) -> None:
        """Close the file, unless somebody is reading it."""
        with _lock:
            fd, self._fd = self._fd, None
            if self._pins:
                self._fd = fd
            elif fd is not None:
                del _open[self]
                with suppress(OSError):  # what was read was read
                    os.close(fd)


def _status(fd: int, name: str) -> os.stat_result:
    try:
        return os.fstat(fd)
    except OSError as error:  # a server that has forgotten the file, for one
        raise OSError(error.errno, error.strerror, name) from error


def with_room(name: str, opener: Callable[[], _T]) -> _T:
    """What ``opener`` opens; where the process has too many files open, idle ones are closed for it."""
    try:
        return opener()
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
    _make_room(0)
    try:
        return opener()
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        text = f"too many files are open: this process may have {allowed} (ulimit -n)"
        raise OSError(error.errno, text, name) from None


def mapping(fd: int, size: int) -> mmap.mmap | None:
    """A read-only map of a file; None where there is no room for another, or its file system has none.

    Before Python 3.13 every map holds a descriptor of its own.
    """
    try:
        if sys.version_info >= (3, 13):
            return mmap.mmap(fd, size, access=mmap.ACCESS_READ, trackfd=False)
        with _lock:
            if len(_maps) >= _share():
                return None
            made = mmap.mmap(fd, size, access=mmap.ACCESS_READ)
            _maps.add(made)
            return made
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENODEV):
            return None
        raise


def _share() -> int:
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if allowed < 0 else min(max(allowed // _SHARE, _LEAST), _MOST)


def _make_room(most: int) -> None:
    """Where more than ``most`` are open, close descriptors, those unused for long first, unless they are in use.

    A few more are closed than have to be, so that this is not done for every file.
    """
    if len(_open) <= most:
        return
    most -= most // _SPARE
    with _lock:
        there = list(_open)  # a copy: the collector may close some of them on the way
        for descriptor in sorted(there, key=lambda each: each._used):
            descriptor._let_go()
            if len(_open) <= most:
                break
        for descriptor in there:
            descriptor._used = False


def _after_fork() -> None:
    """The child has none of its parent's threads: nobody holds the lock."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
