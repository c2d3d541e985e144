"""What Linux and macOS have in common."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from holdall.base.platform.open_descriptor import copy_descriptor, keep_descriptor, open_descriptor

assert sys.platform != "win32"

if sys.platform == "linux":
    from holdall.base.platform.linux import default_access, limit_memory, read_umask, rename_exclusively
else:
    from holdall.base.platform.macos import default_access, limit_memory, read_umask, rename_exclusively

__all__ = ["ABSENT", "DISK_FAILURES", "ENDING_SIGNALS", "MAPS_HOLD_FILES", "NO_MAPS", "OBSTACLES", "OPEN_FILES_BLOCK"]
__all__ += ["copy_descriptor"]
__all__ += ["TARGET_EXISTS", "TOO_MANY_FILES", "PartLock", "after_fork", "allows_name", "full_path", "is_link"]
__all__ += ["is_name_of", "lock_part", "map_to_read", "max_open_files", "open_beneath", "open_new", "open_null"]
__all__ += ["PRIVATE_FOLDER", "is_private", "new_mode", "open_to_continue"]
__all__ += ["open_to_read", "rename_new", "replace_file", "run_limited", "set_mode", "sync_folder", "write_at"]

StrPath = str | os.PathLike[str]

ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ENXIO)  # no file of this name can be opened
TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)
NO_MAPS = (*TOO_MANY_FILES, errno.ENODEV)  # this file cannot be mapped into memory now
DISK_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EIO)  # another way of writing would fail as well
TARGET_EXISTS = (errno.ENOTEMPTY, errno.EEXIST)
OBSTACLES = (errno.ELOOP, errno.ENXIO, errno.EACCES)  # the name belongs to a link, a socket or another user's file
_NO_MODES = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)
_NO_FOLDER_SYNC = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EACCES)

# These signals end a command after it has removed the file that it was writing.
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
OPEN_FILES_BLOCK = False  # a file may be replaced while it is open
PRIVATE_FOLDER = 0o700  # the mode of a folder that no other user may enter
MAPS_HOLD_FILES = sys.version_info < (3, 13)  # a map counts as an open file

# A FIFO that is given as a file is refused, where opening it without O_NONBLOCK would wait for a writer.
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_FOLDER = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
_NEW = os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL

# -- opening ----------------------------------------------------------------------------------------------------------


def open_to_read(path: StrPath) -> int:
    """A descriptor for reading; it may be of something other than a regular file, which ``fstat`` shows."""
    return open_descriptor(path, _FILE)


def open_new(path: StrPath) -> int:
    """A descriptor for reading and writing of a file that this call makes; FileExistsError where the name is taken.

    No other user can open the file before :func:`set_mode` says so.
    """
    return open_descriptor(path, _NEW, 0o600)


def open_to_continue(path: StrPath) -> int:
    """A descriptor for reading and writing of a file that exists, reached without following a link."""
    return open_descriptor(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)


def open_null(*, write: bool) -> int:
    """A descriptor of the null device."""
    return open_descriptor(os.devnull, os.O_WRONLY if write else os.O_RDONLY)


def open_beneath(folder: StrPath, parts: Sequence[str], on_link: Callable[[str], int | None] | None = None) -> int:
    """A descriptor for reading of the file that ``parts`` lead to from ``folder``, reached without following links.

    The walk goes from descriptor to descriptor, so that a folder that is swapped for a link in between is not
    followed either. Where the last part is a link, ``on_link`` receives its text and may return a descriptor.
    """
    *parents, leaf = parts
    at = open_descriptor(folder, _FOLDER)
    try:
        for parent in parents:
            at, outer = _open_inside(at, parent, _FOLDER | os.O_NOFOLLOW), at
            os.close(outer)
        link = None if on_link is None else _read_link(leaf, at)
        found = None if link is None or on_link is None else on_link(link)
        if found is None:
            found = _open_inside(at, leaf, _FILE | os.O_NOFOLLOW)
    except BaseException:
        os.close(at)
        raise
    try:
        os.close(at)
    except BaseException:
        os.close(found)
        raise
    return found


def _open_inside(folder: int, name: str, flags: int) -> int:
    return keep_descriptor(map(partial(os.open, dir_fd=folder), (name,), (flags,)))


def _read_link(name: str, folder: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:  # not a link, or not there: opening it says which
        return None


def is_link(status: os.stat_result) -> bool:
    """Whether what ``lstat`` gives is of a name that stands for another file or folder."""
    return stat.S_ISLNK(status.st_mode)


def is_name_of(path: StrPath, fd: int) -> bool:
    """Whether ``path`` is the name of the open file."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def is_private(path: StrPath) -> bool:
    """Whether a folder or file belongs to the user of this process, and no other may enter or read it."""
    status = os.lstat(path)
    is_plain = stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)
    return is_plain and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def allows_name(name: str) -> bool:
    """Whether a file of this name is an ordinary file: every name is."""
    return True


def full_path(path: StrPath, inside: int = 0) -> Path:
    """The absolute path, in a form that has no limit of length below the system's own.

    ``inside`` are the characters of the longest name that will be reached inside it: some systems have to know.
    """
    try:
        return Path(path).absolute()
    except OSError as error:  # the working folder was removed, of which the error has no name
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


# -- reading and writing ----------------------------------------------------------------------------------------------


def map_to_read(fd: int, size: int) -> mmap.mmap:
    """The first ``size`` bytes of a file as memory that cannot be written to."""
    if sys.version_info >= (3, 13):
        return mmap.mmap(fd, size, access=mmap.ACCESS_READ, trackfd=False)
    return mmap.mmap(fd, size, access=mmap.ACCESS_READ)


