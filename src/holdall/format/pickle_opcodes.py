"""The opcodes of a pickle with their arguments. Nothing is unpickled: opcodes are read, not run."""

from __future__ import annotations

import pickletools
from collections.abc import Iterator
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple
from warnings import catch_warnings, simplefilter

from holdall.base.check import figure
from holdall.binary.documents.outline import LONGEST, SHOWN, Item
from holdall.errors import FormatError
from holdall.format.outline import ReadAhead, stop_at

if TYPE_CHECKING:
    from holdall.source import Source

__all__ = ["find_end", "walk_opcodes"]

_LINE = 1 << 16  # bytes of an argument that ends with a line, and of opcodes that are passed over at a time
_SKIP = 256  # bytes before the first wanted one that are worth it
_PRINTED = 1000  # bits of a number that is shown
_DEEP = 64  # marks inside each other that an item shows


class _Opcode(NamedTuple):
    name: str
    argument: Any  # pickletools.ArgumentDescriptor
    size: int  # of the argument; below 0 as in pickletools
    lines: int  # of an argument that ends with a line
    unmarks: bool  # whether it takes what the last mark began


@cache
def _list_opcodes() -> list[_Opcode | None]:
    found: list[_Opcode | None] = [None] * 256
    for known in pickletools.opcodes:
        argument = known.arg
        lines = 2 if argument is not None and argument.name.endswith("_pair") else 1
        size = 0 if argument is None else argument.n
        unmarks = pickletools.markobject in known.stack_before
        found[ord(known.code)] = _Opcode(known.name, argument, size, lines, unmarks)
    return found


_COUNTERS = {pickletools.TAKEN_FROM_ARGUMENT1: 1, pickletools.TAKEN_FROM_ARGUMENT4: 4,
             pickletools.TAKEN_FROM_ARGUMENT4U: 4, pickletools.TAKEN_FROM_ARGUMENT8U: 8}  # fmt: skip


def walk_opcodes(source: Source, start: int, stop: int, since: int = 0, pickles: int | None = 1) -> Iterator[Item]:
    """List the opcodes of the ``pickles`` that follow each other from ``start`` on, the last of which ends at ``stop``.

    None are as many as there are, of which the last may go on behind ``stop``.

    Opcodes that end at or before byte ``since`` are left out. A walk ends with FormatError at what is no opcode.
    """
    ahead, known = ReadAhead(source, stop), _list_opcodes()
    at, depth, ended = start, 0, 0
    while ended < pickles if pickles is not None else at < stop:
        if since - at > _SKIP:
            at, depth = _skip(ahead.read(at, min(since - at, _LINE)), at, depth)
        head = ahead.read(at, 1) if at < stop else b""
        if not head:
            raise stop_at(at, "the pickle ends without STOP")
        opcode = known[head[0]]
        if opcode is None:
            raise stop_at(at, f"{head[0]:#04x} is no opcode")
        end = _find_end(opcode, at + 1, ahead, stop)
        if opcode.unmarks:
            depth = max(0, depth - 1)
        if end > since:
            value, whole = _read_argument(opcode, at, end, ahead)
            shown = ahead.read(at, min(end - at, SHOWN))
            yield Item(at, end, min(depth, _DEEP), opcode.name, "opcode", value, shown, whole=whole)
        if opcode.name == "MARK":
            depth += 1
        elif opcode.name == "STOP":
            ended, depth = ended + 1, 0
        at = end
    if at < stop:
        raise stop_at(at, f"{stop - at} more bytes follow the pickle")


@cache
def _list_steps() -> list[tuple[int, int]]:
    """Of each byte the bytes of the whole opcode (below 0: its lines, 0: neither), and the marks it leaves or takes."""
    found = [(0, 0)] * 256
    for code, opcode in enumerate(_list_opcodes()):
        if opcode is not None and opcode.name != "STOP" and opcode.size >= pickletools.UP_TO_NEWLINE:
            size = 1 + opcode.size if opcode.size >= 0 else -opcode.lines
            found[code] = size, (opcode.name == "MARK") - opcode.unmarks
    return found


def _skip(held: bytes, base: int, depth: int) -> tuple[int, int]:
    """Pass over opcodes that need no look, as far as ``held`` reaches: where that ends, and how many marks are open."""
    steps, at = _list_steps(), 0
    while at < len(held):
        size, marks = steps[held[at]]
        end = at + size
        if size < 0:
            end = at + 1
            for _ in range(-size):
                end = held.find(b"\n", end) + 1 or len(held) + 1
        if not size or end > len(held):
            break
        at = end
        if marks:
            depth = max(0, depth + marks)
    return base + at, depth


def find_end(source: Source, start: int, stop: int, pickles: int) -> int:
    """Where the pickles end that follow each other from ``start`` on, or where they break off."""
    at = start
    try:
        for item in walk_opcodes(source, start, stop, stop - 1, pickles):
            at = item.stop
    except FormatError as error:
        at = error.offset or at
    return at


def _find_end(opcode: _Opcode, at: int, ahead: ReadAhead, stop: int) -> int:
    """Where the argument at ``at`` ends."""
    size = opcode.size
    if size == pickletools.UP_TO_NEWLINE:
        return _find_lines(opcode, at, ahead)
    if size < 0:
        width = _COUNTERS[size]
        counter = ahead.read(at, width) if at < stop else b""
        signed = size == pickletools.TAKEN_FROM_ARGUMENT4
        size = width + int.from_bytes(counter, "little", signed=signed) if len(counter) == width else width
        if size < width:
            raise stop_at(at - 1, f"the argument of {opcode.name} has {size - width} bytes")
    if size > stop - at:
        raise stop_at(at - 1, f"{opcode.name} has an argument of {figure(size)} bytes, {stop - at} are left")
    return at + size


def _find_lines(opcode: _Opcode, at: int, ahead: ReadAhead) -> int:
    held = ahead.read(at, _LINE)
    end = 0
    for _ in range(opcode.lines):
        end = held.find(b"\n", end) + 1
        if not end:
            raise stop_at(at - 1, f"the argument of {opcode.name} does not end within {len(held)} bytes")
    return at + end


def _read_argument(opcode: _Opcode, at: int, end: int, ahead: ReadAhead) -> tuple[object, bool]:
    """The argument as pickletools reads it; of a long one the first bytes."""
    if opcode.argument is None:
        return None, True
    if end - at > LONGEST:
        first = 1 + _COUNTERS.get(opcode.size, 0)
        held = ahead.read(at + first, LONGEST)
        return held.decode("utf-8", "replace") if "UNICODE" in opcode.name else held, False
    try:
        with catch_warnings():  # escapes that Python gave up
            simplefilter("ignore", DeprecationWarning)
            value = opcode.argument.reader(BytesIO(ahead.read(at + 1, end - at - 1)))
    except ValueError as error:
        raise stop_at(at, f"the argument of {opcode.name} is broken: {error}") from None
    if isinstance(value, int) and value.bit_length() > _PRINTED:
        return figure(value), False
    return value, True
