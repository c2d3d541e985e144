"""Files on a disk: a descriptor for positioned reads, a map for views."""

from __future__ import annotations

import mmap
import os
import stat
import threading
from pathlib import Path

from holdall.errors import UnsupportedError
from holdall.source.base import Source
from holdall.source.folder import Folder

__all__ = ["FileSource"]


class FileSource(Source):
    """One regular file. With ``map=True`` views come from a memory map, made when the first one is asked for."""

    def __init__(self, path: str | os.PathLike[str], *, map: bool = True, descriptor: int | None = None) -> None:
        self.name = os.fspath(path)
        self.path = Path(self.name).absolute()
        # O_NONBLOCK: a FIFO given as a file is refused below instead of hanging the open.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        fd = os.open(path, flags) if descriptor is None else descriptor
        self._fd: int | None = fd
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise UnsupportedError(f"{self.name}: is not a regular file")
        self.size = status.st_size
        self._identity = ("file", str(self.path), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        self._may_map = map
        self._map: mmap.mmap | None = None
        self._lock = threading.Lock()

    @property
    def identity(self) -> tuple[object, ...]:
        return self._identity

    @property
    def mapped(self) -> bool:
        return self._may_map

    @property
    def descriptor(self) -> int:
        """The open file, for copies inside the kernel."""
        if self._fd is None:
            raise self._closed()
        return self._fd

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self._inside(offset, len(buffer))
        fd = self.descriptor
        while buffer:
            got = os.preadv(fd, [buffer], offset)
            if got == 0:
                raise self._shrank(offset, len(buffer))
            offset += got
            buffer = buffer[got:]

    def view(self, offset: int, size: int) -> memoryview:
        if not self._may_map or size == 0:
            return super().view(offset, size)
        self._inside(offset, size)
        return memoryview(self._mapping())[offset : offset + size]

    def _mapping(self) -> mmap.mmap:
        with self._lock:
            if self._map is None:
                fd = self.descriptor
                if os.fstat(fd).st_size < self.size:  # a map beyond the end would be a bus error
                    raise self._shrank(os.fstat(fd).st_size, self.size - os.fstat(fd).st_size)
                self._map = mmap.mmap(fd, self.size, access=mmap.ACCESS_READ)
            return self._map

    def sibling(self, relative: str) -> Source:
        return Folder(self.path.parent).source(relative, map=self._may_map)

    def names(self) -> list[str]:
        return Folder(self.path.parent).names()

    def files(self) -> list[str]:
        return Folder(self.path.parent).files()

    def close(self) -> None:
        # The map is not closed: arrays may look into it. It goes when the last of them does.
        self._map = None
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "_fd", None) is not None:
            self.close()
