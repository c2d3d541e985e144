"""Folders: sources for formats made of several files, and the one place that keeps paths inside.

Names of members come from files, so from strangers. Every path that is opened for a format goes through
:meth:`Folder.source`, which walks it component by component with descriptors and follows no link, so that
nothing outside the folder can be reached, not even by swapping a directory for a link in between.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from holdall.check import Rule
from holdall.errors import FormatError, UnsupportedError
from holdall.source.base import Source

if TYPE_CHECKING:
    from holdall.source.file import FileSource

__all__ = ["Folder", "FolderSource", "contained"]

ESCAPE = Rule("core.path", "members of a set stay inside its folder")
MISSING = Rule("core.member", "every member of a set is there")

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ENXIO)

_DRIVE = re.compile(r"^[A-Za-z]:")


def contained(relative: str) -> list[str]:
    """The components of a relative path that stays inside its folder; anything else raises FormatError.

    >>> contained("shards/part-000.bin")
    ['shards', 'part-000.bin']
    """
    parts = relative.split("/")
    bad = (
        not relative
        or relative.startswith("/")
        or "\\" in relative
        or "\0" in relative
        or _DRIVE.match(relative) is not None
        or "://" in relative
        or any(part in ("", ".", "..") for part in parts)
        or any("\ud800" <= letter <= "\udfff" for letter in relative)  # JSON can say what no file is called
    )
    if bad:
        raise FormatError(ESCAPE.id, None, f"the member path {relative!r} is not a plain path inside the folder")
    return parts


class Folder:
    """A directory whose members may be opened by relative names."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def names(self) -> list[str]:
        """The plain names in the folder, sorted."""
        return sorted(os.listdir(self.path))

    def source(self, relative: str, *, map: bool = True) -> FileSource:
        """The member ``relative`` as a source; FormatError when there is none, or it lies outside."""
        from holdall.source.file import FileSource

        *parents, leaf = contained(relative)
        beneath = os.O_CLOEXEC | os.O_NOFOLLOW
        at = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for parent in parents:
                inner = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | beneath, dir_fd=at)
                os.close(at)
                at = inner
            fd = os.open(leaf, os.O_RDONLY | os.O_NONBLOCK | beneath, dir_fd=at)
        except OSError as error:
            self._refuse_links(relative, error)
            if error.errno in _ABSENT:
                message = f"the member {relative!r} is not in {os.fspath(self.path)}"
                raise FormatError(MISSING.id, None, message) from error
            raise
        finally:
            os.close(at)
        return FileSource(self.path / relative, map=map, descriptor=fd)

    def _refuse_links(self, relative: str, error: OSError) -> None:
        """Say so when a link is why a member could not be opened (ELOOP, or ENOTDIR for one on the way)."""
        path = self.path
        for part in contained(relative):
            path = path / part
            try:
                mode = path.lstat().st_mode
            except OSError:
                return
            if stat.S_ISLNK(mode):
                message = f"the member {relative!r} is reached through the symbolic link {str(path)!r}"
                raise FormatError(ESCAPE.id, None, message) from error


class FolderSource(Source):
    """A folder given where a file could be: no bytes of its own, and its siblings are what it contains."""

    is_folder = True
    size = 0

    def __init__(self, path: str | os.PathLike[str], *, map: bool = True) -> None:
        self.name = os.fspath(path)
        self.path = Path(self.name).absolute()
        self._folder = Folder(self.path)
        self._map = map

    @property
    def identity(self) -> tuple[object, ...]:
        status = self.path.stat()
        return ("folder", str(self.path), status.st_dev, status.st_ino, status.st_mtime_ns)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        if buffer:
            raise UnsupportedError(f"{self.name}: is a folder")

    def sibling(self, relative: str) -> Source:
        return self._folder.source(relative, map=self._map)

    def names(self) -> list[str]:
        return self._folder.names()

    def close(self) -> None:
        return None
