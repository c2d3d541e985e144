"""Descriptors of files that are read, always fewer than the system allows.

A :class:`Descriptor` is open while it is in use, and after that until others need its room. One that was closed is
opened again when it is needed, and must then be the same file as before. So a process can have more models open than
it may have files.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar
from weakref import WeakSet

from holdall.base import platform
from holdall.base.check import SHORT, Rule
from holdall.base.locks import make_lock
from holdall.errors import ClosedError, FormatError

__all__ = ["CHANGED", "Descriptor", "map_file", "release_files", "with_room"]

CHANGED = Rule("core.changed", "the file is the one that was opened, and was not written to since")

_SHARE = 4  # a quarter of the files that may be open is for descriptors, another for maps; the rest is for the caller
_LEAST, _MOST = 8, 1024
_SPARE = 16  # when room is made, close a sixteenth more than needed, so that the next open need not

_T = TypeVar("_T")

# The garbage collector may close a source in a thread that holds the lock; it is reentrant.
_lock = make_lock()
_open: dict[Descriptor, None] = {}  # in the order in which they were opened
_maps: WeakSet[mmap.mmap] = WeakSet()


class Descriptor:
    """One file, read as ``with descriptor.pin(): fd = descriptor.reach()``, and then ``descriptor.settle()``.

    ``opener`` opens it, and again after it was closed for room. Reading takes no lock. A reader pins, then loads the
    fd; a closer clears the fd, then looks for pins. So at least one of the two notices the other.
    """

    __slots__ = ("_anchor", "_closed", "_fd", "_name", "_opener", "_used", "status")

    def __init__(self, name: str, opener: Callable[[], int]) -> None:
        self._name = name
        self._opener = opener
        self._anchor = bytearray()
        self._used = True  # whether it was used since room was made the last time
        self._closed = False
        self._fd: int | None = None

    def open(self) -> None:
        """Open the file for the first time. The owner has stored the descriptor by now, and closes it if this fails."""
        self._fd = with_room(self._name, self._opener)
        self.status = _status(self._fd, self._name)  # the status when it was first opened
        with _lock:  # last: from now on other threads may close it
            _open[self] = None
        _make_room(_share())

    def pin(self) -> memoryview:
        """Keep the file open while the result exists; use it as ``with descriptor.pin():``.

        A view pins the array that it is of, and ends with the last reference to it: an interrupt leaves none behind.
        """
        return memoryview(self._anchor)

    def reach(self) -> int:
        """The file descriptor, for one who has pinned it. Opens the file again if it was closed for room."""
        fd = self._fd
        self._used = True
        return self._reopen() if fd is None else fd

    def settle(self) -> None:
        """Close the file after a read during which it was closed."""
        if self._closed:
            self._close_unpinned()

    def check(self, fd: int) -> None:
        """Raise if the file, which is open as ``fd``, was written to since it was opened."""
        now, then = _status(fd, self._name), self.status
        if now.st_mtime_ns == then.st_mtime_ns and now.st_size == then.st_size:
            return
        if now.st_size < then.st_size:
            message = f"{self._name}: ended {then.st_size - now.st_size} bytes early: it was cut while open"
            raise FormatError(SHORT.id, now.st_size, message)
        raise FormatError(CHANGED.id, None, f"{self._name}: was written to while open; open it again")

    def close(self) -> None:
        """Close it for good, now or when the last read that is under way has ended."""
        self._closed = True
        self._close_unpinned()

    def _reopen(self) -> int:
        """Open the file again; raises if it is not the same file any more."""
        if self._closed:
            raise ClosedError(f"{self._name}: is closed")
        opened = with_room(self._name, self._opener)
        try:
            now, then = _status(opened, self._name), self.status
            if (now.st_dev, now.st_ino) != (then.st_dev, then.st_ino):
                message = f"{self._name}: another file has taken its place since it was opened"
                raise FormatError(CHANGED.id, None, message)
            with _lock:
                if self._fd is None:  # no other thread was faster
                    self._fd, opened = opened, -1
                    _open[self] = None
                fd = self._fd
        finally:
            if opened >= 0:
                os.close(opened)
        _make_room(_share())
        return fd

    def _close_unpinned(self) -> None:
        """Close the file unless a read is under way."""
        with _lock:
            fd, self._fd = self._fd, None
            try:
                self._anchor.append(0)  # refused while there is a view of it
            except BaseException as error:  # also an interrupt: no descriptor is lost
                self._fd = fd
                if not isinstance(error, BufferError):
                    raise
                return
            if fd is not None:
                _open.pop(self, None)
                try:
                    os.close(fd)
                except OSError:  # a failing close does not change what was read
                    return


def _status(fd: int, name: str) -> os.stat_result:
    try:
        return os.fstat(fd)
    except OSError as error:  # a network file system may have lost the file
        raise OSError(error.errno, error.strerror, name) from error


def with_room(name: str, opener: Callable[[], _T]) -> _T:
    """Call ``opener``; if the process has too many files open, close idle descriptors and call it again."""
    try:
        return opener()
    except OSError as error:
        if error.errno not in platform.TOO_MANY_FILES:
            raise
    _make_room(0)
    try:
        return opener()
    except OSError as error:
        if error.errno not in platform.TOO_MANY_FILES:
            raise
        text = f"too many files are open: this process may have {platform.max_open_files()} (ulimit -n)"
        raise OSError(error.errno, text, name) from None


def map_file(fd: int, size: int) -> mmap.mmap | None:
    """Map a file read-only; None if there is no room for another map, or its file system has no maps."""
    try:
        if not platform.MAPS_HOLD_FILES:
            return platform.map_to_read(fd, size)
        with _lock:
            if len(_maps) >= _share():
                return None
            made = platform.map_to_read(fd, size)
            _maps.add(made)
            return made
    except OSError as error:
        if error.errno in platform.NO_MAPS:
            return None
        raise


def release_files() -> None:
    """Close all descriptors that no read uses and all maps that no array uses, for systems where open files block."""
    _make_room(0)
    with _lock:
        for each in list(_maps):
            with suppress(BufferError):
                each.close()


def _share() -> int:
    allowed = platform.max_open_files()
    return _MOST if allowed is None else min(max(allowed // _SHARE, _LEAST), _MOST)


def _make_room(most: int) -> None:
    """If more than ``most`` descriptors are open, close some that are not in use, the longest unused first.

    A few more are closed than must be, so that not every file that is opened makes room again.
    """
    if len(_open) <= most:
        return
    most -= most // _SPARE
    with _lock:
        there = list(_open)  # a copy: the garbage collector may close some of them during the loop
        for descriptor in sorted(there, key=lambda each: each._used):
            descriptor._close_unpinned()
            if len(_open) <= most:
                break
        for descriptor in there:
            descriptor._used = False
