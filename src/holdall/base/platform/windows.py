"""What Windows does in the place of POSIX.

Files that are open cannot be renamed, replaced or removed here, by this process or another; folders cannot be opened.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO

from holdall.base.file_names import is_portable
from holdall.base.platform.open_descriptor import copy_descriptor, open_descriptor

assert sys.platform == "win32"

__all__ = ["ABSENT", "DISK_FAILURES", "ENDING_SIGNALS", "IGNORES_CASE", "MAPS_HOLD_FILES", "NO_MAPS", "OBSTACLES"]
__all__ += ["OPEN_FILES_BLOCK", "TARGET_EXISTS", "TOO_MANY_FILES", "PartLock", "after_fork", "allows_name"]
__all__ += ["copy_range", "core_count", "full_path", "is_link", "is_name_of", "lock_part", "map_to_read"]
__all__ += ["max_open_files", "memory_file", "open_beneath", "open_new", "open_null", "open_to_read", "peak_memory"]
__all__ += ["read_at", "rename_new", "replace_file", "reset_peak_memory", "resident_memory", "run_limited", "set_mode"]
__all__ += ["PRIVATE_FOLDER", "copy_descriptor", "is_private", "new_mode", "open_to_continue"]
__all__ += ["start_writeback", "sync_file", "sync_folder", "write_at"]

StrPath = str | os.PathLike[str]

ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL)  # no file of this name can be opened
TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)
NO_MAPS = (*TOO_MANY_FILES, errno.ENODEV)  # this file cannot be mapped into memory now
DISK_FAILURES = (errno.ENOSPC, errno.EIO)  # another way of writing would fail as well
TARGET_EXISTS = (errno.ENOTEMPTY, errno.EEXIST)
OBSTACLES = (errno.ELOOP, errno.EACCES)  # the name belongs to a link or another user's file

# These signals end a command after it has removed the file that it was writing.
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGBREAK)
IGNORES_CASE = True
OPEN_FILES_BLOCK = True
MAPS_HOLD_FILES = True
# Python 3.12 makes an access list of 0o700, which would stay with what is renamed, and cannot be taken back here.
PRIVATE_FOLDER = 0o777

_FILE = os.O_RDONLY | os.O_BINARY | os.O_NOINHERIT
_NEW = os.O_RDWR | os.O_BINARY | os.O_NOINHERIT | os.O_CREAT | os.O_EXCL
_LONG = 200  # characters; beyond 248 some calls need the long form, and the names of parts need room
_SURROGATE = 0x2000_0000  # this bit of a reparse tag says that the name stands for another one
_MAX_FILES = 8192  # of the C library, whatever the system allows
_PAUSES = (0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.5, 0.7)  # seconds between attempts at a rename, 1.8 together
_LOCK = ".lock"  # follows the name of a part

# A file has one position for all threads. A few locks serve all descriptors: those of one descriptor are the same.
_positions = [threading.Lock() for _ in range(64)]

# -- opening ----------------------------------------------------------------------------------------------------------


def open_to_read(path: StrPath) -> int:
    """A descriptor for reading; it may be of something other than a regular file, which ``fstat`` shows."""
    try:
        return open_descriptor(full_path(path), _FILE)
    except PermissionError:
        if Path(path).is_dir():  # which cannot be opened
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path)) from None
        raise


def open_new(path: StrPath) -> int:
    """A descriptor for reading and writing of a file that this call makes; FileExistsError where the name is taken."""
    return open_descriptor(full_path(path), _NEW, 0o666)


def open_to_continue(path: StrPath) -> int:
    """A descriptor for reading and writing of a file that exists, which must not be a link."""
    if is_link(os.lstat(full_path(path))):
        raise OSError(errno.ELOOP, "is a link", os.fspath(path))
    return open_descriptor(full_path(path), _NEW & ~(os.O_CREAT | os.O_EXCL))


def open_null(*, write: bool) -> int:
    """A descriptor of the null device."""
    return open_descriptor(os.devnull, os.O_WRONLY if write else os.O_RDONLY)


def open_beneath(folder: StrPath, parts: Sequence[str], on_link: Callable[[str], int | None] | None = None) -> int:
    """A descriptor for reading of the file that ``parts`` lead to from ``folder``, reached without following links.

    The path is walked before and after the file is opened; both walks must find the same folders, no link or
    junction, and the file that was opened. Where the last part is a link, ``on_link`` receives its text and may return
    a descriptor.
    """
    root = full_path(folder, len("/".join(parts)))
    path = root.joinpath(*parts)
    before = _walk(root, parts)
    if is_link(before[-1]):
        found = None if on_link is None else on_link(str(path.readlink()).replace("\\", "/"))
        if found is None:
            raise OSError(errno.ELOOP, "is a link", str(path))
        return found
    fd = open_to_read(path)
    try:
        after = [*_walk(root, parts), os.fstat(fd)]
        if [each.st_ino for each in after] != [each.st_ino for each in (*before, before[-1])]:
            raise OSError(errno.ELOOP, "was moved while it was opened", str(path))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _walk(path: Path, parts: Sequence[str]) -> list[os.stat_result]:
    """The status of each part below ``path``; OSError where one before the last is not a plain folder."""
    found: list[os.stat_result] = []
    for part in parts:
        if found and (is_link(found[-1]) or not stat.S_ISDIR(found[-1].st_mode)):
            raise OSError(errno.ELOOP if is_link(found[-1]) else errno.ENOTDIR, "is not a plain folder", str(path))
        path = path / part
        found.append(os.lstat(path))
    return found


def is_link(status: os.stat_result) -> bool:
    """Whether what ``lstat`` gives is of a name that stands for another file or folder: a link or a junction."""
    return bool(status.st_reparse_tag & _SURROGATE)


def is_name_of(path: StrPath, fd: int) -> bool:
    """Whether ``path`` is the name of the open file."""
    try:
        return os.lstat(path).st_ino == os.fstat(fd).st_ino
    except FileNotFoundError:
        return False


def is_private(path: StrPath) -> bool:
    """Whether a folder or file is not a link: who may enter or read it is what its parent says."""
    return not is_link(os.lstat(path))


def allows_name(name: str) -> bool:
    """Whether a file of this name is an ordinary file, and not a device, a stream or a file of another name."""
    return is_portable(name)


def full_path(path: StrPath, inside: int = 0) -> Path:
    r"""The absolute path; a long one in the form \\?\C:\..., which has no limit of 260 characters.

    ``inside`` are the characters of the longest name that will be reached inside it, and count as well.
    """
    text = os.path.abspath(path)  # noqa: PTH100 - the long form takes no ".."
    if len(text) + inside < _LONG or text.startswith("\\\\?\\"):
        return Path(text)
    if text.startswith("\\\\"):
        return Path("\\\\?\\UNC" + text[1:])
    return Path("\\\\?\\" + text) if text[1:2] == ":" else Path(text)


def memory_file() -> IO[bytes]:
    """A temporary file, which goes when it is closed."""
    return tempfile.TemporaryFile()


# -- reading and writing ----------------------------------------------------------------------------------------------


def map_to_read(fd: int, size: int) -> mmap.mmap:
    """The first ``size`` bytes of a file as memory that cannot be written to."""
    return mmap.mmap(fd, size, access=mmap.ACCESS_READ)


def read_at(fd: int, buffer: memoryview, offset: int) -> int:
    """Read into ``buffer`` from ``offset`` on. Returns the bytes read; 0 at the end of the file."""
    with _positions[fd % len(_positions)]:
        os.lseek(fd, offset, os.SEEK_SET)
        return io.FileIO(fd, "rb", closefd=False).readinto(buffer) or 0


def write_at(fd: int, data: memoryview, offset: int) -> int:
    """Write ``data`` at ``offset``. Returns the bytes written."""
    with _positions[fd % len(_positions)]:
        os.lseek(fd, offset, os.SEEK_SET)
        return os.write(fd, data)


def copy_range(source: int, offset: int, target: int, at: int, size: int) -> int:
    """Raise OSError: there are no copies of ranges inside the kernel, and the caller copies by itself."""
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def start_writeback(fd: int, start: int, size: int) -> None:
    """Do nothing: the disk starts when it wants to."""


def sync_file(fd: int) -> None:
    """Wait until the content of a file is on the disk."""
    os.fsync(fd)


def sync_folder(path: StrPath) -> None:
    """Do nothing: folders cannot be synced."""


# -- names, locks and permissions -------------------------------------------------------------------------------------


def replace_file(path: StrPath, target: StrPath) -> None:
    """Rename ``path`` to ``target``; a file of that name is replaced in one step, an empty folder is removed first."""

    def replace() -> None:
        if Path(path).is_dir() and Path(target).is_dir():
            Path(target).rmdir()
        os.replace(path, target)

    _insist(replace, target)


def rename_new(path: Path, target: Path) -> None:
    """Rename ``path`` to ``target``; FileExistsError where there is one, and nothing is replaced."""
    _insist(partial(os.rename, path, target), target)


def _insist(rename: Callable[[], None], target: StrPath) -> None:
    """Rename again and again for two seconds: programs that look at new files soon close them."""
    for pause in _PAUSES:
        try:
            return rename()
        except PermissionError:
            time.sleep(pause)
    try:
        return rename()
    except PermissionError as error:
        what = "cannot be replaced: another program, or an array of this one, has the file open"
        raise PermissionError(error.errno, what, os.fspath(target)) from error


class PartLock:
    """A lock of an unfinished file or folder: a file beside it, which cannot be removed while it is open.

    It ends when it is closed, at the latest when the process ends. What stays then can be removed, and is.
    """

    excludes = True

    def __init__(self) -> None:
        self._path = Path()
        self._fd = -1

    def take(self, path: Path) -> bool:
        """Make ``path``, the file that is the lock; False where another writer has made it."""
        with suppress(FileNotFoundError, PermissionError):  # the lock of a dead writer goes, that of a living one stays
            path.unlink()
        self._path = path
        try:
            self._fd = open_new(path)
        except (FileExistsError, PermissionError):
            return False
        return True

    def set_mode(self, mode: int) -> None:
        """Do nothing: new folders get the permissions of their parent."""

    def close(self) -> None:
        """End the lock."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
            with suppress(OSError):  # another writer may have opened it since
                self._path.unlink()

    def __del__(self) -> None:
        self.close()


