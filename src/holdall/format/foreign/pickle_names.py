"""Finds the names that a pickle would import. Opcodes are passed over, never run.

A name is often put together of texts that came long before it, so the walk keeps the stack and the memo, in which all
values but texts are None. It ends with the pickle, or at bounds on what is read; then it says how far it came.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from holdall.base.escapes import decode_escapes

if TYPE_CHECKING:
    from holdall.source import Source

__all__ = ["PickleNames", "find_names"]

_OPCODES = 1 << 19  # one or two seconds
_READ, _READ_REMOTE = 64 << 20, 4 << 20  # bytes that are read; long values are passed over without reading them
_PIECE = 1 << 18
_NAME = 512  # bytes of the longest text that may be a part of a name
_MOST = 1000  # names that are kept
_OCTAL = re.compile(rb"\s*[+-]?0[0-7]+\s*")  # an integer for C, and none for Python
_COUNTERS = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1, pickletools.TAKEN_FROM_ARGUMENT4: 4, pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}  # fmt: skip
_COMPUTED = "a computed name"


@dataclass(slots=True)
class PickleNames:
    """What a walk found: the ``names`` in their order, and how far it came.

    ``whole`` is True if it reached the end of the pickle, ``stopped`` if what follows byte ``reached`` is no pickle;
    if neither is, the rest was not looked at.
    """

    names: dict[str, None] = field(default_factory=dict)
    reached: int = 0
    whole: bool = False
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class _Opcode:
    name: str
    act: Callable[[_Walk, _Opcode, bytes | None], None]
    size: int  # bytes of the argument
    counted: int  # bytes that say how many follow instead
    lined: bool  # whether the argument is a line
    taken: int  # values from the stack, below the mark if there is one
    mark: bool  # whether all values since the mark are taken
    given: int


class _NoPickle(Exception):
    """The bytes are no pickle."""


class _Enough(Exception):
    """A bound on the walk was reached."""


def find_names(source: Source, *, cut: bool = False, most: int = _OPCODES) -> PickleNames:
    """Find the names in the pickle, or the pickles one after the other, in ``source``, which may be ``cut`` somewhere.

    After ``most`` opcodes the walk ends.

    >>> from holdall.source import BytesSource
    >>> found = find_names(BytesSource(b"cos\\nsystem\\n(S'ls'\\ntR."))
    >>> list(found.names), found.whole
    (['os.system'], True)
    """
    walk = _Walk(source, cut)
    try:
        walk.run(most)
    except _Enough:
        pass
    except _NoPickle:
        walk.found.stopped = True
    return walk.found


class _Walk:
    """A walk over opcodes: the stack, the depths of its marks, the memo, and the bytes that were read last."""

    def __init__(self, source: Source, cut: bool) -> None:
        self._source = source
        self._cut = cut
        self._held, self._start, self._at = b"", 0, 0
        self._left = _READ_REMOTE if source.is_remote else _READ
        self._stack: list[str | None] = []
        self._marks: list[int] = []
        self._memo: dict[int, str | None] = {}
        self.found = PickleNames()

    def run(self, most: int) -> None:
        """Walk to the end, or until a bound or what is no pickle raises."""
        opcodes = _list_opcodes()
        for _ in range(most):
            self.found.reached = self._at
            opcode = opcodes.get(self._take(1)[0])
            if opcode is None:
                raise _NoPickle
            argument: bytes | None = b""
            if opcode.lined:
                argument = self._read_line()
            elif opcode.size:
                argument = self._take(opcode.size)
            elif opcode.counted:
                argument = self._read_counted(opcode.counted)
            opcode.act(self, opcode, argument)
            if self.found.whole:
                return
        raise _Enough

    # -- opcodes ----------------------------------------------------------------------------------------------------

    def change(self, opcode: _Opcode, argument: bytes | None) -> None:
        """Take values from the stack, and put others there."""
        stack, marks = self._stack, self._marks
        if opcode.mark:
            if not marks:
                raise _NoPickle
            del stack[marks.pop() :]
        if opcode.taken:
            self._require(opcode.taken)
            del stack[-opcode.taken :]
        if opcode.given:
            stack += (None,) * opcode.given

    def stop(self, opcode: _Opcode, argument: bytes | None) -> None:
        """End the pickle, whatever lies below its value. Another may follow, as several calls of ``dump`` write."""
        self._require(1)
        self.found.reached = self._at
        if self._at < self._source.size and self._peek(1) == b"\x80":
            self._stack, self._marks, self._memo = [], [], {}
        else:
            self.found.whole = True

    def put_mark(self, opcode: _Opcode, argument: bytes | None) -> None:
        self._marks.append(len(self._stack))

    def pop(self, opcode: _Opcode, argument: bytes | None) -> None:
        """Take a value, or a mark."""
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self.change(opcode, argument)

    def remember(self, opcode: _Opcode, argument: bytes | None) -> None:
        self._memo[_find_place(opcode, argument)] = self._top()

    def remember_next(self, opcode: _Opcode, argument: bytes | None) -> None:
        self._memo[len(self._memo)] = self._top()

    def recall(self, opcode: _Opcode, argument: bytes | None) -> None:
        place = _find_place(opcode, argument)
        if place not in self._memo:
            raise _NoPickle
        self._stack.append(self._memo[place])

    def repeat(self, opcode: _Opcode, argument: bytes | None) -> None:
        self._stack.append(self._top())

    def push_text(self, opcode: _Opcode, argument: bytes | None) -> None:
        """Push a text, without the escapes that protocol 0 has: a name could hide behind them."""
        text: str | None
        if argument is None or opcode.name not in ("STRING", "UNICODE"):
            text = _decode(argument)
        elif opcode.name == "UNICODE":
            try:
                text = argument.decode("raw-unicode-escape")
            except UnicodeDecodeError:
                raise _NoPickle from None
        else:
            text = _decode(_decode_string(argument))
        self._stack.append(text)

    def push_number(self, opcode: _Opcode, argument: bytes | None) -> None:
        if argument is not None and not _is_number(opcode.name, argument):
            raise _NoPickle
        self._stack.append(None)

    def import_lines(self, opcode: _Opcode, argument: bytes | None) -> None:
        self._add(_decode(argument), _decode(self._read_line()))
        self.change(opcode, argument)

    def import_stack(self, opcode: _Opcode, argument: bytes | None) -> None:
        self._require(2)
        self._add(self._stack[-2], self._stack[-1])
        self.change(opcode, argument)

    def import_code(self, opcode: _Opcode, argument: bytes | None) -> None:
        self._add("copyreg", f"extension {int.from_bytes(argument or b'', 'little')}")
        self.change(opcode, argument)

    def _top(self) -> str | None:
        self._require(1)
        return self._stack[-1]

    def _require(self, count: int) -> None:
        """Raise unless there are ``count`` values above the last mark."""
        if len(self._stack) - count < (self._marks[-1] if self._marks else 0):
            raise _NoPickle

    def _add(self, module: str | None, name: str | None) -> None:
        """Add a name; a part of it that is no text here is made in another way, or too long."""
        if len(self.found.names) < _MOST:
            self.found.names[_COMPUTED if module is None or name is None else f"{module}.{name}"] = None

    # -- bytes ------------------------------------------------------------------------------------------------------

    def _read_counted(self, width: int) -> bytes | None:
        """Read an argument behind its size; None for one too long to be a part of a name, which is passed over."""
        size = int.from_bytes(self._take(width), "little")
        if size <= _NAME:
            return self._take(size) if size else b""
        if size > self._source.size - self._at:
            raise _Enough if self._cut else _NoPickle
        self._at += size
        return None

    def _read_line(self) -> bytes | None:
        """Read a line; None for one too long to be a part of a name."""
        first, size = self._at, _NAME
        while (end := (piece := self._peek(size)).find(b"\n")) < 0:
            if len(piece) < size:
                raise _Enough if self._cut else _NoPickle
            self._at += size
            size = _PIECE
        short = self._at == first
        self._at += end + 1
        return piece[:end] if short else None

    def _take(self, size: int) -> bytes:
        found = self._peek(size)
        if len(found) < size:
            raise _Enough if self._cut else _NoPickle
        self._at += size
        return found

    def _peek(self, size: int) -> bytes:
        """Up to ``size`` bytes from here on; fewer at the end of the file."""
        place = self._at - self._start
        if place + size > len(self._held) and self._start + len(self._held) < self._source.size:
            if self._left <= 0:
                raise _Enough
            self._start, place = self._at, 0
            self._held = self._source.read(self._at, min(max(_PIECE, size), self._source.size - self._at))
            self._left -= len(self._held)
        return self._held[place : place + size]


def _find_place(opcode: _Opcode, argument: bytes | None) -> int:
    """The number of a place in the memo."""
    if argument is None:
        raise _Enough  # blanks and zeros may make a number as long as that
    if not opcode.lined:
        return int.from_bytes(argument, "little")
    try:
        place = int(_cut(argument))
    except ValueError:
        raise _NoPickle from None
    if place < 0:
        raise _NoPickle
    return place


def _is_number(opcode: str, argument: bytes) -> bool:
    """Whether one of Python's two unpicklers, in C and in Python, takes the argument for a number."""
    text = _cut(argument)
    try:
        if opcode == "FLOAT":
            float(text)
        else:
            int(text.removesuffix(b"L") if opcode == "LONG" else text, 0)
    except ValueError:
        return opcode == "INT" and _OCTAL.fullmatch(text) is not None
    return True


