"""The contract of sources: random access to bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from holdall.base.buffer_sizes import buffer_size
from holdall.base.check import SHORT
from holdall.errors import ClosedError, FormatError, UnsupportedError
from holdall.source.buffers import Buffers

__all__ = ["CHUNK", "Source"]

CHUNK = buffer_size(4 << 20)  # bytes of one streamed read: large enough for the disk, small enough for the cache


class Source(ABC):
    """Random-access bytes of a known size.

    There are two ways to the bytes. :meth:`view` returns a window that may be a memory map: it is for arrays that the
    caller keeps. :meth:`read` and :meth:`read_into` are positioned reads: they are for bytes that are needed once, so
    that resident memory does not grow with the file, and a file that shrinks raises and does not kill the process.
    """

    name: str  # the path or URL as the caller gave it
    size: int
    is_folder = False
    is_remote = False  # its bytes come over a network, so hashes are compared before bytes are returned
    is_checked = False  # it compares the hashes that its file states before it returns bytes
    is_trusted = False  # the caller wants no hashes compared
    member = ""  # its name inside its set; empty for a single file
    origins: frozenset[str] = frozenset()  # to which requests may be sent, beside its own

    @property
    @abstractmethod
    def identity(self) -> tuple[object, ...]:
        """Equal as long as the content has not been replaced, also in another process."""

    @abstractmethod
    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill all of ``buffer`` from ``offset`` on, or raise FormatError."""

    def read(self, offset: int, size: int) -> bytes:
        """Read ``size`` bytes from ``offset`` on. The range must lie inside the source."""
        self._check_inside(offset, size)
        buffer = bytearray(size)
        self.read_into(offset, memoryview(buffer))
        return bytes(buffer)

    def view(self, offset: int, size: int) -> memoryview:
        """Return a read-only window on the bytes, without a copy if the source can."""
        return memoryview(self.read(offset, size))

    @property
    def parallel_reads(self) -> int:
        """How many reads at the same time are worthwhile."""
        return 2

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Hint that the ranges (start, stop) are read next. Local sources do nothing."""
        return

    def fetch(self, ranges: Iterable[tuple[int, int]]) -> Source:
        """Return a source of the same bytes that loads ``ranges`` (start, stop) into memory in the background.

        Returns at once; a read waits for the ranges. A local source returns itself.
        """
        return self

    @property
    def unchecked(self) -> Source:
        """The same bytes without a comparison of hashes, for a reader that compares all of them itself."""
        return self

    @property
    def is_mapped(self) -> bool:
        """Whether :meth:`view` returns the bytes without a copy."""
        return False

    def chunks(self, offset: int, size: int, chunk: int = CHUNK) -> Iterator[memoryview]:
        """Yield the range piece by piece. The memory of a piece is reused once the caller no longer refers to it."""
        self._check_inside(offset, size)
        buffers = Buffers(min(chunk, size))
        for start in range(offset, offset + size, chunk):
            piece = buffers.take(min(chunk, offset + size - start))
            self.read_into(start, piece)
            yield piece
            del piece  # a piece that is still referenced is not used again

    def sibling(self, relative: str) -> Source:
        """Open another file of the same set by its path relative to this one, which must stay inside the folder."""
        raise UnsupportedError(f"{self.name}: has no folder in which {relative!r} could be")

    def expect(self, names: Iterable[str]) -> None:
        """Hint that these siblings are opened next. Local sources do nothing."""
        return

    def names(self) -> list[str]:
        """The names of the files beside this one, or inside it when it is a folder."""
        raise UnsupportedError(f"{self.name}: has no folder to list")

    def everything(self) -> list[str]:
        """All files below a folder, at any depth, hidden ones too; empty if they cannot be listed."""
        return []

    def files(self) -> list[str]:
        """The files of the same folder and of its subfolders, one level down, as :meth:`sibling` takes them."""
        raise UnsupportedError(f"{self.name}: has no folder to list")

    @property
    def is_opened(self) -> bool:
        """False until a deferred source is first opened; before that it has no identity."""
        return True

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError(f"{self.name}: a {type(self).__name__} cannot be pickled; pickle the model, or what names it")

    @abstractmethod
    def close(self) -> None:
        """Close the file. Views that were returned stay valid."""

    def _check_inside(self, offset: int, size: int) -> None:
        if not 0 <= offset <= self.size or not 0 <= size <= self.size - offset:
            raise FormatError(
                SHORT.id, offset, f"{self.name}: bytes {offset}..{offset + size} are outside its {self.size} bytes"
            )

    def _closed_error(self) -> ClosedError:
        return ClosedError(f"{self.name}: is closed")

    def _cut_error(self, offset: int, missing: int) -> FormatError:
        return FormatError(SHORT.id, offset, f"{self.name}: ended {missing} bytes early: it was cut while open")
