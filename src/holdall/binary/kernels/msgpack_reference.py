"""Strict MessagePack: the Python twin of the C walker.

No count is trusted: it must be at most the number of bytes that are left. Text must be UTF-8; map keys must be text and
differ from each other. An error is a status, the byte where it was found and the path to it: an index for an array, the
position and length of the key for a map.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING

from holdall.binary.kernels.buffers import array_of, bytes_of, check_size, view_of
from holdall.binary.kernels.msgpack_tokens import (
    ABSENT,
    ARRAY,
    BIN,
    CUT,
    DEEP,
    EXT,
    FALSE,
    FINE,
    FLOAT,
    KEY,
    MANY,
    MAP,
    NEGATIVE,
    NIL,
    NOT_MAP,
    RESERVED,
    STR,
    TEXT,
    TRUE,
    TWICE,
    UINT,
)

if TYPE_CHECKING:
    from holdall.binary.kernels.buffers import Bytes
    from holdall.binary.kernels.msgpack_tokens import Step

__all__ = ["msgpack_dims", "msgpack_table", "msgpack_walk", "read_token"]

MAX_DEPTH = 1024
_FEW = 16  # as in C: up to this many keys are compared as they come, more are sorted


class _Wrong(Exception):
    def __init__(self, status: int, at: int) -> None:
        super().__init__(status, at)
        self.status = status
        self.at = at


class _Frame:
    """A container that the walk is inside of."""

    def __init__(self, kind: int, count: int) -> None:
        self.map = kind == MAP
        self.count = self.left = count
        self.few: set[bytes] = set()
        self.keys: list[tuple[int, bytes, int]] = []  # length, name, position
        self._checked = 0

    @property
    def step(self) -> Step:
        """The index in an array, or the place and length of the last key; sorted keys have no last one."""
        if not self.map:
            return self.count - self.left
        return (self.keys[-1][2], self.keys[-1][0]) if self.keys and not self._checked else (0, 0)

    def add_key(self, name: bytes, at: int) -> None:
        """Add a key. Few keys are compared as they come, many each time their number has doubled, and at the end."""
        held = len(self.keys)
        if held <= _FEW:
            if name in self.few:
                self.keys.clear()
                raise _Wrong(TWICE, at)
            self.few.add(name)
        self.keys.append((len(name), name, at))
        if held >= _FEW and held + 1 >= 2 * self._checked:
            self.check_unique()

    def check_unique(self) -> None:
        """Check that no key comes twice."""
        self._checked = len(self.keys)
        self.keys.sort()
        for one, other in pairwise(self.keys):
            if one[1] == other[1]:
                raise _Wrong(TWICE, other[2])

    def end(self) -> None:
        """Check the keys that were added since the last check."""
        if len(self.keys) > _FEW and len(self.keys) > self._checked:
            self.check_unique()


class _Walk:
    def __init__(self, data: bytes, stop: int, limit: int, most: int | None = None) -> None:
        self.data = data
        self.stop = stop
        self.limit = min(limit, MAX_DEPTH)
        self.left = len(data) if most is None else most
        self.frames: list[_Frame] = []

    def take(self, at: int) -> tuple[int, int, int, int]:
        """Kind, value and place of the token at ``at``, and the place after it and the content of text or bytes."""
        if at >= self.stop:
            raise _Wrong(CUT, at)
        if not self.left:
            raise _Wrong(MANY, at)
        self.left -= 1
        kind, value, width, extra = _HEADS[self.data[at]]
        after = at + 1 + width
        if width:
            if after > self.stop:
                raise _Wrong(CUT, at)
            value = int.from_bytes(self.data[at + 1 : after], "big")
            if kind == NEGATIVE and not value >> 8 * width - 1:
                kind = UINT
            elif kind == NEGATIVE:
                value += (1 << 64) - (1 << 8 * width)  # two's complement
            elif kind == FLOAT and width == 4:
                value = int.from_bytes(struct.pack(">d", *struct.unpack_from(">f", self.data, at + 1)), "big")
        if kind < STR:
            if kind < 0:
                raise _Wrong(RESERVED, at)
            return kind, value, at, after
        if kind < ARRAY:
            place = after + extra
            if place + value > self.stop:
                raise _Wrong(CUT, at)
            return kind, value, place, place + value
        if value > (self.stop - after) // (2 if kind == MAP else 1):
            raise _Wrong(CUT, at)
        return kind, value, at, after

    def text(self, at: int, after: int) -> bytes:
        """The bytes of a text, checked to be UTF-8."""
        raw = self.data[at:after]
        try:
            if not raw.isascii():
                raw.decode()
        except UnicodeDecodeError:
            raise _Wrong(TEXT, at) from None
        return raw

    def push(self, kind: int, count: int, at: int) -> _Frame:
        if len(self.frames) >= self.limit:
            raise _Wrong(DEEP, at)
        frame = _Frame(kind, count)
        self.frames.append(frame)
        return frame

    def walk_inside(self, kind: int, value: int, at: int, after: int) -> int:
        """Walk everything inside the value whose first token was taken; returns the place after it."""
        if kind == STR:
            self.text(at, after)
        if kind < ARRAY:
            return after
        base, frames, take = len(self.frames), self.frames, self.take
        frame = self.push(kind, value, at)
        while True:
            while frame.left:
                if frame.map:
                    kind, value, at, after = take(after)
                    if kind != STR:
                        raise _Wrong(KEY, at)
                    frame.add_key(self.text(at, after), at)
                kind, value, at, after = take(after)
                if kind >= ARRAY:
                    frame = self.push(kind, value, at)
                    continue
                if kind == STR:
                    self.text(at, after)
                frame.left -= 1
            frame.end()
            frames.pop()
            if len(frames) == base:
                return after
            frame = frames[-1]
            frame.left -= 1

    def path(self, skip: int) -> list[Step]:
        return [frame.step for frame in self.frames[skip:]]


def _head(head: int) -> tuple[int, int, int, int]:
    """Kind, value in the head byte, bytes of the number after it, and bytes between that and the content."""
    if head < 0x80:
        return UINT, head, 0, 0
    if head < 0x90:
        return MAP, head & 15, 0, 0
    if head < 0xA0:
        return ARRAY, head & 15, 0, 0
    if head < 0xC0:
        return STR, head & 31, 0, 0
    if head >= 0xE0:
        return NEGATIVE, head - 0x100 + (1 << 64), 0, 0
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
_HEADS = tuple(map(_head, range(256)))


def _check_range(data: Bytes, start: int, stop: int, depth: int) -> bytes:
    check_size(start, stop)
    view = bytes_of(data)
    if start > stop or stop > len(view) or depth < 1:
        raise ValueError(f"no range {start} to {stop} in {len(view)} bytes, or no depth")
    return view


def read_token(data: bytes, at: int) -> tuple[int, int, int, int, int]:
    """Read the token at ``at``: status, kind, value, place, and where it ends; see :class:`_Walk`.

    A container may have more values than there are bytes, so that a walk through a broken document goes on to its end.
    """
    try:
        return FINE, *_Walk(data, len(data), 1, 1).take(at)
    except _Wrong as wrong:
        if wrong.status == CUT and at < len(data):
            kind, value, width, _ = _HEADS[data[at]]
            after = at + 1 + width
            if kind >= ARRAY and after <= len(data):
                return FINE, kind, int.from_bytes(data[at + 1 : after], "big") if width else value, at, after
        return wrong.status, 0, 0, at, at


def msgpack_walk(data: Bytes, start: int, stop: int, depth: int, most: int, /) -> tuple[int, int, int, list[Step]]:
    """Check the one value at ``start``. Returns the status, its end, and the place and path of an error.

    The end of a broken value is the place of its error. At most ``most`` values are allowed, keys included.
    """
    check_size(most)
    walk = _Walk(_check_range(data, start, stop, depth), stop, depth, most)
    try:
        return FINE, walk.walk_inside(*walk.take(start)), 0, []
    except _Wrong as wrong:
        return wrong.status, wrong.at, wrong.at, walk.path(0)


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
    """Read ``count`` maps, one after the other from ``start`` on, into columns.

    ``keys`` are the known keys, each ended by a NUL. For each of them and each map: the kind of its value (ABSENT
    where the map does not have it), where it starts (text and bytes: their content), its number, length or count, and
    where it ends. ``starts`` is where each map starts, ``extras`` whether it has other keys. Returns the rows done,
    the status, the end of the walk, the place of an error, the known key whose value has it (-1: none), and the path
    from there.
    """
    check_size(count)
    whole = _check_range(data, start, stop, depth)
    names = keys.split(b"\0")
    if names.pop():
        raise ValueError("keys are names, each ended by a NUL")
    if len(names) > 32:
        raise ValueError("at most 32 keys")
    kind_of, more = view_of(kinds, writable=True), view_of(extras, writable=True)
    places = [view_of(column, writable=True).cast("Q") for column in (ats, values, ends)]
    at_of, value_of, end_of = places
    first, cells = view_of(starts, writable=True).cast("Q"), len(names) * count
    if any(len(column) != cells for column in (kind_of, *places)) or not len(first) == len(more) == count:
        raise ValueError(f"the columns do not hold {count} rows of {len(names)} keys")
    walk = _Walk(whole, stop, depth)
    place, after = {name: number for number, name in enumerate(names)}, start
    for row in range(count):
        column = -1
        first[row], more[row] = after, 0
        for cell in range(row, cells, count):
            kind_of[cell] = ABSENT
        try:
            kind, value, at, after = walk.take(after)
            if kind != MAP:
                raise _Wrong(NOT_MAP, first[row])
            frame = walk.push(kind, value, at)
            while frame.left:
                column = -1
                kind, value, at, after = walk.take(after)
                if kind != STR:
                    raise _Wrong(KEY, at)
                name = walk.text(at, after)
                column = place.get(name, -1)
                cell = column * count + row
                if column < 0:
                    more[row] = 1
                    frame.add_key(name, at)
                elif kind_of[cell] != ABSENT:
                    raise _Wrong(TWICE, at)
                kind, value, at, after = walk.take(after)
                if kind >= STR:
                    after = walk.walk_inside(kind, value, at, after)
                if column >= 0:
                    kind_of[cell], at_of[cell], value_of[cell], end_of[cell] = kind, at, value, after
                frame.left -= 1
            frame.end()
            walk.frames.pop()
        except _Wrong as wrong:
            return row, wrong.status, wrong.at, wrong.at, column, walk.path(0 if column < 0 else 1)
    return count, FINE, after, 0, -1, []


def msgpack_dims(data: Bytes, positions: Bytes, counts: Bytes, out: Bytes, /) -> tuple[int, int]:
    """Read the items of many arrays of integers from 0 to 2^63 - 1 into ``out``, one array after the other.

    Returns the first row that is not such an array (-1: none), and the place of the item at fault.
    """
    target = array_of(out, "<u8", writable=True)
    at_of, count_of = array_of(positions, "<u8").tolist(), array_of(counts, "<u8").tolist()
    if len(at_of) != len(count_of):
        raise ValueError("positions and counts must be uint64, as many of one as of the other")
    walk = _Walk(bytes_of(data), view_of(data).nbytes, 1)
    values, bad, place = list[int](), -1, 0
    for row, (at, count) in enumerate(zip(at_of, count_of, strict=True)):
        fine, place = _take_dims(walk, at, count, len(target), values)
        if not fine:
            bad = row
            break
    target[: len(values)] = values
    return bad, place


def _take_dims(walk: _Walk, at: int, count: int, room: int, values: list[int]) -> tuple[bool, int]:
    """Append the ``count`` numbers of the array at ``at``. Whether all are there, and the last token's place."""
    place = at
    try:
        kind, value, _, after = walk.take(at)
        if (kind, value) != (ARRAY, count) or count > room - len(values):
            return False, at
        for _ in range(count):
            place = after
            kind, value, _, after = walk.take(place)
            if kind != UINT or value >> 63:
                return False, place
            values.append(value)
    except _Wrong:
        return False, place
    return True, place
