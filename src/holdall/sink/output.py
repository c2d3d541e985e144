"""An open file that is being written: its system calls, each carried through, each failure told of a name."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from functools import partial

from holdall.source.descriptors import with_room

__all__ = ["NEW", "Output", "blamed", "opened"]

NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC  # a file that nobody else has made

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)  # what another way of writing would meet as well


class Output:
    """One file, written at any place. ``name`` is what people know it as: errors speak of it, not of ``fd``."""

    def __init__(self, fd: int, name: str | os.PathLike[str]) -> None:
        self.fd = fd
        self.name = os.fspath(name)

    def set_mode(self, mode: int) -> None:
        """Give the file these permissions, if it has others."""
        try:
            if stat.S_IMODE(os.fstat(self.fd).st_mode) != mode:
                os.fchmod(self.fd, mode)
        except OSError as error:
            raise blamed(error, self.name) from error

    def write(self, data: memoryview, at: int) -> None:
        """Write all of ``data`` at ``at``, in as many calls as the system takes for it."""
        try:
            while data:
                written = os.pwrite(self.fd, data, at)
                if not written:
                    raise OSError(errno.EIO, "the file took no more bytes")
                data, at = data[written:], at + written
        except OSError as error:
            raise blamed(error, self.name) from error

    def copy(self, source: int, offset: int, size: int, at: int) -> int:
        """Let the kernel move up to ``size`` bytes from the file ``source``; 0 where this pair of files cannot."""
        try:
            return os.copy_file_range(source, self.fd, size, offset, at)
        except OSError as error:
            if error.errno in _FULL:
                raise blamed(error, self.name) from error
            return 0

    def read_into(self, buffer: memoryview, at: int) -> int:
        """Read back what was written; at least one byte."""
        try:
            got = os.preadv(self.fd, [buffer], at)
            if not got:
                raise OSError(errno.EIO, "the file being written could not be read back")
            return got
        except OSError as error:
            raise blamed(error, self.name) from error

    def finish(self, fsync: bool) -> int:
        """Hear of every failure that writing still owes, with ``fsync`` those of the disk too; returns the size."""
        try:
            if fsync:
                os.fsync(self.fd)
            os.close(
                with_room(self.name, partial(os.dup, self.fd))
            )  # network file systems say at a close that there was no room
            return os.fstat(self.fd).st_size
        except OSError as error:
            raise blamed(error, self.name) from error

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *problem: object) -> None:
        with contextlib.suppress(OSError):  # there is none that finish() has not heard of
            os.close(self.fd)


def opened(path: str | os.PathLike[str], flags: int) -> int:
    """``os.open``, for which sources that are not in use are closed where the process has too many files open."""
    return with_room(os.fspath(path), partial(os.open, path, flags, 0o666))


def blamed(error: OSError, name: str | os.PathLike[str]) -> OSError:
    """``error`` as one of ``name``, the name that people know."""
    return OSError(error.errno, error.strerror, os.fspath(name))
