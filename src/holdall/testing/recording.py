"""A source that records the reads from it."""

from __future__ import annotations

from holdall.source import Source

__all__ = ["RecordingSource"]


class RecordingSource(Source):
    """Forwards to another source; ``reads`` lists (offset, size) of each read, members included.

    It offers no map, so that all access is by reads.
    """

    def __init__(self, source: Source, reads: list[tuple[int, int]] | None = None) -> None:
        self.inner = source
        self.name = source.name
        self.size = source.size
        self.is_folder = source.is_folder
        self.reads: list[tuple[int, int]] = [] if reads is None else reads

    @property
    def identity(self) -> tuple[object, ...]:
        return self.inner.identity

    @property
    def bytes_read(self) -> int:
        """The bytes of all reads together."""
        return sum(size for _, size in self.reads)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self.reads.append((offset, len(buffer)))
        self.inner.read_into(offset, buffer)

    def sibling(self, relative: str) -> Source:
        return RecordingSource(self.inner.sibling(relative), self.reads)

    def names(self) -> list[str]:
        return self.inner.names()

    def files(self) -> list[str]:
        return self.inner.files()

    def close(self) -> None:
        self.inner.close()