def lock_part(path: Path) -> PartLock | None:
    """Lock the file or folder ``path``; None when another process has it locked, or it is something else.

    Raises FileNotFoundError where there is nothing.
    """
    kind = os.lstat(path)
    if is_link(kind) or not (stat.S_ISREG(kind.st_mode) or stat.S_ISDIR(kind.st_mode)):
        return None
    lock = PartLock()
    try:
        if not lock.take(path.with_name(path.name + _LOCK)):
            return None
        os.lstat(path)  # another writer may have removed it before it was locked
    except BaseException:
        lock.close()
        raise
    return lock


def new_mode(parent: StrPath, *, folder: bool = False) -> int | None:
    """Return None: new files get the permissions of their folder."""
    return None


def set_mode(fd: int, mode: int) -> None:
    """Do nothing: new files get the permissions of their folder."""


# -- the process ------------------------------------------------------------------------------------------------------


def core_count() -> int:
    """The processors of the machine."""
    return os.cpu_count() or 1


def max_open_files() -> int | None:
    """How many files this process may have open."""
    return _MAX_FILES


def after_fork(function: Callable[[], object]) -> None:
    """Do nothing: processes are not forked."""


def run_limited(make: Callable[[], bytes], memory: int, seconds: int) -> bytes:
    """Call ``make`` here and without limits: processes are not forked."""
    return make()


