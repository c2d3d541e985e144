"""What macOS, and other systems of POSIX that are not Linux, do in the place of Linux's own calls."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import IO

from holdall.base.platform.c_library import rename_by

assert sys.platform != "linux" and sys.platform != "win32"

__all__ = ["IGNORES_CASE", "copy_range", "core_count", "default_access", "limit_memory", "memory_file", "peak_memory"]
__all__ += ["read_at", "read_umask", "rename_exclusively", "reset_peak_memory", "resident_memory", "start_writeback"]
__all__ += ["sync_file"]

# Volumes that distinguish case exist too; a name that is taken for two names there costs more than one refused here.
IGNORES_CASE = True
_NO_REPLACE = 4  # RENAME_EXCL

if hasattr(os, "preadv"):

    def read_at(fd: int, buffer: memoryview, offset: int) -> int:
        """Read into ``buffer`` from ``offset`` on. Returns the bytes read; 0 at the end of the file."""
        return os.preadv(fd, [buffer], offset)

else:  # before macOS 11

    def read_at(fd: int, buffer: memoryview, offset: int) -> int:
        """Read into ``buffer`` from ``offset`` on. Returns the bytes read; 0 at the end of the file."""
        data = os.pread(fd, len(buffer), offset)
        buffer[: len(data)] = data
        return len(data)


def copy_range(source: int, offset: int, target: int, at: int, size: int) -> int:
    """Raise OSError: there are no copies of ranges inside the kernel, and the caller copies by itself."""
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def start_writeback(fd: int, start: int, size: int) -> None:
    """Do nothing: the disk starts when it wants to."""


def sync_file(fd: int) -> None:
    """Wait until the content of a file is on the disk, and not only in the memory of the disk."""
    if sys.platform == "darwin":
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            return
        except OSError as error:  # some network file systems lack it
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
    os.fsync(fd)


def memory_file() -> IO[bytes]:
    """A temporary file without a name."""
    return tempfile.TemporaryFile()


def rename_exclusively(path: Path, target: Path) -> bool:
    """Rename in one step, replacing nothing; False where the system or the file system has no such call."""
    return rename_by("renamex_np", os.fsencode(path), os.fsencode(target), _NO_REPLACE, target=target)


def default_access(folder: str | os.PathLike[str]) -> int | None:
    """Return None: access lists of folders add to the permissions of what is made in them, and change none."""
    return None


def read_umask() -> int | None:
    """Return None: it can be read only by changing it."""
    return None


def core_count() -> int:
    """The processors of the machine."""
    return os.cpu_count() or 1


def limit_memory(size: int) -> None:
    """Do nothing: the limit of the address space has no effect."""


def resident_memory() -> int:
    """The same as :func:`peak_memory`: what is in memory now cannot be asked for."""
    return peak_memory()


def peak_memory() -> int:
    """The most bytes of this process that were in memory at one time."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def reset_peak_memory() -> None:
    """Raise OSError: the peak counts from the start of the process."""
    raise OSError(errno.ENOTSUP, "the peak of memory cannot be reset")
