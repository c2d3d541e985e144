"""Bytes in memory as sources."""

from __future__ import annotations

from collections.abc import Mapping

from holdall.errors import FormatError, UnsupportedError
from holdall.source.base import Source
from holdall.source.folder import MISSING, split_contained

__all__ = ["BytesFolder", "BytesSource"]


class BytesSource(Source):
    """A bytes-like object as a source. Views are windows on the object itself.

    >>> BytesSource(b"abcdef").read(2, 3)
    b'cde'
    """

    def __init__(self, data: bytes | bytearray | memoryview, name: str = "<bytes>") -> None:
        self.name = name
        self._data: memoryview | None = memoryview(data).cast("B").toreadonly()
        self.size = self._data.nbytes

    @property
    def identity(self) -> tuple[object, ...]:
        return ("bytes", self.size)

    @property
    def data(self) -> memoryview:
        """All bytes."""
        if self._data is None:
            raise self._closed_error()
        return self._data

    @property
    def is_mapped(self) -> bool:
        return not self.is_remote  # tests have remote bytes in memory

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self._check_inside(offset, len(buffer))
        buffer[:] = self.data[offset : offset + len(buffer)]

    def view(self, offset: int, size: int) -> memoryview:
        self._check_inside(offset, size)
        return self.data[offset : offset + size]

    def __reduce__(self) -> tuple[object, ...]:
        return BytesSource, (bytes(self.data), self.name)

    def close(self) -> None:
        self._data = None


class BytesFolder(Source):
    """A folder whose files are bytes objects, by relative path.

    >>> folder = BytesFolder({"model.json": b"{}", "parts/one": b"1"})
    >>> folder.names(), folder.sibling("model.json").sibling("parts/one").read(0, 1)
    (['model.json', 'parts'], b'1')
    """

    is_folder = True
    size = 0

    def __init__(self, files: Mapping[str, bytes], name: str = "<folder>") -> None:
        self.name = name
        self._files = files

    @property
    def identity(self) -> tuple[object, ...]:
        return ("folder of bytes", *((name, len(data)) for name, data in self._files.items()))

    def read_into(self, offset: int, buffer: memoryview) -> None:
        if buffer:
            raise UnsupportedError(f"{self.name}: is a folder")

    def sibling(self, relative: str) -> Source:
        split_contained(relative)
        if relative not in self._files:
            raise FormatError(MISSING.id, None, f"the member {relative!r} is not in {self.name}")
        return _BytesMember(self, relative, self._files[relative])

    def names(self) -> list[str]:
        return sorted({name.partition("/")[0] for name in self._files})

    def files(self) -> list[str]:
        return sorted(name for name in self._files if name.count("/") < 2)

    def close(self) -> None:
        return None


class _BytesMember(BytesSource):
    """A file of a :class:`BytesFolder`."""

    def __init__(self, folder: BytesFolder, relative: str, data: bytes) -> None:
        super().__init__(data, f"{folder.name}/{relative}")
        self.member = relative
        self._folder = folder

    def sibling(self, relative: str) -> Source:
        return self._folder.sibling(relative)

    def names(self) -> list[str]:
        return self._folder.names()

    def files(self) -> list[str]:
        return self._folder.files()
