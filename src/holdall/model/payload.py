"""Where the bytes of a tensor or an asset come from: a range of a source, memory, or a computation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar

from holdall.base.buffer_sizes import buffer_size
from holdall.errors import ContentError
from holdall.source import CHUNK, Source
from holdall.source.buffers import regroup

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Computed", "InMemory", "Joined", "Payload", "SourceRange", "Span"]

_SMALL = buffer_size(1 << 16)  # bytes that are joined at once: shared memory would cost more than it saves

Span = tuple[Source, int, int]  # a range of a source: the first byte, and the one after the last


class Payload(ABC):
    """A known number of bytes, which are read or computed only when asked for."""

    size: int
    in_order: ClassVar[bool] = False  # True: a part takes as long as all that is before it, so one pass takes all parts

    @property
    def made(self) -> int:
        """The bytes that are made to have all of this payload: more than its size where it shares a deflated block."""
        return self.size

    @abstractmethod
    def slice(self, start: int, stop: int) -> memoryview:
        """The bytes ``start..stop``, read-only, without a copy where possible."""

    @abstractmethod
    def chunks(self, piece: int = CHUNK) -> Iterator[memoryview]:
        """All bytes in order, in pieces of ``piece`` bytes and a rest. A piece that is kept stays valid."""

    def view(self) -> memoryview:
        """All bytes at once."""
        return self.slice(0, self.size)

    def read(self) -> bytes:
        """Read all bytes in memory of their own, by positioned reads: reading a document does not map its file."""
        return b"".join(self.chunks())

    def spans(self) -> Iterator[Span]:
        """The ranges of sources that reading all bytes touches; none for bytes that are in no file."""
        return iter(())


@dataclass(frozen=True, slots=True)
class SourceRange(Payload):
    """A range of a source."""

    source: Source
    offset: int
    size: int

    @property
    def reach(self) -> tuple[int, int]:
        """The bytes (start, stop) of the source that reading all bytes touches."""
        return self.offset, self.offset + self.size

    def slice(self, start: int, stop: int) -> memoryview:
        return self.source.view(self.offset + start, stop - start)

    def chunks(self, piece: int = CHUNK) -> Iterator[memoryview]:
        return self.source.chunks(self.offset, self.size, piece)

    def spans(self) -> Iterator[Span]:
        yield self.source, self.offset, self.offset + self.size


class InMemory(Payload):
    """Bytes in memory: any contiguous buffer."""

    __slots__ = ("_buffer", "size")

    def __init__(self, buffer: bytes | bytearray | memoryview | NDArray[Any]) -> None:
        # A view keeps a bytearray from being resized. Any, because numpy's types call arrays buffers only from Python
        # 3.12 on.
        self._buffer: Any = memoryview(buffer) if isinstance(buffer, bytearray) else buffer
        self.size: int = len(buffer) if isinstance(buffer, (bytes, bytearray)) else buffer.nbytes

    @property
    def data(self) -> memoryview:
        """All bytes. A view is made when asked for, since the garbage collector has to visit every view there is."""
        if not self.size:
            return memoryview(b"")  # a view of an empty shape cannot be cast
        return memoryview(self._buffer).cast("B").toreadonly()

    def copy(self) -> bytes | memoryview:
        """All bytes of a small payload. An array is copied, because numpy keeps 64 bytes for each that gave a view."""
        return self.data if isinstance(self._buffer, (bytes, memoryview)) else self._buffer.tobytes()

    def __reduce__(self) -> tuple[object, ...]:
        return InMemory, (bytes(self.data),)

    def slice(self, start: int, stop: int) -> memoryview:
        return self.data[start:stop]

    def chunks(self, piece: int = CHUNK) -> Iterator[memoryview]:
        data = self.data
        for start in range(0, self.size, piece):
            yield data[start : start + piece]


class Joined(Payload):
    """The bytes of several payloads, one after the other.

    >>> Joined([InMemory(b"hold"), InMemory(b"all")]).read()
    b'holdall'
    """

    __slots__ = ("_starts", "inputs", "size")

    def __init__(self, inputs: Sequence[Payload]) -> None:
        self.inputs = tuple(inputs)
        self._starts = list(accumulate((each.size for each in self.inputs), initial=0))
        self.size: int = self._starts[-1]

    def find(self, start: int, stop: int) -> tuple[Payload, int, int] | None:
        """Find the payload that has the bytes ``start..stop``, and where they are in it; None if several have them."""
        number = min(bisect_right(self._starts, start), len(self.inputs)) - 1
        if number < 0 or stop > self._starts[number + 1]:
            return None
        return self.inputs[number], start - self._starts[number], stop - self._starts[number]

    def slice(self, start: int, stop: int) -> memoryview:
        found = self.find(start, stop)
        if found is not None:
            return found[0].slice(*found[1:])
        pieces = bytearray()
        for payload, first in zip(self.inputs, self._starts, strict=False):
            low, high = max(start, first) - first, min(stop, first + payload.size) - first
            if low < high:
                pieces += payload.slice(low, high)
        return memoryview(bytes(pieces))

    def chunks(self, piece: int = CHUNK) -> Iterator[memoryview]:
        return regroup((data for payload in self.inputs for data in payload.chunks(piece)), piece)

    def spans(self) -> Iterator[Span]:
        for payload in self.inputs:
            yield from payload.spans()


@dataclass(frozen=True, slots=True)
class Computed(Payload):
    """Bytes that a function makes, piece by piece: a cast, a transposition, a quantization.

    Pieces are passed on without a copy, so ``make`` gives each memory of its own. ``inputs`` are the payloads that it
    reads. ``is_held``: it has all bytes in memory before it yields the first, and may be called before its turn.

    >>> Computed(6, lambda: [b"hold", b"all"[:2]]).read()
    b'holdal'
    """

    size: int
    make: Callable[[], Iterable[bytes | bytearray | memoryview]]
    inputs: tuple[Payload, ...] = ()
    is_held: bool = False
    in_order = True

    @property
    def made(self) -> int:
        # Ranges of a file are read, not made: how often that may be is counted apart.
        return max(self.size, sum(each.made for each in self.inputs if not isinstance(each, SourceRange)))

    def slice(self, start: int, stop: int) -> memoryview:
        if stop >= self.size:
            return memoryview(self.read())[start:]
        kept, at = bytearray(), 0
        for piece in self.chunks():
            kept += piece[max(0, start - at) : max(0, stop - at)]
            at += len(piece)
            if at >= stop:  # the rest is not needed
                break
        return memoryview(bytes(kept))

    def spans(self) -> Iterator[Span]:
        for payload in self.inputs:
            yield from payload.spans()

    def chunks(self, piece: int = CHUNK) -> Iterator[memoryview]:
        made = 0
        if self.size <= min(piece, _SMALL):
            whole = b"".join(self.make())
            self._check_made(len(whole))
            if whole:
                yield memoryview(whole)
            return
        for window in regroup(self.make(), min(piece, max(self.size, 1))):  # no larger a buffer than it needs
            made += len(window)
            yield window
            del window  # a buffer without references is used again
        self._check_made(made)

    def _check_made(self, made: int) -> None:
        if made != self.size:
            raise ContentError(f"a payload of {self.size} bytes was announced, but {made} were made")
