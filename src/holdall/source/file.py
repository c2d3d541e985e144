"""Files on a disk: positioned reads, and a map for views."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from holdall.errors import UnsupportedError
from holdall.source.base import Source
from holdall.source.descriptors import Descriptor, mapping
from holdall.source.folder import Folder, again

__all__ = ["FileSource"]


def _open(path: str) -> int:
    # O_NONBLOCK: a FIFO given as a file is refused instead of hanging the open.
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


class FileSource(Source):
    """One regular file, or the ``member`` of a folder. With ``map=True`` views come from a memory map.

    Nothing is read twice without a look at the file: one that was cut, written to or replaced since it was opened
    raises FormatError.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, map: bool = True, folder: Folder | None = None, member: str = ""
    ) -> None:
        self.name = os.fspath(path)
        self.path = Path(self.name).absolute()
        self.member = member
        self._folder = folder
        opener = partial(_open, str(self.path)) if folder is None else partial(folder.open, member)
        try:
            self._file = Descriptor(self.name, opener)
        except OSError as error:
            if error.filename == str(self.path):
                error.filename = self.name  # as it was given
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
    def mapped(self) -> bool:
        return self._may_map

    @contextmanager
    def held(self) -> Iterator[int]:
        """The open file, for copies inside the kernel; raises at the end when somebody wrote to it meanwhile."""
        with self._file as fd:
            yield fd
            self._file.check(fd)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self._inside(offset, len(buffer))
        with self._file as fd:
            try:
                while buffer:
                    got = os.preadv(fd, [buffer], offset)
                    if got == 0:
                        raise self._shrank(offset, len(buffer))
                    offset += got
                    buffer = buffer[got:]
            except OSError as error:
                text = f"{os.strerror(error.errno or 0)} while reading at byte {offset:#x}"
                raise OSError(error.errno, text, self.name) from error
            self._file.check(fd)  # after the bytes: whoever changed them has changed the time before

    def view(self, offset: int, size: int) -> memoryview:
        if not self._may_map or size == 0:
            return super().view(offset, size)
        self._inside(offset, size)
        with self._file as fd:
            self._file.check(fd)  # before the map: beyond the end of a file it would be a bus error
            if self._map is None:
                self._map = mapping(fd, self.size)
            found = self._map
        return super().view(offset, size) if found is None else memoryview(found)[offset : offset + size]

    def sibling(self, relative: str) -> Source:
        return Folder(self.path.parent).source(relative, map=self._may_map)

    def names(self) -> list[str]:
        return Folder(self.path.parent).names()

    def files(self) -> list[str]:
        return Folder(self.path.parent).files()

    def close(self) -> None:
        # The map is not closed: arrays may look into it. It goes when the last of them does.
        self._map = None
        self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()

    def __reduce__(self) -> tuple[object, ...]:
        path = str(self.path)
        opener = partial(FileSource, path, map=self._may_map, folder=self._folder, member=self.member)
        return again, (opener, self.identity)
