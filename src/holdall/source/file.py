"""Local files and folders as sources: positioned reads, and memory maps for views."""

from __future__ import annotations

import mmap
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from holdall.base import platform
from holdall.errors import UnsupportedError
from holdall.source.base import Source
from holdall.source.descriptors import Descriptor, map_file
from holdall.source.folder import Folder, reopen, split_contained

__all__ = ["FileSource", "FolderSource"]


class FileSource(Source):
    """One regular file, or the ``member`` of a folder. With ``map=True`` views come from a memory map.

    If the file was cut, written to or replaced since it was opened, the read raises FormatError.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, map: bool = True, folder: Folder | None = None, member: str = ""
    ) -> None:
        self.name = os.fspath(path)
        self.path = platform.full_path(self.name)
        self.member = member
        self._folder = folder
        full = str(self.path)
        # Not a method of this object: the two would refer to each other, and be closed only with the next collection.
        self._file = Descriptor(
            self.name, lambda: platform.open_to_read(full) if folder is None else folder.open(member)
        )
        try:
            self._file.open()
        except BaseException as error:
            self._file.close()
            if isinstance(error, IsADirectoryError):  # where folders cannot be opened
                raise UnsupportedError(f"{self.name}: is not a regular file") from None
            if isinstance(error, OSError) and error.filename == full:
                error.filename = self.name  # as the caller spelled it
            raise
        status = self._file.status
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise UnsupportedError(f"{self.name}: is not a regular file")
        self.size = status.st_size
        self._identity = ("file", str(self.path), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        self._may_map = map
        self._map: mmap.mmap | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        return self._identity

    @property
    def is_mapped(self) -> bool:
        return self._may_map

    @contextmanager
    def lend(self) -> Iterator[int]:
        """Lend the descriptor, for copies inside the kernel. On exit, raises if the file was modified."""
        with self._file.pin():
            fd = self._file.reach()
            yield fd
            self._file.check(fd)
        self._file.settle()

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self._check_inside(offset, len(buffer))
        with self._file.pin():
            fd = self._file.reach()
            try:
                while buffer:
                    got = platform.read_at(fd, buffer, offset)
                    if got == 0:
                        raise self._cut_error(offset, len(buffer))
                    offset += got
                    buffer = buffer[got:]
            except OSError as error:
                text = f"{os.strerror(error.errno or 0)} while reading at byte {offset:#x}"
                raise OSError(error.errno, text, self.name) from error
            self._file.check(fd)  # after reading, so that a concurrent write is noticed
        self._file.settle()

    def view(self, offset: int, size: int) -> memoryview:
        if not self._may_map or size == 0:
            return super().view(offset, size)
        self._check_inside(offset, size)
        with self._file.pin():
            fd = self._file.reach()
            self._file.check(fd)  # touching a map beyond the end of its file is a bus error
            whole = self._view_map(fd)
        self._file.settle()
        return super().view(offset, size) if whole is None else whole[offset : offset + size]

    def _view_map(self, fd: int) -> memoryview | None:
        """The whole file as a view of its map; None if it cannot be mapped."""
        found = self._map
        while True:
            if found is None:
                found = self._map = map_file(fd, self.size)
            if found is None:
                return None
            try:
                return memoryview(found)
            except ValueError:  # it was closed: where open files block a rename, any thread closes maps without views
                found = None

    def sibling(self, relative: str) -> Source:
        return _open_member(Folder(self.path.parent), relative, self._may_map)

    def names(self) -> list[str]:
        return Folder(self.path.parent).names()

    def files(self) -> list[str]:
        return Folder(self.path.parent).files()

    def close(self) -> None:
        # The map is not closed: arrays may use it, and it ends with the last of them.
        self._map = None
        self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_file") and not sys.is_finalizing():  # at the end of Python the lock may be gone already
            self._file.close()

    def __reduce__(self) -> tuple[object, ...]:
        path = str(self.path)
        opener = partial(FileSource, path, map=self._may_map, folder=self._folder, member=self.member)
        return reopen, (opener, self.identity)


def _open_member(folder: Folder, relative: str, map: bool) -> FileSource:
    """Open the member ``relative`` of a folder; FormatError when there is none, or it lies outside."""
    split_contained(relative)
    return FileSource(folder.path / relative, map=map, folder=folder, member=relative)


class FolderSource(Source):
    """A folder in the place of a file: it has no bytes, and its siblings are the files that it contains."""

    is_folder = True
    size = 0

    def __init__(self, path: str | os.PathLike[str], *, map: bool = True) -> None:
        self.name = os.fspath(path)
        self.path = platform.full_path(self.name)
        self._folder = Folder(self.path)
        self._may_map = map
        status = self.path.stat()
        self._identity = ("folder", str(self.path), status.st_dev, status.st_ino)

    @property
    def identity(self) -> tuple[object, ...]:
        return self._identity

    def read_into(self, offset: int, buffer: memoryview) -> None:
        if buffer:
            raise UnsupportedError(f"{self.name}: is a folder")

    def sibling(self, relative: str) -> Source:
        return _open_member(self._folder, relative, self._may_map)

    def names(self) -> list[str]:
        return self._folder.names()

    def files(self) -> list[str]:
        return self._folder.files()

    def everything(self) -> list[str]:
        return self._folder.everything()

    def __reduce__(self) -> tuple[object, ...]:
        return reopen, (partial(FolderSource, str(self.path), map=self._may_map), self.identity)

    def close(self) -> None:
        return None