def write_at(fd: int, data: memoryview, offset: int) -> int:
    """Write ``data`` at ``offset``. Returns the bytes written."""
    return os.pwrite(fd, data, offset)


def sync_folder(path: StrPath) -> None:
    """Wait until the names in a folder are on the disk; does nothing where folders cannot be synced."""
    try:
        fd = open_descriptor(path, _FOLDER)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


# -- names, locks and permissions -------------------------------------------------------------------------------------


def replace_file(path: StrPath, target: StrPath) -> None:
    """Rename ``path`` to ``target`` in one step; a file or an empty folder of that name is replaced."""
    os.replace(path, target)


def rename_new(path: Path, target: Path) -> None:
    """Rename ``path`` to ``target``; FileExistsError where there is one, and nothing is replaced."""
    if rename_exclusively(path, target):
        return
    if path.is_dir():
        target.mkdir()  # fails where the name is taken; the rename then replaces only this empty folder
        try:
            os.replace(path, target)
        except BaseException:
            with suppress(OSError):
                target.rmdir()
            raise
    else:
        os.link(path, target)
        path.unlink()


class PartLock:
    """A lock of an unfinished file or folder. It ends when it is closed, at the latest when the process ends.

    Where the file system has no locks, ``excludes`` is False: other writers are not kept away.
    """

    def __init__(self) -> None:
        self._fd = -1
        self.excludes = False

    def take(self, path: Path) -> bool:
        """Lock the file or folder ``path``; False when another process has it locked, or it is something else."""
        self._fd = open_descriptor(path, _FILE | os.O_NOFOLLOW)
        kind = os.fstat(self._fd).st_mode
        found = _lock(self._fd) if stat.S_ISREG(kind) or stat.S_ISDIR(kind) else None
        self.excludes = found is True
        # Before it was locked, another writer may have removed it and used its name again.
        return found is not None and is_name_of(path, self._fd)

    def set_mode(self, mode: int) -> None:
        """Set the permissions of what is locked; a folder goes on giving its group to what is made in it."""
        set_mode(self._fd, mode | os.fstat(self._fd).st_mode & stat.S_ISGID)

    def close(self) -> None:
        """End the lock."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


def lock_part(path: Path) -> PartLock | None:
    """Lock the file or folder ``path``; None when another process has it locked, or it is something else.

    Raises FileNotFoundError where there is nothing, and an OSError of :data:`OBSTACLES` for a link.
    """
    lock, taken = PartLock(), False
    try:
        taken = lock.take(path)
        return lock if taken else None
    finally:
        if not taken:
            lock.close()


def _lock(fd: int) -> bool | None:
    """True when the lock is taken, None when another process has it, False where there are no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    except OSError:
        return False
    return True


def new_mode(parent: StrPath, *, folder: bool = False) -> int | None:
    """The permissions that a new file or folder in ``parent`` gets by default; None where they cannot be set."""
    given = default_access(parent)
    if given is None:
        mask = read_umask()
        given = ~(_change_umask() if mask is None else mask)
    return given & (0o777 if folder else 0o666)


_umask = threading.Lock()  # it is one for all threads
os.register_at_fork(after_in_child=_umask._at_fork_reinit)  # type: ignore[attr-defined]


def _change_umask() -> int:
    """Return the umask, which can be read only by changing it. Files of other threads get fewer rights, never more."""
    held: list[int] = []
    with _umask:
        try:
            held.extend(map(os.umask, (0o077,)))  # an interrupt comes before or after this step
        finally:
            for mask in held:
                os.umask(mask)
    return held[0]


def set_mode(fd: int, mode: int) -> None:
    """Set the permissions of an open file or folder; does nothing where the file system has none to set."""
    try:
        os.fchmod(fd, mode)
    except OSError as error:
        if error.errno not in _NO_MODES:
            raise


# -- the process ------------------------------------------------------------------------------------------------------


def max_open_files() -> int | None:
    """How many files this process may have open; None where there is no limit."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if allowed == resource.RLIM_INFINITY else allowed


def after_fork(function: Callable[[], object]) -> None:
    """Have ``function`` called in every process that is forked from this one, before anything else runs there."""
    os.register_at_fork(after_in_child=function)


def run_limited(make: Callable[[], bytes], memory: int, seconds: int) -> bytes:
    """Call ``make`` in a forked process that may take ``memory`` more bytes and ``seconds`` of processor time.

    Returns its bytes; ChildProcessError when the process ends without an answer. One that hangs is killed.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _run_and_leave(writing, make, memory, seconds)
    os.close(writing)
    data = _read_all(reading, child, 3 * seconds)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise ChildProcessError(f"the process was ended by {signal.Signals(os.WTERMSIG(status)).name}")
    if status:
        raise ChildProcessError(f"the process ended with code {os.waitstatus_to_exitcode(status)}")
    return data


def _read_all(reading: int, child: int, seconds: float) -> bytes:
    """Read what the child writes until it ends; kill it if it writes nothing for ``seconds``."""
    import select

    parts: list[bytes] = []
    try:
        while select.select([reading], [], [], seconds)[0]:
            part = os.read(reading, 1 << 20)
            if not part:
                return b"".join(parts)
            parts.append(part)
        os.kill(child, signal.SIGALRM)
        return b""
    finally:
        os.close(reading)


def _run_and_leave(writing: int, make: Callable[[], bytes], memory: int, seconds: int) -> None:
    """Run in the child, and exit: returning would run the code of the parent twice."""
    code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a handler of the parent's would keep it from being ended
        limit_memory(memory)
        used = int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, used + seconds + 5))
        with open(writing, "wb") as pipe:
            pipe.write(make())
        code = 0
    finally:
        os._exit(code)
