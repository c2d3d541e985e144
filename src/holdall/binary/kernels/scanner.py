"""The Python twin of the scanner: a small program walks entries of variable length into columns."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from holdall.binary.kernels.buffers import array_of, check_size, view_of

if TYPE_CHECKING:
    from holdall.binary.kernels.buffers import Bytes

__all__ = ["MAX_STEPS", "Op", "scan"]

MAX_STEPS = 64  # far above any real table; the C kernel keeps one entry on its stack

_LETTERS = {1: "B", 2: "H", 4: "I", 8: "Q"}  # of integers, by their width
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


_Runs: TypeAlias = list[tuple[int, struct.Struct | _Step]]


def scan(
    data: Bytes, start: int, stop: int, count: int, program: Bytes, columns: Bytes, starts: Bytes, /
) -> tuple[int, int, int]:
    """Walk `count` entries of variable length in data[start:stop], each made of the program's steps.

    `columns` is uint64[n_columns][count] and gets a row for every entry that is complete; `starts` is uint64[count] and
    gets the offset of every entry that was begun, the failing one included. Returns (count, -1, position after the last
    entry), or (entries done, failing step, position of that step) when a step's bytes do not fit before `stop`.
    """
    check_size(start, stop, count)
    view, steps = view_of(data), _read_program(program)
    runs = _join_ints(steps)
    width = sum(_COLUMNS[step.op] for step in steps)
    table, offsets = array_of(columns, "u1", writable=True), array_of(starts, "u1", writable=True)
    if not start <= stop <= len(view):
        raise ValueError(f"no range {start} to {stop} in {len(view)} bytes")
    if table.size != 8 * width * count or offsets.size != 8 * count:
        raise ValueError(f"columns and starts must be uint64[{width}][{count}] and uint64[{count}]")
    table, offsets = table.view("<u8").reshape(width, count), offsets.view("<u8")
    rows: list[list[int]] = []
    failing, at = -1, start
    while failing < 0 and len(rows) < count:
        offsets[len(rows)] = at
        row: list[int] = []
        failing, at = _walk_entry(runs, steps, view, at, stop, row)
        if failing < 0:
            rows.append(row)
    table[:, : len(rows)] = np.array(rows, np.uint64).reshape(len(rows), width).T
    return len(rows), failing, at


_COLUMNS: dict[int, int] = {Op.INT: 1, Op.RAW: 1, Op.TEXT: 2, Op.ARRAY: 1, Op.BLOB: 1, Op.ELEMENTS: 1, Op.SKIP: 0}


def _read_program(program: Bytes) -> list[_Step]:
    view = view_of(program)
    if len(view) % 40 or len(view) // 40 > MAX_STEPS:
        raise ValueError(f"a program is up to {MAX_STEPS} steps of 5 int64, not {len(view)} bytes")
    steps: list[_Step] = []
    makers: list[_Step | None] = []  # the step behind each column; None for the position of a TEXT, which none may use
    for index, words in enumerate(np.frombuffer(view, "<i8").reshape(-1, 5).tolist()):
        step = _Step(*words)
        if not _is_valid(step, makers):
            raise ValueError(f"step {index} of the program is not valid")
        steps.append(step)
        makers += [None, step] if step.op == Op.TEXT else [step] * _COLUMNS[step.op]
    return steps


def _is_valid(step: _Step, makers: list[_Step | None]) -> bool:
    def maker(column: int, *ops: Op) -> _Step | None:
        made = makers[column] if 0 <= column < len(makers) else None
        return made if made is not None and made.op in ops else None

    match step.op:
        case Op.INT:
            return step.a in _LETTERS
        case Op.TEXT:
            return step.a in _LETTERS and step.b >= 1
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


def _multiply_dims(data: memoryview, rank: int, dims_at: int, step: _Step) -> int:
    dims = np.frombuffer(data, f"<u{step.c}", rank, dims_at).tolist()
    size = 0 if 0 in dims else step.d
    for dim in dims:
        size = min(size * dim, _U64)  # too large for any file; exact products of large dims take long
    return size


def _join_ints(steps: list[_Step]) -> _Runs:
    """The steps with their indexes; integers that follow each other are one structure."""
    runs: _Runs = []
    for is_int, group in groupby(enumerate(steps), lambda item: item[1].op == Op.INT):
        items = list(group)
        runs += [(items[0][0], struct.Struct("<" + "".join(_LETTERS[s.a] for _, s in items)))] if is_int else items
    return runs


def _walk_entry(
    runs: _Runs, steps: list[_Step], data: memoryview, at: int, stop: int, row: list[int]
) -> tuple[int, int]:  # fmt: skip
    """Append the columns of the entry at `at` to `row`; -1 and its end, or the step that does not fit and its place."""
    for index, run in runs:
        size = run.size if isinstance(run, struct.Struct) else _take_step(run, data, at, stop - at, row)
        if size is None or size > stop - at:
            while steps[index].op == Op.INT and steps[index].a <= stop - at:
                index, at = index + 1, at + steps[index].a
            return index, at
        if isinstance(run, struct.Struct):
            row += run.unpack_from(data, at)
        at += size
    return -1, at


def _take_step(step: _Step, data: memoryview, at: int, left: int, row: list[int]) -> int | None:
    """Append the columns of the step to the row and return its size; None when even its length prefix does not fit."""
    match step.op:
        case Op.BLOB:
            row.append(at)
            return row[step.a]
        case Op.TEXT if left < step.a:
            return None
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
        case Op.ELEMENTS:
            return _multiply_dims(data, row[step.a], row[step.b], step)
    return step.a
