"""Where the bytes of a tensor or an asset are: in a source, in memory, or still to be made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdall.errors import ContentError
from holdall.source import CHUNK, Source
from holdall.source.buffers import regroup

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Held", "Made", "Payload", "Range", "Span"]

Span = tuple[Source, int, int]  # a stretch of a source: the first byte, and the one after the last


class Payload(ABC):
    """A known number of bytes that move only when asked for."""

    size: int

    @abstractmethod
    def part(self, start: int, stop: int) -> memoryview:
        """The bytes ``start..stop``, read-only, without a copy where they allow it."""

    @abstractmethod
    def chunks(self, piece: int = CHUNK) -> Iterator[memoryview]:
        """All bytes in order, ``piece`` at a time but for the last. A piece that is kept stays as it is."""

    def view(self) -> memoryview:
        """All bytes at once."""
        return self.part(0, self.size)

    def read(self) -> bytes:
        """All bytes in memory of the caller's own, by positioned reads: a document is no reason to map its file."""
        return b"".join(self.chunks())

    def spans(self) -> Iterator[Span]:
        """The stretches of sources that reading all of it touches; none for bytes that are in no file."""
        return iter(())


@dataclass(frozen=True, slots=True)
class Range(Payload):
    """A stretch of a source."""

    source: Source
    offset: int
    size: int

    @property
    def reach(self) -> tuple[int, int]:
        """The bytes (start, stop) of the source that reading all of it touches."""
        return self.offset, self.offset + self.size

    def part(self, start: int, stop: int) -> memoryview:
        return self.source.view(self.offset + start, stop - start)

    def chunks(self, piece: int = CHUNK) -> Iterator[memoryview]:
        return self.source.chunks(self.offset, self.size, piece)

    def spans(self) -> Iterator[Span]:
        yield self.source, self.offset, self.offset + self.size


class Held(Payload):
    """Bytes in memory: any contiguous buffer."""

    __slots__ = ("_buffer", "size")

    def __init__(self, buffer: bytes | bytearray | memoryview | NDArray[Any]) -> None:
        # A view keeps a bytearray from being resized. (Any: numpy's types call arrays buffers from Python 3.12 on.)
        self._buffer: Any = memoryview(buffer) if isinstance(buffer, bytearray) else buffer
        self.size: int = len(buffer) if isinstance(buffer, (bytes, bytearray)) else buffer.nbytes

    @property
    def data(self) -> memoryview:
        """All of them. Made when asked for: views are objects that the garbage collector has to look at."""
        return self._view().cast("B").toreadonly() if self.size else memoryview(b"")  # no empty shape can be cast

    def _view(self) -> memoryview:
        return memoryview(self._buffer)

    def __reduce__(self) -> tuple[object, ...]:
        return Held, (bytes(self.data),)

    def part(self, start: int, stop: int) -> memoryview:
        return self.data[start:stop]

    def chunks(self, piece: int = CHUNK) -> Iterator[memoryview]:
        data = self.data
        for start in range(0, self.size, piece):
            yield data[start : start + piece]


@dataclass(frozen=True, slots=True)
class Made(Payload):
    """Bytes that a function makes, piece by piece: a cast, a transposition, a quantization.

    Pieces are passed on without a copy, so ``make`` gives each memory of its own. ``of`` are the payloads that it reads
    to make them.

    >>> Made(6, lambda: [b"hold", b"all"[:2]]).read()
    b'holdal'
    """

    size: int
    make: Callable[[], Iterable[bytes | bytearray | memoryview]]
    of: tuple[Payload, ...] = ()

    def part(self, start: int, stop: int) -> memoryview:
        return memoryview(self.read())[start:stop]

    def spans(self) -> Iterator[Span]:
        for payload in self.of:
            yield from payload.spans()

    def chunks(self, piece: int = CHUNK) -> Iterator[memoryview]:
        made = 0
        for window in regroup(self.make(), piece):
            made += len(window)
            yield window
            del window  # or it would look as if it were kept
        if made != self.size:
            raise ContentError(f"a payload of {self.size} bytes was announced, but {made} were made")
