"""The contract of random-access bytes in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from holdall.check import SHORT
from holdall.errors import ClosedError, FormatError, UnsupportedError
from holdall.sizes import tuned
from holdall.source.buffers import Buffers

__all__ = ["CHUNK", "Source"]

CHUNK = tuned(4 << 20)  # the unit of every streamed read: large enough for the disk, small enough for the cache


class Source(ABC):
    """Random-access bytes of a known size.

    Two ways out, for two purposes. :meth:`view` hands out a window that may be a memory map: for arrays
    that the caller keeps. :meth:`read` and :meth:`read_into` are positioned reads: for everything that
    passes over the bytes once, so that resident memory does not grow with the file and a file that
    shrinks raises instead of killing the process.
    """

    name: str  # how people call it: the path or URL as given
    size: int
    is_folder = False
    far = False  # its bytes come over a network: hashes are checked before anything is handed out
    checked = False  # it proves what its file states hashes of before it hands it out
    trusted = False  # the caller wants no hash compared
    member = ""  # its name inside its set; empty for what was opened by itself

    @property
    @abstractmethod
    def identity(self) -> tuple[object, ...]:
        """Equal as long as the content has not been replaced; survives pickling."""

    @abstractmethod
    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` from ``offset`` on, wholly, or raise FormatError."""

    def read(self, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset`` on. The range must lie inside the source."""
        self._inside(offset, size)
        buffer = bytearray(size)
        self.read_into(offset, memoryview(buffer))
        return bytes(buffer)

    def view(self, offset: int, size: int) -> memoryview:
        """A read-only window on the bytes; without a copy where the source can."""
        return memoryview(self.read(offset, size))

    @property
    def lanes(self) -> int:
        """Reads that are worth having under way at once."""
        return 2

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Hint that the ranges (start, stop) are read next. A source for which a read is cheap does nothing."""
        return

    def fetch(self, ranges: Iterable[tuple[int, int]]) -> Source:
        """The same bytes with ``ranges`` (start, stop) on their way into memory.

        Returns at once: reading waits for what it needs. A source for which a read is cheap returns itself.
        """
        return self

    @property
    def mapped(self) -> bool:
        """True when :meth:`view` costs no copy."""
        return False

    def chunks(self, offset: int, size: int, chunk: int = CHUNK) -> Iterator[memoryview]:
        """The range piece by piece. A piece that is kept stays as it is; memory of others is used again."""
        self._inside(offset, size)
        buffers = Buffers(min(chunk, size))
        for start in range(offset, offset + size, chunk):
            piece = buffers.take(min(chunk, offset + size - start))
            self.read_into(start, piece)
            yield piece
            del piece  # or it would look as if it were kept

    def sibling(self, relative: str) -> Source:
        """Another file of the same set, named relative to this one; never outside its folder."""
        raise UnsupportedError(f"{self.name}: has no folder in which {relative!r} could be")

    def expect(self, names: Iterable[str]) -> None:
        """Hint that these siblings are opened next. A source for which that is cheap does nothing."""
        return

    def names(self) -> list[str]:
        """The names of the files beside this one, or inside it when it is a folder."""
        raise UnsupportedError(f"{self.name}: has no folder to list")

    def everything(self) -> list[str]:
        """All files below a folder, at any depth, hidden ones too; empty where they cannot be listed."""
        return []

    def files(self) -> list[str]:
        """The files of the same folder and of its subfolders, one level down, as :meth:`sibling` takes them."""
        raise UnsupportedError(f"{self.name}: has no folder to list")

    @property
    def opened(self) -> bool:
        """False while nothing has been looked at: what is opened on demand has no identity before."""
        return True

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError(f"{self.name}: a {type(self).__name__} cannot be pickled; pickle the model, or what names it")

    @abstractmethod
    def close(self) -> None:
        """Let go of the file. Views that were handed out stay valid."""

    def _inside(self, offset: int, size: int) -> None:
        if not 0 <= offset <= self.size or not 0 <= size <= self.size - offset:
            raise FormatError(
                SHORT.id, offset, f"{self.name}: bytes {offset}..{offset + size} are outside its {self.size} bytes"
            )

    def _closed(self) -> ClosedError:
        return ClosedError(f"{self.name}: is closed")

    def _shrank(self, offset: int, missing: int) -> FormatError:
        return FormatError(SHORT.id, offset, f"{self.name}: ended {missing} bytes early: it was cut while open")
