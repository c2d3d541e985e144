"""The readable twin of the scanner: entries of variable length, walked by a small program, as columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from holdall.kernels.buffers import array_of, check_size, view_of

if TYPE_CHECKING:
    from holdall.kernels.buffers import Bytes

__all__ = ["MAX_STEPS", "Op", "scan"]

MAX_STEPS = 64  # far above any real table; the C twin keeps one entry's values on the stack

_INT_WIDTHS = (1, 2, 4, 8)
_U64 = 1 << 64


class Op(IntEnum):
    """The steps of a scan program; each is five int64: the op and its operands a, b, c, d (unused ones are ignored)."""

    INT = 0  # a = width 1|2|4|8: unsigned little-endian -> 1 column (value)
    RAW = 1  # a = length: fixed bytes -> 1 column (position)
    TEXT = 2  # a = prefix width, b = pad: the field is padded to a multiple of b -> 2 columns (position, length)
    ARRAY = 3  # a = item width, b = column of the item count -> 1 column (position)
    BLOB = 4  # a = column of the byte length -> 1 column (position)
    ELEMENTS = 5  # a, b = columns of the dim count and dims, c = dim width 4|8, d = item bytes -> 1 column (position)
    SKIP = 6  # a = length -> no column


@dataclass(frozen=True)
class _Step:
    op: int
    a: int
    b: int
    c: int
    d: int


def scan(
    data: Bytes, start: int, stop: int, count: int, program: Bytes, columns: Bytes, starts: Bytes, /
) -> tuple[int, int, int]:
    """Walk `count` entries of variable length in data[start:stop], each made of the program's steps.

    `columns` is uint64[n_columns][count] and gets a row for every entry that is complete; `starts` is uint64[count] and
    gets the offset of every entry that was begun, the failing one included. Returns (count, -1, position after the last
    entry), or (entries done, failing step, position of that step) when a step's bytes do not fit before `stop`.
    """
    check_size(start, stop, count)
    view, steps = view_of(data), _steps(program)
    width = sum(_COLUMNS[step.op] for step in steps)
    table, offsets = array_of(columns, "u1", writable=True), array_of(starts, "u1", writable=True)
    if not start <= stop <= len(view):
        raise ValueError(f"no range {start} to {stop} in {len(view)} bytes")
    if table.size != 8 * width * count or offsets.size != 8 * count:
        raise ValueError(f"columns and starts must be uint64[{width}][{count}] and uint64[{count}]")
    table, offsets = table.view("<u8").reshape(width, count), offsets.view("<u8")
    stretches = _stretches(steps)
    done, places, at = _walk(stretches, view, start, stop, count)
    found = np.array(places, np.uint64).reshape(done, len(stretches))
    offsets[:done] = found[:, 0]
    for number, stretch in enumerate(stretches):
        for column, offset, size in stretch.columns:
            where = found[:, number] + np.uint64(offset)
            table[column, :done] = _integers(view, where, size) if size else where
    if done == count:
        return count, -1, at
    offsets[done] = at
    return done, *_failing(steps, view, at, stop)


_COLUMNS: dict[int, int] = {Op.INT: 1, Op.RAW: 1, Op.TEXT: 2, Op.ARRAY: 1, Op.BLOB: 1, Op.ELEMENTS: 1, Op.SKIP: 0}


def _steps(program: Bytes) -> list[_Step]:
    view = view_of(program)
    if len(view) % 40 or len(view) // 40 > MAX_STEPS:
        raise ValueError(f"a program is up to {MAX_STEPS} steps of 5 int64, not {len(view)} bytes")
    steps: list[_Step] = []
    makers: list[_Step | None] = []  # of each column; None for the position of a TEXT, which no step may refer to
    for index, words in enumerate(np.frombuffer(view, "<i8").reshape(-1, 5).tolist()):
        step = _Step(*words)
        if not _makes_sense(step, makers):
            raise ValueError(f"step {index} of the program is not valid")
        steps.append(step)
        makers += [None, step] if step.op == Op.TEXT else [step] * _COLUMNS[step.op]
    return steps


def _makes_sense(step: _Step, makers: list[_Step | None]) -> bool:
    def maker(column: int, *ops: Op) -> _Step | None:
        made = makers[column] if 0 <= column < len(makers) else None
        return made if made is not None and made.op in ops else None

    match step.op:
        case Op.INT:
            return step.a in _INT_WIDTHS
        case Op.TEXT:
            return step.a in _INT_WIDTHS and step.b >= 1
        case Op.ARRAY:
            return step.a >= 1 and maker(step.b, Op.INT, Op.TEXT) is not None
        case Op.BLOB:
            return maker(step.a, Op.INT, Op.TEXT) is not None
        case Op.ELEMENTS:
            dims = maker(step.b, Op.ARRAY)
            return dims is not None and (dims.a, dims.b) == (step.c, step.a) and step.c in (4, 8) and step.d >= 1
        case Op.RAW | Op.SKIP:
            return step.a >= 0
    return False


# Step by step is slow in Python. The walk goes from one step of variable size to the next and reads only what says how
# far they are apart; numpy picks the columns up afterwards.


@dataclass(frozen=True)
class _Stretch:
    """Steps of fixed size in a row, and the one of variable size that ends them (none: the entry ends)."""

    size: int  # the prefix of a TEXT included
    columns: list[tuple[int, int, int]]  # column, offset in the stretch, width of the integer (0: the position itself)
    counters: Struct  # reads the integers that say the size of a later step
    follows: _Step  # its operands are places among what the walk has seen of an entry, instead of columns


_END = _Step(-1, 0, 0, 0, 0)
_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
_FAR = 1 << 56  # beyond every buffer, and small enough for a struct


def _stretches(steps: list[_Step]) -> list[_Stretch]:
    counted = {step.b if step.op == Op.ARRAY else step.a for step in steps if step.op in (Op.ARRAY, Op.BLOB)}
    found: list[_Stretch] = []
    seen: dict[int, int] = {}  # column -> its place among what the walk has seen of an entry
    column, size, code, columns = 0, 0, "<", list[tuple[int, int, int]]()
    for step in steps:
        follows = None
        match step.op:
            case Op.INT if column in counted:
                seen[column] = len(seen)
                code += _CODES[step.a]
            case Op.INT | Op.RAW | Op.SKIP:
                code += f"{min(step.a, _FAR)}x"
            case Op.TEXT:
                seen[column + 1] = len(seen)
                code += _CODES[step.a]
                follows = step
            case Op.ARRAY:
                follows = replace(step, b=seen[step.b])
                seen[column] = len(seen)
            case Op.BLOB:
                follows = replace(step, a=seen[step.a])
            case Op.ELEMENTS:
                follows = replace(step, a=seen[step.a], b=seen[step.b])
        if step.op == Op.TEXT:
            columns += [(column, size + step.a, 0), (column + 1, size, step.a)]
        elif step.op != Op.SKIP:
            columns.append((column, size, step.a if step.op == Op.INT else 0))
        column += _COLUMNS[step.op]
        size += step.a if step.op in (Op.INT, Op.RAW, Op.SKIP, Op.TEXT) else 0
        if follows is not None:
            found.append(_Stretch(size, columns, Struct(code), follows))
            size, code, columns = 0, "<", []
    return [*found, _Stretch(size, columns, Struct(code), _END)]


def _walk(stretches: list[_Stretch], data: memoryview, start: int, stop: int, count: int) -> tuple[int, list[int], int]:
    """How many entries fit before `stop`, where each of their stretches begins, and where the next entry does."""
    hops = [(s.size, s.counters.unpack_from, s.follows.op, s.follows) for s in stretches]
    text, array, blob, items = map(int, (Op.TEXT, Op.ARRAY, Op.BLOB, Op.ELEMENTS))
    places: list[int] = []
    at = start
    for entry in range(count):
        begin, seen = at, list[int]()
        for size, counters, op, step in hops:
            places.append(at)
            if at + size > stop:
                return entry, places[: entry * len(hops)], begin
            seen += counters(data, at)
            at += size
            if op == text:
                at += -(-(step.a + seen[-1]) // step.b) * step.b - step.a
            elif op == array:
                seen.append(at)
                at += seen[step.b] * step.a
            elif op == blob:
                at += seen[step.a]
            elif op == items:
                at += _payload_size(data, seen[step.a], seen[step.b], step)
    return count, places, at


def _integers(data: memoryview, where: NDArray[np.uint64], width: int) -> NDArray[Any]:
    """The integers of `width` bytes at the places `where`, aligned or not."""
    everywhere = np.ndarray(max(0, len(data) - width + 1), f"<u{width}", data, strides=(1,))
    return everywhere[where]


def _payload_size(data: memoryview, rank: int, dims_at: int, step: _Step) -> int:
    dims = np.frombuffer(data, f"<u{step.c}", rank, dims_at).tolist()
    size = 0 if 0 in dims else step.d
    for dim in dims:
        size = min(size * dim, _U64)  # enough to be too much; an exact product of hostile numbers is slow
    return size


def _failing(steps: list[_Step], data: memoryview, at: int, stop: int) -> tuple[int, int]:
    """Which step of the entry at `at` does not fit before `stop`, and where that step starts."""
    row: list[int] = []
    for index, step in enumerate(steps):
        size = _take(step, data, at, stop - at, row)
        if size is None or size > stop - at:
            return index, at
        at += size
    raise AssertionError("every step of the entry fits")


def _take(step: _Step, data: memoryview, at: int, left: int, row: list[int]) -> int | None:
    """Append the step's columns to the row; its size in bytes, None when even the prefix that says it does not fit."""
    match step.op:
        case Op.INT | Op.TEXT if left < step.a:
            return None
        case Op.INT:
            row.append(int.from_bytes(data[at : at + step.a], "little"))
            return step.a
        case Op.TEXT:
            length = int.from_bytes(data[at : at + step.a], "little")
            row += [at + step.a, length]
            return -(-(step.a + length) // step.b) * step.b
        case Op.SKIP:
            return step.a
    row.append(at)
    match step.op:
        case Op.ARRAY:
            return row[step.b] * step.a
        case Op.BLOB:
            return row[step.a]
        case Op.ELEMENTS:
            return _payload_size(data, row[step.a], row[step.b], step)
    return step.a
