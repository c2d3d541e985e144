"""Files and folders in progress: beside their destination, locked while their writer lives, renamed when whole.

A part is called ``.NAME.N.holdall.part``. Its writer holds a lock on it (``flock``, which ends with the process,
however that ends), so a part whose lock can be taken was left by a writer that is dead: the next one to write the
same destination removes it. N is 0 unless others write the same destination at the same time: each has a part of its
own, and the last to finish wins.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from itertools import count
from pathlib import Path

from holdall.sink.output import NEW, Output, blamed, opened

__all__ = ["SUFFIX", "Part", "sync_folder"]

SUFFIX = ".holdall.part"
_LOOKED_AT = 4  # numbers at which parts of dead writers are looked for

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LEFT = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_IN_THE_WAY = (errno.ELOOP, errno.ENXIO, errno.EACCES)  # a link, a socket, a file of somebody else
_NOT_SYNCED = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EACCES)


class Part:
    """What becomes ``target`` by :meth:`publish`; leaving the ``with`` without that removes it.

    ``name`` is the destination as the caller spells it, which is what errors speak of.
    """

    def __init__(self, target: Path, name: str | os.PathLike[str]) -> None:
        self.target = target
        self.name = os.fspath(name)
        self.path = _part_name(target, 0)
        self._there = False
        self._fd: int | None = None

    def file(self, fsync: bool) -> Output:
        """Make the part a file, with ``fsync`` one that is on the disk when it is finished."""
        self._make(folder=False)
        assert self._fd is not None
        return Output(self._fd, self.name, fsync)

    def folder(self) -> Path:
        """Make the part a folder."""
        self._make(folder=True)
        return self.path

    def publish(self, clobber: bool = True) -> None:
        """Give the part its real name. A file or an empty folder of that name is replaced, a full folder is not.

        Without ``clobber`` nothing is replaced, also not what came while the part was written.
        """
        try:
            if clobber:
                os.replace(self.path, self.target)
            elif self.path.is_dir():
                self.target.mkdir()  # fails where there is something; a rename then replaces only this
                os.replace(self.path, self.target)
            else:
                os.link(self.path, self.target)
                self.path.unlink()
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # somebody was faster
                what = "exists already: name a new folder" if clobber else "exists already, and is not to be replaced"
                raise FileExistsError(errno.EEXIST, what, self.name) from error
            raise blamed(error, self.name) from error
        self._there = False

    def __enter__(self) -> Part:
        return self

    def __exit__(self, problem: type[BaseException] | None, *more: object) -> None:
        try:
            if self._there:
                _remove(self.path)
            elif problem is not None:  # an interrupt may have come after it was made and before we knew
                with contextlib.suppress(OSError):
                    _vacant(self.path)
        finally:
            self._close()  # not before: with it goes the lock

    def _close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            with contextlib.suppress(OSError):
                os.close(fd)

    def _make(self, folder: bool) -> None:
        """Take the first number that is free, and remove what dead writers left at the others."""
        for number in count():
            if self._there and number >= _LOOKED_AT:
                return
            path, found = _part_name(self.target, number), self._there
            try:
                if _vacant(path) and not found:
                    self._claim(path, folder)
            except FileExistsError:  # somebody was faster
                continue
            except OSError as error:
                if not found:
                    raise blamed(error, self.name) from error

    def _claim(self, path: Path, folder: bool) -> None:
        """Make ``path`` and lock it; somebody who took it for a left one in between has removed it."""
        self.path = path
        if folder:
            path.mkdir()
            self._there = True
            with contextlib.suppress(FileNotFoundError):
                self._fd = opened(path, _FOLDER)
        else:
            self._fd = opened(path, NEW)
            self._there = True
        if self._fd is None or _locked(self._fd) is False or not _is(path, self._fd):
            self._there = False
            self._close()


def _part_name(target: Path, number: int) -> Path:
    name = os.fsdecode(os.fsencode(target.name)[:200])  # a long name leaves room for what is added
    return target.with_name(f".{name}.{number}{SUFFIX}")


def _vacant(path: Path) -> bool:
    """True when nothing has this name, be it that what a dead writer left there was removed now."""
    try:
        fd = opened(path, _LEFT)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in _IN_THE_WAY and os.path.lexists(path):
            return False
        raise
    try:
        kind = os.fstat(fd).st_mode
        ours = stat.S_ISREG(kind) or stat.S_ISDIR(kind)
        if ours and _locked(fd) and _is(path, fd):
            _remove(path)
            return not os.path.lexists(path)
        return False
    except OSError:
        return False
    finally:
        os.close(fd)


def _locked(fd: int) -> bool | None:
    """Take the lock: True when it is taken, False when another has it, None where there are no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is(path: Path, fd: int) -> bool:
    """Whether ``path`` is still the name of the open file."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    """Remove a part; what cannot be removed now is found by the next writer."""
    with contextlib.suppress(OSError):
        if not path.is_dir():
            path.unlink()
            return
        shutil.rmtree(path, ignore_errors=True)
        if path.exists():  # a thread that an interrupt took us away from had still a file to make
            shutil.rmtree(path)


def sync_folder(folder: Path, name: str | os.PathLike[str]) -> None:
    """Have the names in ``folder`` on the disk; where folders cannot be synced there is nothing to wait for."""
    try:
        fd = opened(folder, _FOLDER)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno not in _NOT_SYNCED:
            raise blamed(error, name) from error
