"""Plans of files: every piece with its exact offset, and the digests to take while the bytes are written.

Formats make plans and sinks write them; neither knows the other. The same model and options give the same plan.

======== =======================================================================================================
Constant bytes that are known now: headers, tables
Stream   a payload, which is read when its turn comes
Run      many payloads of a table, as columns
Tap      a digest of a range, taken while its bytes are written
Late     a piece of known size at any offset, made from the results of taps, tails and other late pieces
Tail     a piece after all payloads, whose size is known only when they are written
======== =======================================================================================================

Bytes between pieces are zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from holdall.base.buffer_sizes import buffer_size
from holdall.errors import ContentError
from holdall.model.payload import InMemory, Payload, SourceRange
from holdall.source.digests import Parts, Tap, TapKind

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["Constant", "FolderPlan", "Late", "Payloads", "Piece", "Placed", "Plan", "Results", "Run", "Stream", "Tail"]

_BLOCK = buffer_size(1 << 14)  # rows of a run whose numbers are Python objects at a time
_TINY = buffer_size(4096)  # bytes of payloads that are read together with others,
_TOGETHER = 512  # and at most this many of them


@dataclass(frozen=True, slots=True)
class Placed:
    """The offset and the bytes of a late piece or a tail that was made."""

    offset: int
    data: bytes


Results: TypeAlias = Mapping[str, Any]  # a tap's digest (bytes, or int for crc32), a late piece's or tail's Placed


@dataclass(frozen=True, slots=True)
class Constant:
    """Bytes that are known when the plan is made."""

    offset: int
    data: bytes

    @property
    def size(self) -> int:
        """Bytes of the piece."""
        return len(self.data)


@dataclass(slots=True)  # a plan has one for each tensor; making a frozen one takes three times as long
class Stream:
    """A payload at its offset."""

    offset: int
    payload: Payload

    @property
    def size(self) -> int:
        """Bytes of the piece."""
        return self.payload.size


class Payloads(Protocol):
    """What a run is made of: the tensors of a model, or any other numbered payloads."""

    def payload(self, row: int, /) -> Payload | None:
        """The payload in ``row``; None for a tensor without data."""

    def read(self, rows: NDArray[np.intp], /) -> Sequence[bytes | memoryview]:
        """The bytes of the payloads in ``rows``, which are small; none for a tensor without data."""

    def sources(self) -> Iterable[Source]:
        """The sources of payloads that are ranges of one."""


@dataclass(slots=True, eq=False)
class Run:
    """The payloads of the ``rows`` of a table, each at its offset in ``starts``, in that order.

    A run takes 16 bytes a payload, where a Stream of each would take more memory than most indexes do.
    """

    offset: int
    size: int
    table: Payloads
    rows: Sequence[int] | NDArray[np.intp]
    starts: NDArray[np.uint64]

    def payloads(self) -> Iterator[tuple[int, Payload]]:
        """The payloads with their offsets, in order; none for tensors without data."""
        payload_of = self.table.payload
        for start in range(0, len(self.rows), _BLOCK):
            rows = self.rows[start : start + _BLOCK]
            numbers: Iterable[int] = rows if isinstance(rows, Sequence) else rows.tolist()
            for at, row in zip(self.starts[start : start + _BLOCK].tolist(), numbers, strict=True):
                payload = payload_of(row)
                if payload is not None:
                    yield at, payload

    def steps(self) -> Iterator[tuple[int, Payload | bytes]]:
        """What is written, with its offset, in order: payloads, and the bytes of many tiny ones that were read at once.

        Remote payloads come one by one, since those that follow are asked for before they are read.
        """
        import numpy as np

        if any(source.is_remote for source in self.table.sources()):
            yield from self.payloads()
            return
        ends = np.append(self.starts[1:], np.uint64(self.offset + self.size))
        is_tiny = ends - self.starts <= np.uint64(_TINY)
        for start in range(0, len(self.rows), _TOGETHER):
            block = is_tiny[start : start + _TOGETHER]
            edges = [0, *((block[1:] != block[:-1]).nonzero()[0] + 1).tolist(), len(block)]
            for first, last in pairwise(edges):
                rows, starts = self.rows[start + first : start + last], self.starts[start + first : start + last]
                if block[first] and last - first > 1:
                    yield int(starts[0]), _join(starts.tolist(), self.table.read(np.asarray(rows, np.intp)))
                else:
                    yield from Run(self.offset, self.size, self.table, rows, starts).payloads()


def _join(starts: Sequence[int], found: Sequence[bytes | memoryview]) -> bytes:
    """Join bytes that begin at ``starts``, with zeros between them."""
    parts: list[bytes | memoryview] = []
    position = starts[0]
    for at, data in zip(starts, found, strict=True):
        if at != position:
            if at < position:
                raise ContentError(f"the plan does not hold: there are bytes up to {position} before a piece at {at}")
            parts.append(bytes(at - position))
        parts.append(data)
        position = at + len(data)
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Late:
    """A piece of fixed size that is made last, from the results that ``needs`` names."""

    name: str
    offset: int
    size: int
    needs: tuple[str, ...]
    make: Callable[[Results], bytes]


@dataclass(frozen=True, slots=True)
class Tail:
    """A piece after all payloads, at the next multiple of ``align``; its size may depend on their bytes."""

    name: str
    needs: tuple[str, ...]
    make: Callable[[Results], bytes]
    align: int = 1


Piece: TypeAlias = Constant | Stream | Run | Late


@dataclass(slots=True)
class Plan:
    """One file, built front to back with the methods below; ``cursor`` is the next free byte.

    >>> plan = Plan()
    >>> plan.put(b"HEAD")
    0
    >>> plan.align(8)
    8
    >>> plan.cursor
    8
    """

    pieces: list[Piece] = field(default_factory=list)
    taps: list[Tap] = field(default_factory=list)
    tails: list[Tail] = field(default_factory=list)
    cursor: int = 0
    notes: list[str] = field(default_factory=list)  # decisions of the writer that a report should mention
    # Says what the bytes are, if an interrupted write of them may be continued by another: one payload, from a URL.
    identify: Callable[[], str] | None = None
    check: Callable[[Results], None] | None = None  # raises for the results of wrong bytes

    def put(self, data: bytes) -> int:
        """Append known bytes. Returns their offset."""
        return self._append(Constant(self.cursor, data))

    def stream(self, payload: Payload) -> int:
        """Append a payload. Returns its offset."""
        return self._append(Stream(self.cursor, payload))

    def run(self, table: Payloads, rows: Sequence[int] | NDArray[np.intp], starts: NDArray[np.uint64]) -> None:
        """Append the payloads of the ``rows`` of a table, which begin at ``starts``, after the cursor and ascending."""
        if len(rows):
            last = table.payload(int(rows[-1]))
            end = int(starts[-1]) + (0 if last is None else last.size)
            self._append(Run(self.cursor, end - self.cursor, table, rows, starts))

    def payloads(self) -> Iterator[tuple[int, Payload]]:
        """All payloads of streams and runs, with their offsets."""
        for piece in self.pieces:
            if isinstance(piece, Stream):
                yield piece.offset, piece.payload
            elif isinstance(piece, Run):
                yield from piece.payloads()

    def late(self, name: str, size: int, needs: tuple[str, ...], make: Callable[[Results], bytes]) -> int:
        """Append a piece that is made from results. Returns its offset."""
        return self._append(Late(name, self.cursor, size, needs, make))

    def tail(self, name: str, needs: tuple[str, ...], make: Callable[[Results], bytes], align: int = 1) -> None:
        """Add a piece after all others."""
        self.tails.append(Tail(name, needs, make, align))

    def tap(
        self,
        name: str,
        kind: TapKind,
        start: int,
        stop: int | str | None,
        *,
        reread: bool = False,
        every: int | None = None,
        parts: Parts | None = None,
    ) -> None:
        """Take a digest of a range while it is written; see :class:`Tap`."""
        self.taps.append(Tap(name, kind, start, stop, reread, every, parts))

    def make_late(
        self, name: str, placeholder: bytes, needs: tuple[str, ...], make: Callable[[Results], bytes]
    ) -> bool:
        """Turn the known bytes that equal ``placeholder`` into a late piece; False if there are none.

        >>> plan = Plan()
        >>> plan.put(b"size=????;")
        0
        >>> plan.make_late("size", b"????", (), lambda results: b"1234")
        True
        >>> [type(piece).__name__ for piece in plan.pieces]
        ['Constant', 'Late', 'Constant']
        """
        for row, piece in enumerate(self.pieces):
            if isinstance(piece, Constant):
                data = piece.data
            elif isinstance(piece, Stream) and isinstance(piece.payload, InMemory) and piece.size >= len(placeholder):
                data = bytes(piece.payload.data)
            else:
                continue
            at = data.find(placeholder)
            if at >= 0:
                start, end = piece.offset + at, at + len(placeholder)
                around = [Constant(piece.offset, data[:at]), Constant(piece.offset + end, data[end:])]
                late = Late(name, start, len(placeholder), needs, make)
                self.pieces[row : row + 1] = [new for new in (around[0], late, around[1]) if new.size]
                return True
        return False

    def align(self, multiple: int) -> int:
        """Leave zeros up to the next multiple. Returns the cursor."""
        self.cursor += -self.cursor % multiple
        return self.cursor

    def skip(self, count: int) -> list[Piece]:
        """The pieces without the first ``count`` bytes of a plan that is one range of a source."""
        if not count:
            return self.pieces
        (piece,) = self.pieces
        assert isinstance(piece, Stream) and isinstance(piece.payload, SourceRange)
        payload = piece.payload
        return [Stream(count, SourceRange(payload.source, payload.offset + count, payload.size - count))]

    @property
    def size(self) -> int | None:
        """Bytes of the file; None if it has a tail, whose size is not known yet."""
        return None if self.tails else self.cursor

    def _append(self, piece: Piece) -> int:
        self.pieces.append(piece)
        self.cursor = piece.offset + piece.size
        return piece.offset


@dataclass(slots=True)
class FolderPlan:
    """Several files by relative name, written into a fresh folder.

    Later files may need results of earlier ones as ``"name/tap"``, and their sizes as ``"name/size"``. Files that need
    no results of each other are written at the same time.
    """

    files: dict[str, Plan] = field(default_factory=dict)

    @property
    def is_resumable(self) -> bool:
        """Whether an interrupted write may be continued."""
        return any(plan.identify is not None for plan in self.files.values())