def _cut(argument: bytes) -> bytes:
    """A number up to a zero byte, where it ends for C."""
    return argument.partition(b"\0")[0]


def _decode_string(argument: bytes) -> bytes:
    """Decode a text between quotes."""
    if len(argument) < 2 or argument[:1] not in (b"'", b'"') or argument[-1:] != argument[:1]:
        raise _NoPickle
    try:
        return decode_escapes(argument[1:-1].decode("latin-1"), as_bytes=True).encode("latin-1")
    except ValueError:
        raise _NoPickle from None


def _decode(argument: bytes | None) -> str | None:
    return None if argument is None else argument.decode("utf-8", "backslashreplace")


_ACTS = {
    "STOP": _Walk.stop, "MARK": _Walk.put_mark, "POP": _Walk.pop, "DUP": _Walk.repeat, "MEMOIZE": _Walk.remember_next,
    "STACK_GLOBAL": _Walk.import_stack,
    **dict.fromkeys(("GLOBAL", "INST"), _Walk.import_lines),
    **dict.fromkeys(("EXT1", "EXT2", "EXT4"), _Walk.import_code),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Walk.remember),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Walk.recall),
    **dict.fromkeys(("INT", "LONG", "FLOAT"), _Walk.push_number),
    **dict.fromkeys(("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"), _Walk.push_text),
    **dict.fromkeys(("STRING", "SHORT_BINSTRING", "BINSTRING"), _Walk.push_text),
}  # fmt: skip


@cache
def _list_opcodes() -> dict[int, _Opcode]:
    found = {}
    for known in pickletools.opcodes:
        size = 0 if known.arg is None else known.arg.n
        mark = pickletools.markobject in known.stack_before
        found[ord(known.code)] = _Opcode(
            known.name,
            _ACTS.get(known.name, _Walk.change),
            max(size, 0),
            _COUNTERS.get(size, 0),
            size == pickletools.UP_TO_NEWLINE,
            known.stack_before.index(pickletools.markobject) if mark else len(known.stack_before),
            mark,
            len(known.stack_after),
        )
    return found