def resident_memory() -> int:
    """Bytes of this process that are in memory now."""
    return _memory()[0]


def peak_memory() -> int:
    """The most bytes of this process that were in memory at one time."""
    return _memory()[1]


def reset_peak_memory() -> None:
    """Raise OSError: the peak counts from the start of the process."""
    raise OSError(errno.ENOTSUP, "the peak of memory cannot be reset")


def _memory() -> tuple[int, int]:
    """Working set now, and at most: PROCESS_MEMORY_COUNTERS has two 32-bit numbers and eight of the size of a word."""
    import ctypes

    class Counters(ctypes.Structure):
        _fields_ = (("size", ctypes.c_uint32), ("faults", ctypes.c_uint32), ("words", ctypes.c_size_t * 8))

    kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    kernel.GetCurrentProcess.restype = ctypes.c_void_p
    kernel.K32GetProcessMemoryInfo.argtypes = (ctypes.c_void_p, ctypes.POINTER(Counters), ctypes.c_uint32)
    counters = Counters(ctypes.sizeof(Counters))
    if not kernel.K32GetProcessMemoryInfo(kernel.GetCurrentProcess(), ctypes.byref(counters), counters.size):
        raise ctypes.WinError(ctypes.get_last_error())
    return counters.words[1], counters.words[0]
