"""A file before it is written: every piece with its exact place, and what is computed as bytes pass.

Formats make plans, sinks carry them out; neither knows the other. A plan is pure: the same model, facts
and options give the same plan.

======== =======================================================================================================
Constant bytes that are known now: headers, tables
Stream   a payload, moved when its turn comes
Tap      a digest over a range, fed as the bytes pass
Late     a piece of known size, anywhere, whose bytes are a function of taps, tails and other late pieces
Tail     a piece after all payloads whose size is not known before they have passed
======== =======================================================================================================

What lies between pieces is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from holdall.payload import Held, Payload

__all__ = ["Constant", "FolderPlan", "Late", "Piece", "Placed", "Plan", "Results", "Stream", "Tail", "Tap"]

TapKind = Literal["crc32", "blake3", "sha256"]


@dataclass(frozen=True, slots=True)
class Placed:
    """A late piece or a tail once it is made: where it is, and its bytes."""

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


@dataclass(slots=True)  # not frozen: a plan has one for each tensor, and a frozen one takes three times as long to make
class Stream:
    """A payload at its place."""

    offset: int
    payload: Payload

    @property
    def size(self) -> int:
        """Bytes of the piece."""
        return self.payload.size


@dataclass(frozen=True, slots=True)
class Late:
    """A piece of fixed size that is made last, from the results named in ``needs``."""

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


@dataclass(frozen=True, slots=True)
class Tap:
    """A digest over ``start..stop``: a byte, the name of the tail before which it ends, or None, the end of the file.

    Late bytes inside the range: a crc32 is combined once they are made; other kinds must say ``reread``,
    and the range is read back. ``every`` asks for a digest of every so many bytes instead of a single one: the
    result is all of them, joined.
    """

    name: str
    kind: TapKind
    start: int
    stop: int | str | None
    reread: bool = False
    every: int | None = None


Piece: TypeAlias = Constant | Stream | Late


@dataclass(slots=True)
class Plan:
    """One file, piece by piece. Built front to back with the methods below; ``cursor`` is the next free byte.

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
    notes: list[str] = field(default_factory=list)  # what the writer decided by itself, for whoever reports it

    def put(self, data: bytes) -> int:
        """Append known bytes; returns where they are."""
        return self._append(Constant(self.cursor, data))

    def stream(self, payload: Payload) -> int:
        """Append a payload; returns where it is."""
        return self._append(Stream(self.cursor, payload))

    def streams(self, payloads: Iterable[Payload], align: int) -> None:
        """Append many payloads, those that have bytes, with zeros up to a multiple of ``align`` after each."""
        at, pieces = self.cursor, self.pieces
        for payload in payloads:
            size = payload.size
            if size:
                pieces.append(Stream(at, payload))
                at += size
                at += -at % align
        self.cursor = at

    def late(self, name: str, size: int, needs: tuple[str, ...], make: Callable[[Results], bytes]) -> int:
        """Append a piece that is made from results; returns where it is."""
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
    ) -> None:
        """Digest a range as it passes; see :class:`Tap`."""
        self.taps.append(Tap(name, kind, start, stop, reread, every))

    def make_late(
        self, name: str, placeholder: bytes, needs: tuple[str, ...], make: Callable[[Results], bytes]
    ) -> bool:
        """Turn the one stretch of known bytes that equals ``placeholder`` into a late piece; False without one.

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
            elif isinstance(piece, Stream) and isinstance(piece.payload, Held) and piece.size >= len(placeholder):
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
        """Leave zeros up to the next multiple; returns the cursor."""
        self.cursor += -self.cursor % multiple
        return self.cursor

    @property
    def size(self) -> int | None:
        """Bytes of the file; None when a tail has yet to decide."""
        return None if self.tails else self.cursor

    def _append(self, piece: Piece) -> int:
        self.pieces.append(piece)
        self.cursor = piece.offset + piece.size
        return piece.offset


@dataclass(slots=True)
class FolderPlan:
    """Several files by relative name, written into a fresh folder.

    Results of earlier files are known to later ones as ``"name/tap"``, and their sizes as ``"name/size"``. Files of
    which none needs a result of another are written at the same time.
    """

    files: dict[str, Plan] = field(default_factory=dict)
