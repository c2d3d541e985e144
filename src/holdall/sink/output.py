"""An open file that is being written: its system calls, each carried through, each failure told of a name."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from functools import partial

from holdall.sizes import tuned
from holdall.source.descriptors import with_room

__all__ = ["NEW", "Output", "blamed", "opened"]

NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC  # a file that nobody else has made

_STRETCH = tuned(16 << 20)  # written bytes that are given to the disk at a time

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)  # what another way of writing would meet as well


class Output:
    """One file, written at any place. ``name`` is what people know it as: errors speak of it, not of ``fd``.

    With ``fsync`` it is on the disk when :meth:`finish` returns. The disk starts on each stretch as soon as it is
    written, so that in the end there is little left to wait for.
    """

    def __init__(self, fd: int, name: str | os.PathLike[str], fsync: bool) -> None:
        self.fd = fd
        self.name = os.fspath(name)
        self._fsync = fsync
        self._given = 0  # where the next stretch for the disk begins

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
            self._give(at)
        except OSError as error:
            raise blamed(error, self.name) from error

    def copy(self, source: int, offset: int, size: int, at: int) -> int:
        """Let the kernel move up to ``size`` bytes from the file ``source``; 0 where this pair of files cannot."""
        try:
            moved = os.copy_file_range(source, self.fd, size, offset, at)
            self._give(at + moved)
            return moved
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

    def _give(self, reached: int) -> None:
        """Have the disk start on what was written: the kernel does so when told that nobody needs it in memory."""
        if self._fsync and reached - self._given >= _STRETCH:
            with contextlib.suppress(OSError):  # it is only advice
                os.posix_fadvise(self.fd, self._given, reached - self._given, os.POSIX_FADV_DONTNEED)
            self._given = reached

    def finish(self) -> int:
        """Hear of every failure that writing still owes, with ``fsync`` those of the disk too; returns the size."""
        try:
            if self._fsync:
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
