"""Finds the files that PyTorch reads as pickles: ``torch.load`` tries that for any file that is no zip.

Opcodes are passed over, never run. A pickle from the first byte on is a second meaning if it can be read to its end,
and has in it the magic number of PyTorch's legacy files, in any spelling, or a name that would be imported. Other bytes
end such a walk after a few opcodes: most values are none, and most that are take more from the stack than there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdall.source import Source

__all__ = ["is_pickle"]

_MAGIC = bytes.fromhex("6cfc9c46f9206aa85019")  # the magic number, little-endian
_DIGITS = 19  # letters that it takes at least when it is written as text
_OPCODES = 1 << 16
_PIECE = 4096  # bytes of the first read and of a line; later reads are larger, since each may be a request
_GROWTH = 6  # doublings
_READS = 64  # more than bytes of another kind ever lead to: 15 MiB
_NUMERIC = frozenset(b"0123456789abcdefABCDEFxXoOlL_+-. \t\rintyINTY")
_NAME = 1024  # letters of a name that can be imported

# Opcodes that only push, by the bytes that follow them, and those that take values: how many, and how many they push.
_PUSH = {
    **dict.fromkeys(b"N\x88\x89]})\x8f", 0), **dict.fromkeys(b"Kh", 1), ord("M"): 2, **dict.fromkeys(b"Jj", 4),
    ord("G"): 8,
}  # fmt: skip
_COUNTED = {**dict.fromkeys(b"U\x8cC", 1), **dict.fromkeys(b"TXB", 4), **dict.fromkeys(b"\x8d\x8e\x96", 8)}
_SKIP = {0x80: (0, 1), 0x95: (0, 8), ord("q"): (1, 1), ord("r"): (1, 4), 0x94: (1, 0)}  # values they need, bytes
_TAKE = {
    ord("a"): (2, 1), ord("s"): (3, 1), ord("2"): (1, 2), 0x85: (1, 1), 0x86: (2, 1), 0x87: (3, 1), ord("R"): (2, 1),
    ord("b"): (2, 1), 0x81: (2, 1), 0x92: (3, 1), 0x93: (2, 1), 0x98: (1, 1),
}  # fmt: skip
# Those that take all values since the mark: how many they take below it, and how many they push.
_SINCE_MARK = {**dict.fromkeys(b"tldoi\x91", (0, 1)), **dict.fromkeys(b"ue\x90", (1, 1)), ord("1"): (0, 0)}


class _TooFar(Exception):
    """The walk goes on for longer than in bytes that are no pickle."""


class _NoPickle(Exception):
    """The bytes cannot be a pickle."""


def is_pickle(source: Source, front: bytes) -> bool:
    """Whether ``source``, which begins with ``front``, can be read as a pickle that PyTorch would take or run."""
    try:
        return _Walk(source, front).reaches_end()
    except _NoPickle:
        return False
    except _TooFar:
        return True


class _Walk:
    """A walk through the opcodes; ``depth`` is the number of values on the stack, and ``marks`` those under a mark."""

    def __init__(self, source: Source, front: bytes) -> None:
        self._source = source
        self._start, self._held = 0, front
        self._reads = 0
        self._at = self._depth = 0
        self._marks: list[int] = []
        self._told = False  # whether the number or a name came by

    def reaches_end(self) -> bool:
        for _ in range(_OPCODES):
            opcode = self._take(1)[0]
            if opcode == ord("."):
                return self._told and self._depth > 0
            self._pass(opcode)
        raise _TooFar

    def _pass(self, opcode: int) -> None:
        if opcode in _PUSH:
            self._change(0, 1, _PUSH[opcode])
        elif opcode in _COUNTED:
            self._change(0, 1, int.from_bytes(self._take(_COUNTED[opcode]), "little"))
        elif opcode in _SKIP:
            needed, size = _SKIP[opcode]
            self._change(needed, needed, size)
        elif opcode in _TAKE:
            self._told = self._told or opcode == 0x93
            self._change(*_TAKE[opcode])
        elif opcode in (0x8A, 0x8B):
            self._pass_number(int.from_bytes(self._take(1 if opcode == 0x8A else 4), "little"))
        elif opcode in _SINCE_MARK or opcode in b"(0":
            self._pass_mark(opcode)
        else:
            self._pass_lines(opcode)

    def _pass_number(self, size: int) -> None:
        if size >= len(_MAGIC) and self._peek(len(_MAGIC)) == _MAGIC:
            self._told = True
        self._change(0, 1, size)

    def _pass_mark(self, opcode: int) -> None:
        if opcode == ord("("):
            self._marks.append(self._depth)
        elif opcode == ord("0"):
            if self._marks and self._marks[-1] == self._depth:
                self._marks.pop()
            else:
                self._change(1, 0)
        else:
            if not self._marks:
                raise _NoPickle
            self._depth = self._marks.pop()
            self._change(*_SINCE_MARK[opcode])
            if opcode == ord("i"):
                self._pass_names()

    def _pass_lines(self, opcode: int) -> None:
        """Opcodes whose argument ends with a line: numbers, texts and names."""
        if opcode in b"ILFpg":
            line = self._line(_PIECE)
            if not _NUMERIC.issuperset(line):
                raise _NoPickle
            self._told = self._told or (opcode in b"IL" and len(line) >= _DIGITS)
            self._change(*((1, 1) if opcode == ord("p") else (0, 1)))
        elif opcode == ord("c"):
            self._pass_names()
            self._change(0, 1)
        elif opcode == ord("V") or (opcode == ord("S") and self._peek(1) in (b"'", b'"')):
            self._pass_text()
        else:
            raise _NoPickle

    def _pass_names(self) -> None:
        for _ in range(2):
            name = self._line(_NAME).decode("utf-8", "replace")
            if not all(map(str.isidentifier, name.split("."))):
                raise _NoPickle
        self._told = True

    def _pass_text(self) -> None:
        while (end := (piece := self._peek(_PIECE)).find(b"\n")) < 0:
            self._at += len(piece)
        self._at += end + 1
        self._change(0, 1)

    # -- the stack and the bytes ------------------------------------------------------------------------------------

    def _change(self, taken: int, pushed: int, size: int = 0) -> None:
        """Take and push values, and pass over ``size`` bytes."""
        if self._depth < taken or size > self._source.size - self._at:
            raise _NoPickle
        self._depth += pushed - taken
        self._at += size

    def _line(self, most: int) -> bytes:
        line, found, _ = self._peek(most).partition(b"\n")
        if not found:
            raise _NoPickle
        self._at += len(line) + 1
        return line

    def _take(self, size: int) -> bytes:
        found = self._peek(size)
        if len(found) < size:
            raise _NoPickle
        self._at += size
        return found

    def _peek(self, size: int) -> bytes:
        """Up to ``size`` bytes from here on; fewer at the end of the file, but never none."""
        size = min(size, self._source.size - self._at)
        if size <= 0:
            raise _NoPickle
        at = self._at - self._start
        if not 0 <= at <= len(self._held) - size:
            self._reads += 1
            if self._reads > _READS:
                raise _TooFar
            self._start, at = self._at, 0
            piece = _PIECE << min(self._reads - 1, _GROWTH)
            self._held = self._source.read(self._at, min(piece, self._source.size - self._at))
        return self._held[at : at + size]
