"""An open file that is being written: calls that the system cuts short are continued, and errors name the file."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from holdall.base import platform
from holdall.base.buffer_sizes import buffer_size
from holdall.source.descriptors import with_room

__all__ = ["Output", "rename_error"]

_STRETCH = buffer_size(16 << 20)  # written bytes that the disk starts on at a time


class Output:
    """One file, written at any offset. ``name`` is the name that the user knows, which errors state.

    With ``fsync`` it is on the disk when :meth:`finish` returns. The disk starts on each stretch as soon as it is
    written, so that little is left to wait for at the end.
    """

    def __init__(self, fd: int, name: str | os.PathLike[str], fsync: bool) -> None:
        self.fd = fd
        self.name = os.fspath(name)
        self._fsync = fsync
        self._started = 0  # the disk has started on the bytes before

    def set_mode(self, mode: int | None) -> None:
        """Set the permissions of the file, if it has others; None where the system sets them alone."""
        try:
            if mode is not None and stat.S_IMODE(os.fstat(self.fd).st_mode) != mode:
                platform.set_mode(self.fd, mode)
        except OSError as error:
            raise rename_error(error, self.name) from error

    def write(self, data: memoryview, at: int) -> None:
        """Write all of ``data`` at ``at``."""
        try:
            while data:
                written = platform.write_at(self.fd, data, at)
                if not written:
                    raise OSError(errno.EIO, "the file took no more bytes")
                data, at = data[written:], at + written
            self._start_disk(at)
        except OSError as error:
            raise rename_error(error, self.name) from error

    def copy(self, source: int, offset: int, size: int, at: int) -> int:
        """Have the kernel copy up to ``size`` bytes of the open file ``source``. Returns 0 if it cannot."""
        try:
            moved = platform.copy_range(source, offset, self.fd, at, size)
            self._start_disk(at + moved)
            return moved
        except OSError as error:
            if error.errno in platform.DISK_FAILURES:
                raise rename_error(error, self.name) from error
            return 0

    def read_into(self, buffer: memoryview, at: int) -> int:
        """Read back written bytes into ``buffer``. Returns how many, at least one."""
        try:
            got = platform.read_at(self.fd, buffer, at)
            if not got:
                raise OSError(errno.EIO, "the file being written could not be read back")
            return got
        except OSError as error:
            raise rename_error(error, self.name) from error

    def _start_disk(self, reached: int) -> None:
        """Have the disk start on what was written, if that is enough to be worth a call."""
        if self._fsync and reached - self._started >= _STRETCH:
            platform.start_writeback(self.fd, self._started, reached - self._started)
            self._started = reached

    def finish(self) -> int:
        """Raise errors that the system still holds back, with ``fsync`` those of the disk too. Returns the size."""
        try:
            if self._fsync:
                platform.sync_file(self.fd)
            # Network file systems report at a close that the disk is full.
            copy = with_room(self.name, lambda: platform.copy_descriptor(self.fd))
            os.close(copy)
            return os.fstat(self.fd).st_size
        except OSError as error:
            raise rename_error(error, self.name) from error

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *problem: object) -> None:
        with contextlib.suppress(OSError):  # finish() has raised all that matter
            os.close(self.fd)


def rename_error(error: OSError, name: str | os.PathLike[str]) -> OSError:
    """The same error for ``name``, the name that the user knows."""
    return OSError(error.errno, error.strerror, os.fspath(name))
