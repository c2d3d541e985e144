"""Files and folders in progress: made beside their destination, locked while they are written, then renamed.

Such a part is called ``.NAME.N.holdall.part``. Its writer holds a lock on it, which ends with the process, however that
ends. So a part whose lock can be taken was left by a dead writer, and the next write to the same destination removes
it. No other user can open it before it is complete. N is 0 unless several processes write the same destination at the
same time: each then has its part, and the last to finish wins.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from functools import partial
from itertools import count
from pathlib import Path
from typing import Self

from holdall.base import platform
from holdall.sink.output import Output, rename_error
from holdall.source.descriptors import release_files, with_room

__all__ = ["CLEANED", "SUFFIX", "Staging", "lock_part", "part_path", "remove_part", "sync_folder", "vacate_part"]

SUFFIX = ".holdall.part"
_NAME_BYTES = 200  # of a destination's name in that of its part: with the suffix it stays below 255
CLEANED = 4  # numbers at which parts of dead writers are looked for


class Staging:
    """A part that becomes ``target`` by :meth:`publish`; leaving the ``with`` before that removes it.

    ``name`` is the destination as the caller spells it, which errors name.
    """

    def __init__(self, target: Path, name: str | os.PathLike[str]) -> None:
        self.target = target
        self.name = os.fspath(name)
        self._part = part_path(target, 0)
        self._exists = False
        self._fd: int | None = None
        self._lock: platform.PartLock | None = None

    @property
    def path(self) -> Path:
        """What is written now, and gets the real name."""
        return self._part

    def make_file(self, fsync: bool) -> Output:
        """Make the part a file. With ``fsync`` it is on the disk when it is finished."""
        self._make(folder=False)
        assert self._fd is not None
        return Output(self._fd, self.name, fsync)

    def make_folder(self) -> Path:
        """Make the part a folder, which no other user may enter."""
        self._make(folder=True)
        return self.path

    def widen_folder(self) -> None:
        """Give the part, a folder, the permissions of a new folder."""
        mode = platform.new_mode(self.target.parent, folder=True)
        if mode is not None and self._lock is not None:
            try:
                self._lock.set_mode(mode)
            except OSError as error:
                raise rename_error(error, self.name) from error

    def publish(self, clobber: bool = True) -> None:
        """Give the part its real name. A file or an empty folder of that name is replaced, a full folder is not.

        Without ``clobber`` nothing is replaced, not even what appeared while the part was written.
        """
        if platform.OPEN_FILES_BLOCK:
            release_files()
        self._close_file()
        try:
            if clobber:
                platform.replace_file(self.path, self.target)
            else:
                platform.rename_new(self.path, self.target)
        except OSError as error:
            if error.errno in platform.TARGET_EXISTS:
                what = "exists already: name a new folder" if clobber else "exists already, and is not to be replaced"
                raise FileExistsError(errno.EEXIST, what, self.name) from error
            raise rename_error(error, self.name) from error
        self._exists = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, problem: type[BaseException] | None, *more: object) -> None:
        try:
            self._close_file()  # first: some systems do not remove open files
            if self._exists:
                remove_part(self._part)
            elif problem is not None:  # an interrupt may have come between making the part and noting it
                with contextlib.suppress(OSError):
                    vacate_part(self._part)
        finally:
            self._unlock()

    def _close_file(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            try:
                os.close(fd)
            except OSError:  # Output.finish() has raised all that matter
                return

    def _unlock(self) -> None:
        if self._lock is not None:
            with contextlib.suppress(OSError):
                self._lock.close()
            self._lock = None

    def _make(self, folder: bool) -> None:
        """Take the first number that is free, and remove what dead writers left at the others."""
        for number in count():
            if self._exists and number >= CLEANED:
                return
            path, found = part_path(self.target, number), self._exists
            try:
                if vacate_part(path) and not found:
                    self._claim(path, folder)
            except FileExistsError:  # another writer took the number first
                continue
            except OSError as error:
                if not found:
                    raise rename_error(error, self.name) from error

    def _claim(self, path: Path, folder: bool) -> None:
        """Make ``path`` and lock it. Before the lock another writer may take it for a left one and remove it."""
        self._part = path
        if folder:
            path.mkdir(platform.PRIVATE_FOLDER)
        else:
            self._fd = with_room(self.name, lambda: platform.open_new(path))
        self._exists = True
        with contextlib.suppress(FileNotFoundError):
            self._lock = lock_part(self.name, path)
        if self._lock is None or (self._fd is not None and not platform.is_name_of(path, self._fd)):
            self._exists = False
            self._close_file()
            self._unlock()


def part_path(target: Path, number: int) -> Path:
    """The path of the part ``number`` of a destination."""
    name = target.name[:_NAME_BYTES]
    while len(os.fsencode(name)) > _NAME_BYTES:  # a cut inside a character would leave a name that some systems refuse
        name = name[:-1]
    return target.with_name(f".{name}.{number}{SUFFIX}")


def lock_part(name: str, path: Path) -> platform.PartLock | None:
    """Lock a part of the destination ``name``; None when another process has it locked."""
    return with_room(name, lambda: platform.lock_part(path))


def vacate_part(path: Path) -> bool:
    """Remove what a dead writer left at ``path``. True when nothing has this name now."""
    try:
        lock = lock_part(str(path), path)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in platform.OBSTACLES and os.path.lexists(path):
            return False
        raise
    if lock is None:
        return False
    try:
        if lock.excludes:
            remove_part(path)
        return not os.path.lexists(path)
    finally:
        lock.close()


def remove_part(path: Path) -> None:
    """Remove a part. If that fails, the next writer tries again."""
    with contextlib.suppress(OSError):
        if not path.is_dir():
            path.unlink()
            return
        shutil.rmtree(path, ignore_errors=True)
        if path.exists():  # after an interrupt, a thread may still have made a file
            shutil.rmtree(path)


def sync_folder(folder: Path, name: str | os.PathLike[str]) -> None:
    """Wait until the names in ``folder`` are on the disk; errors name ``name``."""
    try:
        with_room(os.fspath(name), partial(platform.sync_folder, folder))
    except OSError as error:
        raise rename_error(error, name) from error
