"""Bytes that are in memory already."""

from __future__ import annotations

from holdall.source.base import Source

__all__ = ["BytesSource"]


class BytesSource(Source):
    """A bytes-like object as a source; views are windows on the object itself.

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
        """All of it."""
        if self._data is None:
            raise self._closed()
        return self._data

    @property
    def mapped(self) -> bool:
        return True

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self._inside(offset, len(buffer))
        buffer[:] = self.data[offset : offset + len(buffer)]

    def view(self, offset: int, size: int) -> memoryview:
        self._inside(offset, size)
        return self.data[offset : offset + size]

    def close(self) -> None:
        self._data = None
