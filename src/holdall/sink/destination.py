"""Checks of a destination before it is written, and the approval of the caller before the rename."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from holdall.base import platform
from holdall.base.text import file_text
from holdall.base.urls import is_url
from holdall.errors import ContentError, UnsupportedError
from holdall.sink.output import rename_error
from holdall.sink.plan import Results

__all__ = ["Approve", "ask_approval", "check_file", "check_folder", "check_name", "check_space", "resolve"]

Approve = Callable[[Path, Results], None]


def resolve(path: str | os.PathLike[str], inside: int = 0, *, follow: bool = True) -> Path:
    """Return the real path of a destination: a symbolic link keeps pointing to the file that is replaced.

    ``inside`` are the characters of the longest name that will be written inside it, or inside its part. Without
    ``follow`` a link of that name is replaced itself; links on the way to its folder are followed.
    """
    if is_url(os.fspath(path)):
        raise UnsupportedError(f"{file_text(path)}: URLs can be read, not written")
    if Path(path).name not in ("", ".."):  # those are folders that exist
        check_name(os.fspath(path), Path(path).name)
    try:
        full = platform.full_path(path)
        real = os.path.realpath(full) if follow else Path(os.path.realpath(full.parent)) / full.name
        return platform.full_path(real, inside)
    except OSError as error:  # the working folder was removed
        raise rename_error(error, path) from error


def check_name(path: str, *names: str) -> None:
    """Raise ContentError if one of ``names``, which ``path`` leads through, is not that of a plain file here."""
    if not all(map(platform.allows_name, names)):
        raise ContentError(f"{file_text(path)!r}: is not the name of a plain file on this system")


def check_file(target: Path, name: str | os.PathLike[str]) -> os.stat_result | None:
    """Return the status of the file that will be replaced, or None; raises if it must not be replaced."""
    old = _status(target, name)
    if old is None or target.is_symlink():  # a link is replaced only where none is to be followed
        return None
    if stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder", os.fspath(name))
    if not stat.S_ISREG(old.st_mode):  # a file would take the place of a device or a pipe
        raise UnsupportedError(f"{os.fspath(name)}: is not a regular file")
    if not os.access(target, os.W_OK):  # a rename needs the permission of the folder only
        raise PermissionError(errno.EACCES, "is read-only, and would be replaced", os.fspath(name))
    return old


def check_folder(target: Path, name: str | os.PathLike[str]) -> None:
    """Raise unless ``target`` is free or an empty folder."""
    if _status(target, name) is not None and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(errno.EEXIST, "exists already: name a new folder", os.fspath(name))


def _status(target: Path, name: str | os.PathLike[str]) -> os.stat_result | None:
    try:
        return target.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise rename_error(error, name) from error


def check_space(target: Path, name: str | os.PathLike[str], size: int) -> None:
    """Raise now if the disk is too full, and not after most of the bytes are written."""
    try:
        disk = shutil.disk_usage(target.parent)
    except OSError as error:
        raise rename_error(error, name) from error
    if disk.total and size > disk.free:  # file systems without a size of their own report 0 bytes
        raise OSError(errno.ENOSPC, f"{size} bytes are needed and {disk.free} are free", os.fspath(name))


def ask_approval(approve: Approve | None, part: Path, results: Results, name: str | os.PathLike[str]) -> None:
    """Show what was written to ``approve``, which may raise. Errors of reading it back name the destination."""
    if approve is None:
        return
    try:
        approve(part, results)
    except OSError as error:
        if error.filename is not None and not os.fspath(error.filename).startswith(os.fspath(part)):
            raise  # a source could not be read
        raise rename_error(error, name) from error
