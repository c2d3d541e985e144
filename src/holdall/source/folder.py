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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from holdall.check import Rule
from holdall.errors import FormatError, UnsupportedError
from holdall.source.base import Source

if TYPE_CHECKING:
    from holdall.source.file import FileSource

__all__ = ["MISSING", "REPLACED", "Folder", "FolderSource", "again", "contained"]

ESCAPE = Rule("core.path", "members of a set stay inside its folder")
REPLACED = Rule("core.identity", "what is unpickled is what was pickled")
MISSING = Rule("core.member", "every member of a set is there")

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ENXIO)

_DRIVE = re.compile(r"^[A-Za-z]:")
_BLOB = re.compile(r"((?:\.\./)+)blobs/([0-9a-f]{40,64})")


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

    def files(self) -> list[str]:
        """The files in the folder and in its subfolders, one level down, as relative paths, sorted.

        Links are named like files: whether one may be followed is decided when it is opened. Hidden files and
        names that are not Unicode are left out.
        """
        found: list[str] = []
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                    with os.scandir(entry) as inner:
                        found += (f"{entry.name}/{item.name}" for item in inner if _is_file(item))
                elif _is_file(entry):
                    found.append(entry.name)
        return sorted(name for name in found if not any("\ud800" <= letter <= "\udfff" for letter in name))

    def everything(self) -> list[str]:
        """All files below the folder, hidden ones too, as relative paths, sorted; links are named, not followed."""
        found = []
        for folder, _, names in os.walk(self.path):
            found += [str((Path(folder) / name).relative_to(self.path)) for name in names]
        return sorted(found)

    def source(self, relative: str, *, map: bool = True) -> FileSource:
        """The member ``relative`` as a source; FormatError when there is none, or it lies outside."""
        from holdall.source.file import FileSource

        contained(relative)
        return FileSource(self.path / relative, map=map, folder=self, member=relative)

    def open(self, relative: str) -> int:
        """A descriptor of the member ``relative``, reached without following any link."""
        *parents, leaf = contained(relative)
        beneath = os.O_CLOEXEC | os.O_NOFOLLOW
        at = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for parent in parents:
                inner = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | beneath, dir_fd=at)
                os.close(at)
                at = inner
            fd = self._blob(at, leaf, len(parents))
            return os.open(leaf, os.O_RDONLY | os.O_NONBLOCK | beneath, dir_fd=at) if fd is None else fd
        except OSError as error:
            self._refuse_links(relative, error)
            if error.errno in _ABSENT:
                message = f"the member {relative!r} is not in {os.fspath(self.path)}"
                raise FormatError(MISSING.id, None, message) from error
            raise OSError(error.errno, error.strerror, str(self.path / relative)) from error
        finally:
            os.close(at)

    def _blob(self, at: int, leaf: str, depth: int) -> int | None:
        """The file behind a link of a Hugging Face cache, opened; None for everything else.

        ``REPO/snapshots/REVISION/NAME`` is a link to ``../../blobs/HASH``. No link is followed: its text must have
        exactly this form, and the blob is opened by its name inside the ``blobs`` folder of the same REPO.
        """
        try:
            target = os.readlink(leaf, dir_fd=at)
        except OSError:
            return None
        blob = _BLOB.fullmatch(target)
        snapshot = Path(os.path.realpath(self.path))
        if blob is None or len(blob[1]) != 3 * (depth + 2) or snapshot.parent.name != "snapshots":
            return None
        folder = os.open(snapshot.parent.parent / "blobs", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            return os.open(blob[2], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
        finally:
            os.close(folder)

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


def _is_file(entry: os.DirEntry[str]) -> bool:
    return not entry.name.startswith(".") and (entry.is_file(follow_symlinks=False) or entry.is_symlink())


def again(opener: Callable[[], Source], identity: tuple[object, ...]) -> Source:
    """Unpickle a source: open it again, if it is still the same one."""
    source = opener()
    if source.identity != identity:
        source.close()
        raise FormatError(REPLACED.id, None, f"{source.name}: has been replaced since it was pickled")
    return source


class FolderSource(Source):
    """A folder given where a file could be: no bytes of its own, and its siblings are what it contains."""

    is_folder = True
    size = 0

    def __init__(self, path: str | os.PathLike[str], *, map: bool = True) -> None:
        self.name = os.fspath(path)
        self.path = Path(self.name).absolute()
        self._folder = Folder(self.path)
        self._map = map
        status = self.path.stat()
        self._identity = ("folder", str(self.path), status.st_dev, status.st_ino)  # its files speak for themselves

    @property
    def identity(self) -> tuple[object, ...]:
        return self._identity

    def read_into(self, offset: int, buffer: memoryview) -> None:
        if buffer:
            raise UnsupportedError(f"{self.name}: is a folder")

    def sibling(self, relative: str) -> Source:
        return self._folder.source(relative, map=self._map)

    def names(self) -> list[str]:
        return self._folder.names()

    def files(self) -> list[str]:
        return self._folder.files()

    def everything(self) -> list[str]:
        return self._folder.everything()

    def __reduce__(self) -> tuple[object, ...]:
        return again, (partial(FolderSource, str(self.path), map=self._map), self.identity)

    def close(self) -> None:
        return None
