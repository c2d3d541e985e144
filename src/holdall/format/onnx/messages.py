"""The walk through all messages of a model down to its tensors: initializers, and what lies in nodes and functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.base.check import Check
from holdall.binary import kernels
from holdall.binary.kernels.protobuf_tokens import DEEP, FIRST, FRAME, LEVEL, RECORD, STOP, WIRE
from holdall.format.onnx import layout
from holdall.format.onnx.wire import BYTES, VARINT, Walker

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["LOCATION", "NAME", "RAW", "TYPE", "Window", "find_tensors", "read_windows"]

_SINGLES = bytes((layout.NAME << 3 | BYTES, layout.RAW << 3 | BYTES, layout.DATA_TYPE << 3 | VARINT,
                  layout.LOCATION << 3 | VARINT))  # fmt: skip
NAME, RAW, TYPE, LOCATION = range(FIRST, FIRST + 2 * len(_SINGLES), 2)  # columns of a row
_ODD = bytes((*layout.NUMBERS, layout.EXTERNAL))
_GRAMMAR = bytes(part for (kind, number), child in layout.INSIDE.items() for part in (kind, number, child))
_ROWS, _DIMS = buffer_size(1 << 14), buffer_size(1 << 16)  # read at a time
# Bytes read at a time: few where payloads lie between the records, more where they do not.
_LEAST, _MOST = buffer_size(1 << 12), buffer_size(1 << 20)


@dataclass(slots=True)
class Window:
    """What one window on the file has: its place and bytes, the tensors in it and their dims, the messages around."""

    base: int
    data: bytes
    rows: NDArray[np.uint64]
    frames: NDArray[np.uint64]
    dims: NDArray[np.uint64]


def read_windows(source: Source, walker: Walker, check: Check) -> Iterator[Window]:
    """Walk the model in ``source`` by the kernel, window by window."""
    rows, dims = np.empty((_ROWS, FIRST + 2 * len(_SINGLES)), np.uint64), np.empty(_DIMS, np.uint64)
    most = _count_levels(check)
    stack, frames = np.zeros(2 + LEVEL * most, np.uint64), np.empty((_ROWS + most, FRAME), np.uint64)
    stack[:2] = 1, 1
    stack[2 : 2 + FRAME + 1] = 0, 0, source.size, 0, 0, layout.MODEL, 1
    start, step = 0, _LEAST
    while stack[0]:
        data = source.read(start, min(step, source.size - start))
        count, framed, used, reached, why = kernels.protobuf_records(
            data, start, start, _GRAMMAR, layout.DIMS, _SINGLES, _ODD, stack, frames, rows, dims
        )
        yield Window(start, data, rows[:count].copy(), frames[:framed].copy(), dims[:used].copy())
        if why == WIRE:
            _fail_at(reached, int(stack[2 + LEVEL * (int(stack[0]) - 1) + STOP]), walker)
        if why == DEEP:
            _fail_as_deep(reached, check)
        skipped = reached - start > 2 * len(data)
        step = _LEAST if skipped else min(4 * step, _MOST)
        start = reached


def _count_levels(check: Check) -> int:
    """Count the messages around a tensor in the innermost graph: three for each graph inside another, and five more."""
    return 3 * check.limits.nesting + 5


def _fail_as_deep(at: int, check: Check) -> None:
    check.limit("nesting", check.limits.nesting + 1, at, "onnx: graphs in graphs")


def _fail_at(start: int, stop: int, walker: Walker) -> None:
    """Let the careful reader say what is wrong with the field that begins at ``start``."""
    for _ in walker.fields(start, stop):
        raise AssertionError("a field that is broken was read")


def find_tensors(size: int, walker: Walker, check: Check) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Find the tensors and the messages around them without the kernel: the columns before ``ODD`` of each."""
    rows: list[tuple[int, ...]] = []
    frames: list[tuple[int, ...]] = []
    most = _count_levels(check)

    def walk(kind: int, start: int, stop: int, parent: int, depth: int) -> None:
        if depth > most:
            _fail_as_deep(start, check)
        seen: Counter[int] = Counter()
        at = start
        for number, wire, first, last in walker.fields(start, stop):
            child = layout.INSIDE.get((kind, number)) if wire == BYTES else None
            if child is not None:
                found = (at, first, last, parent, number, seen[number])
                seen[number] += 1
                (rows if child == RECORD else frames).append(found)
                if child == RECORD:
                    check.limit("tensors", len(rows), first, "onnx: tensors")
                else:
                    walk(child, first, last, len(frames), depth + 1)
            at = last

    walk(layout.MODEL, 0, size, 0, 1)
    return np.array(rows, np.uint64).reshape(-1, FRAME), np.array(frames, np.uint64).reshape(-1, FRAME)
