"""What Linux adds to POSIX: copies inside the kernel, files in memory, advice to the disk, and /proc."""

from __future__ import annotations

import os
import resource
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO

from holdall.base.platform.c_library import rename_by

assert sys.platform == "linux"

__all__ = ["IGNORES_CASE", "copy_range", "core_count", "default_access", "limit_memory", "memory_file", "peak_memory"]
__all__ += ["read_at", "read_umask", "rename_exclusively", "reset_peak_memory", "resident_memory", "start_writeback"]
__all__ += ["sync_file"]

IGNORES_CASE = False
_HERE = -100  # AT_FDCWD: paths count from the current folder
_NO_REPLACE = 1  # RENAME_NOREPLACE
_OWNER, _GROUP, _MASK, _OTHER = 1, 4, 16, 32  # entries of an access list; a mode shows the mask as that of the group


def read_at(fd: int, buffer: memoryview, offset: int) -> int:
    """Read into ``buffer`` from ``offset`` on. Returns the bytes read; 0 at the end of the file."""
    return os.preadv(fd, [buffer], offset)


def copy_range(source: int, offset: int, target: int, at: int, size: int) -> int:
    """Have the kernel copy up to ``size`` bytes between files. Returns the bytes copied; 0 at the end of ``source``."""
    return os.copy_file_range(source, target, size, offset, at)


def start_writeback(fd: int, start: int, size: int) -> None:
    """Have the disk start on written bytes: the kernel does so when it learns that they need not stay in memory."""
    with suppress(OSError):  # it is only advice
        os.posix_fadvise(fd, start, size, os.POSIX_FADV_DONTNEED)


def sync_file(fd: int) -> None:
    """Wait until the content of a file is on the disk."""
    os.fsync(fd)


def memory_file() -> IO[bytes]:
    """A file without a name, whose bytes are in memory."""
    return os.fdopen(os.memfd_create("holdall", os.MFD_CLOEXEC), "w+b")


def rename_exclusively(path: Path, target: Path) -> bool:
    """Rename in one step, replacing nothing; False where the system or the file system has no such call."""
    return rename_by("renameat2", _HERE, os.fsencode(path), _HERE, os.fsencode(target), _NO_REPLACE, target=target)


def default_access(folder: str | os.PathLike[str]) -> int | None:
    """The permissions that the default access list of a folder gives to what is made in it; None without such a list.

    The umask has no part in them.
    """
    try:
        listed = os.getxattr(folder, "system.posix_acl_default")[4:]  # after the version
    except OSError:
        return None
    entries = struct.iter_unpack("<HHI", listed[: len(listed) // 8 * 8])
    given: dict[int, int] = {tag: bits & 7 for tag, bits, _ in entries}
    if not {_OWNER, _GROUP, _OTHER} <= given.keys():
        return None
    return given[_OWNER] << 6 | given.get(_MASK, given[_GROUP]) << 3 | given[_OTHER]


def read_umask() -> int | None:
    """The permissions that new files of this process do not get; None where there is no /proc."""
    try:
        return int(_read_status("Umask"), 8)
    except OSError:
        return None


def core_count() -> int:
    """The processors that this process may run on.

    >>> core_count() >= 1
    True
    """
    return len(os.sched_getaffinity(0))


def limit_memory(size: int) -> None:
    """From now on, allocations beyond ``size`` more bytes of address space fail."""
    cap = _read_memory("VmSize") + size
    resource.setrlimit(resource.RLIMIT_AS, (cap, cap))


def resident_memory() -> int:
    """Bytes of this process that are in memory now."""
    return _read_memory("VmRSS")


def peak_memory() -> int:
    """The most bytes of this process that were in memory at one time."""
    return _read_memory("VmHWM")


def reset_peak_memory() -> None:
    """Have :func:`peak_memory` start anew from what is in memory now. Raises OSError where that is not allowed."""
    Path("/proc/self/clear_refs").write_text("5")


def _read_memory(field: str) -> int:
    return int(_read_status(field)) * 1024


def _read_status(field: str) -> str:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return line.split()[1]
    raise OSError(f"the system does not tell {field}")
