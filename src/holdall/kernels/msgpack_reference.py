"""MessagePack, strictly: the readable twin of the C walker.

Nothing is believed before the bytes behind it are there: a count is at most the bytes that are left, text is UTF-8,
map keys are text and differ from each other. What is wrong is one of the states below, with the byte it is at and the
path to it: an index for an array, the position and length of the key for a map.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from holdall.kernels.buffers import array_of, check_size, view_of

if TYPE_CHECKING:
    from holdall.kernels.buffers import Bytes

__all__ = ["Step", "msgpack_dims", "msgpack_table", "msgpack_walk"]

NIL, FALSE, TRUE, UINT, NEGATIVE, FLOAT, STR, BIN, EXT, ARRAY, MAP = range(11)
ABSENT = 255
FINE, CUT, RESERVED, DEEP, KEY, TWICE, TEXT, NOT_MAP = range(8)

MAX_DEPTH = 1024
_FEW = 16  # the C twin compares up to this many keys as they come; more of them it sorts

Step: TypeAlias = int | tuple[int, int]


class _Wrong(Exception):
    def __init__(self, status: int, at: int) -> None:
        super().__init__(status, at)
        self.status = status
        self.at = at


class _Frame:
    """A container around the place of the walk."""

    def __init__(self, kind: int, count: int) -> None:
        self.map = kind == MAP
        self.left = count
        self.index = 0
        self.wants_key = self.map
        self.keys: list[tuple[int, bytes, int]] = []  # length, name, position
        self.key: tuple[int, int] = (0, 0)
        self._told_apart = 0

    def add_key(self, name: bytes, at: int) -> None:
        """Remember a key. Few are compared as they come; many whenever their number has doubled, and at the end."""
        held = len(self.keys)
        if held <= _FEW and any(key[1] == name for key in self.keys):
            self.key = (0, 0)
            raise _Wrong(TWICE, at)
        self.keys.append((len(name), name, at))
        self.key = (at, len(name)) if not self._told_apart else (0, 0)
        if held + 1 > _FEW and held + 1 >= 2 * self._told_apart:
            self.tell_apart()

    def tell_apart(self) -> None:
        """Make sure that no key comes twice."""
        self.key = (0, 0)  # sorted keys are no longer in the order in which they came
        self._told_apart = len(self.keys)
        self.keys.sort()
        for one, other in pairwise(self.keys):
            if one[1] == other[1]:
                raise _Wrong(TWICE, other[2])

    def end(self) -> None:
        """The map is complete."""
        if len(self.keys) > max(_FEW, self._told_apart):
            self.tell_apart()

    def next(self) -> None:
        self.left -= 1
        self.index += 1
        self.wants_key = self.map


class _Walk:
    def __init__(self, data: memoryview, at: int, stop: int, limit: int) -> None:
        self.data = data
        self.at = at
        self.stop = stop
        self.limit = min(limit, MAX_DEPTH)
        self.frames: list[_Frame] = []

    def take(self) -> tuple[int, int, int]:
        """Kind, value and position of the next token; moves past it, and past the bytes of text and the like."""
        at = self.at
        if at >= self.stop:
            raise _Wrong(CUT, at)
        head = self.data[at]
        kind, value, width, extra = _head(head)
        if kind < 0:
            raise _Wrong(RESERVED, at)
        left = self.stop - at - 1
        if width > left:
            raise _Wrong(CUT, at)
        raw = bytes(self.data[at + 1 : at + 1 + width])
        if width:
            value = int.from_bytes(raw, "big")
        left -= width
        place = at
        after = at + 1 + width
        if kind == NEGATIVE and width:
            value = int.from_bytes(raw, "big", signed=True)
            kind = UINT if value >= 0 else NEGATIVE
        elif kind == FLOAT:
            number = struct.unpack(">f" if width == 4 else ">d", raw)[0]
            value = int.from_bytes(struct.pack(">d", number), "big")
        elif kind in (STR, BIN, EXT):
            if extra > left or value > left - extra:
                raise _Wrong(CUT, at)
            place = after + extra
            after = place + value
        elif (kind == ARRAY and value > left) or (kind == MAP and value > left // 2):
            raise _Wrong(CUT, at)
        self.at = after
        return kind, value % (1 << 64), place

    def text(self, at: int, size: int) -> bytes:
        """The bytes of a text, proven to be one."""
        raw = bytes(self.data[at : at + size])
        try:
            raw.decode()
        except UnicodeDecodeError:
            raise _Wrong(TEXT, at) from None
        return raw

    def push(self, kind: int, count: int, at: int) -> None:
        if len(self.frames) >= self.limit:
            raise _Wrong(DEEP, at)
        self.frames.append(_Frame(kind, count))

    def rest(self, kind: int, value: int, at: int) -> None:
        """Everything inside the value whose first token was taken."""
        base = len(self.frames)
        if kind == STR:
            self.text(at, value)
        if kind in (ARRAY, MAP):
            self.push(kind, value, at)
        while len(self.frames) > base:
            frame = self.frames[-1]
            if not frame.left:
                frame.end()
                self.frames.pop()
                if len(self.frames) > base:
                    self.frames[-1].next()
                continue
            kind, value, at = self.take()
            name = self.text(at, value) if kind == STR else b""
            if frame.wants_key:
                if kind != STR:
                    raise _Wrong(KEY, at)
                frame.add_key(name, at)
                frame.wants_key = False
            elif kind in (ARRAY, MAP):
                self.push(kind, value, at)
            else:
                frame.next()

    def path(self, skip: int) -> list[Step]:
        return [frame.key if frame.map else frame.index for frame in self.frames[skip:]]


def _head(head: int) -> tuple[int, int, int, int]:
    """Kind, value in the head itself, bytes of the number after it, and bytes between that and the content."""
    if head < 0x80:
        return UINT, head, 0, 0
    if head < 0x90:
        return MAP, head & 15, 0, 0
    if head < 0xA0:
        return ARRAY, head & 15, 0, 0
    if head < 0xC0:
        return STR, head & 31, 0, 0
    if head >= 0xE0:
        return NEGATIVE, head - 0x100, 0, 0
    if head < 0xC4:
        return (NIL, -1, FALSE, TRUE)[head - 0xC0], 0, 0, 0
    for first, kind, width, extra in _FAMILIES:
        if head >= first:
            if kind == EXT and width == 0:
                return EXT, 1 << (head - first), 0, 1
            return kind, 0, width << (head - first), extra
    raise AssertionError(head)


_FAMILIES = (
    (0xDE, MAP, 2, 0),
    (0xDC, ARRAY, 2, 0),
    (0xD9, STR, 1, 0),
    (0xD4, EXT, 0, 1),
    (0xD0, NEGATIVE, 1, 0),
    (0xCC, UINT, 1, 0),
    (0xCA, FLOAT, 4, 0),
    (0xC7, EXT, 1, 1),
    (0xC4, BIN, 1, 0),
)


def _range(data: Bytes, start: int, stop: int, depth: int) -> memoryview:
    check_size(start, stop)
    view = view_of(data)
    if start > stop or stop > len(view) or depth < 1:
        raise ValueError(f"no range {start} to {stop} in {len(view)} bytes, or no depth")
    return view


def msgpack_walk(data: Bytes, start: int, stop: int, depth: int, /) -> tuple[int, int, int, list[Step]]:
    """Prove the one value at ``start``: state, where it ends, and where and on what path something is wrong.

    Something that is wrong is where the value ends.
    """
    walk = _Walk(_range(data, start, stop, depth), start, stop, depth)
    try:
        walk.rest(*walk.take())
    except _Wrong as wrong:
        return wrong.status, wrong.at, wrong.at, walk.path(0)
    return FINE, walk.at, 0, []


def msgpack_table(
    data: Bytes,
    start: int,
    stop: int,
    count: int,
    depth: int,
    keys: bytes,
    kinds: Bytes,
    ats: Bytes,
    values: Bytes,
    ends: Bytes,
    starts: Bytes,
    extras: Bytes,
    /,
) -> tuple[int, int, int, int, int, list[Step]]:
    """Take ``count`` maps, one after the other from ``start`` on, apart into columns.

    ``keys`` are the known keys, each ended by a NUL. For each of them and each map: the kind of its value (ABSENT
    where the map does not have it), where it starts (text and bytes: their content), its number, length or count, and
    where it ends. ``starts`` is where each map starts, ``extras`` whether it has other keys. Returns the rows done,
    the state, where the walk ended, where something is wrong, in the value of which known key (-1: none), and the path
    from there.
    """
    check_size(count)
    view = _range(data, start, stop, depth)
    names = keys.split(b"\0")
    if names.pop():
        raise ValueError("keys are names, each ended by a NUL")
    if len(names) > 32:
        raise ValueError("at most 32 keys")
    columns = [array_of(kinds, "u1", writable=True)]
    columns += [array_of(column, "<u8", writable=True) for column in (ats, values, ends)]
    first, more = array_of(starts, "<u8", writable=True), array_of(extras, "u1", writable=True)
    if any(len(column) != len(names) * count for column in columns) or len(first) != count or len(more) != count:
        raise ValueError(f"the columns do not hold {count} rows of {len(names)} keys")
    walk = _Walk(view, start, stop, depth)
    place = {name: number for number, name in enumerate(names)}
    for row in range(count):
        column = -1
        first[row], more[row] = walk.at, 0
        columns[0][row::count] = ABSENT
        try:
            kind, value, at = walk.take()
            if kind != MAP:
                raise _Wrong(NOT_MAP, int(first[row]))
            walk.push(kind, value, at)
            frame = walk.frames[-1]
            while frame.left:
                column = -1
                kind, value, at = walk.take()
                if kind != STR:
                    raise _Wrong(KEY, at)
                name = walk.text(at, value)
                column = place.get(name, -1)
                cell = column * count + row
                if column < 0:
                    more[row] = 1
                    frame.add_key(name, at)
                elif columns[0][cell] != ABSENT:
                    raise _Wrong(TWICE, at)
                kind, value, at = walk.take()
                walk.rest(kind, value, at)
                if column >= 0:
                    for target, number in zip(columns, (kind, at, value, walk.at), strict=True):
                        target[cell] = number
                frame.next()
            frame.end()
            walk.frames.pop()
        except _Wrong as wrong:
            return row, wrong.status, wrong.at, wrong.at, column, walk.path(0 if column < 0 else 1)
    return count, FINE, walk.at, 0, -1, []


def msgpack_dims(data: Bytes, positions: Bytes, counts: Bytes, out: Bytes, /) -> tuple[int, int]:
    """The items of many arrays of whole numbers below 2^63, one after the other, into ``out``.

    Returns the first array that is something else (-1: none), and where.
    """
    view = view_of(data)
    target = array_of(out, "<u8", writable=True)
    at_of, count_of = array_of(positions, "<u8").tolist(), array_of(counts, "<u8").tolist()
    if len(at_of) != len(count_of):
        raise ValueError("positions and counts must be uint64, as many of one as of the other")
    walk = _Walk(view, 0, len(view), 1)
    values: list[int] = []
    bad, place = -1, 0
    for row, (at, count) in enumerate(zip(at_of, count_of, strict=True)):
        fine, place = _dims(walk, at, count, len(target), values)
        if not fine:
            bad = row
            break
    target[: len(values)] = values
    return bad, place


def _dims(walk: _Walk, at: int, count: int, room: int, values: list[int]) -> tuple[bool, int]:
    """Take the ``count`` numbers of the array at ``at``; whether they are there, and the place of the last token."""
    data, size = walk.data, walk.stop
    walk.at = place = at
    try:
        if at < size and count < 16 and data[at] == 0x90 | count:  # most of them, without a call
            walk.at += 1
        elif walk.take()[:2] != (ARRAY, count):
            return False, at
        if count > room - len(values):
            return False, at
        for _ in range(count):
            place = walk.at
            if place < size and data[place] < 0x80:
                values.append(data[place])
                walk.at += 1
                continue
            kind, value, _ = walk.take()
            if kind != UINT or value >> 63:
                return False, place
            values.append(value)
    except _Wrong:
        return False, place
    return True, place
