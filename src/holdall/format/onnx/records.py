"""All tensors of a model as columns, read by the kernel without a Python step for each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.check import Check
from holdall.base.utf8 import is_utf8
from holdall.binary import kernels
from holdall.binary.columns import Shapes
from holdall.binary.kernels.protobuf_tokens import COUNT, FIELD, FRAME, NUMBER, ODD, ORDINAL, PARENT, START, STOP
from holdall.format.onnx import layout, rules
from holdall.format.onnx.messages import LOCATION, NAME, RAW, TYPE, Window, find_tensors, read_windows
from holdall.format.onnx.paths import Paths
from holdall.format.onnx.wire import Walker
from holdall.model.dtypes import DTYPES as NAMED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["Records", "read_records"]

_KEPT = [FIELD, START, STOP, PARENT, NUMBER, ORDINAL, ODD, COUNT, TYPE, TYPE + 1, LOCATION, RAW, RAW + 1]
_UNNAMED = 2  # in the column ODD: such a tensor may be plain if its place names it
_SPARSE_FIELDS = [number for (_, number), child in layout.INSIDE.items() if child == layout.SPARSE]
_BITS = np.zeros(max(layout.DTYPES) + 2, np.uint64)  # bits by data_type; 0 for unknown types, and in the last place
_BITS[list(layout.DTYPES)] = [NAMED[name].bits for name in layout.DTYPES.values()]


@dataclass(slots=True)
class Records:
    """One row for each tensor. The reader looks at those that are not ``plain`` one by one."""

    fields: NDArray[np.uint64]  # where the field begins, tag and length included
    starts: NDArray[np.uint64]
    stops: NDArray[np.uint64]
    parents: NDArray[np.uint64]  # the message that it is in, its number there, and how many of that come before it
    numbers: NDArray[np.uint64]
    ordinals: NDArray[np.uint64]
    plain: NDArray[np.bool_]  # has a name, a known type, and raw data of the right size
    names: list[str]
    codes: NDArray[np.uint64]  # data_type
    ranks: NDArray[np.uint64]
    dims: NDArray[np.uint64]  # the dims of all rows, one after the other
    places: NDArray[np.uint64]  # where the raw data begins
    sizes: NDArray[np.uint64]
    frames: NDArray[np.uint64]  # the messages that tensors are in, from number 1 on
    paths: Paths

    def __len__(self) -> int:
        return len(self.plain)

    def find_nested(self) -> NDArray[np.bool_]:
        """Which tensors are no initializers of the model's graph."""
        outer: NDArray[np.bool_] = (self.parents != np.uint64(self.paths.graph)) | (self.numbers != layout.INITIALIZER)
        return outer

    def check_sparse(self, check: Check) -> None:
        """Note sparse tensors that have only values, or only indices."""
        halves = np.zeros((3, len(self.frames) + 1), np.bool_)  # by number of the field and of the message
        for number in (layout.VALUES, layout.INDICES):
            halves[number, self.parents[self.numbers == np.uint64(number)].astype(np.intp)] = True
        values = (self.numbers == layout.VALUES) & (self.sizes > 0)
        halves[0, self.parents[values].astype(np.intp)] = True  # where there are values that need indices
        found = np.isin(self.frames[:, NUMBER], _SPARSE_FIELDS)
        some, has_values, has_indices = halves[0, 1:], halves[1, 1:], halves[2, 1:]
        starts = self.frames[:, START]
        for lacks, what in ((has_indices & ~has_values, "values"), (some & ~has_indices, "indices")):
            check.rows(~(found & lacks), rules.SPARSE, starts, partial(_describe_lack, what))

    def find_way(self, row: int) -> tuple[int, ...]:
        """Find the numbers of the fields that lead from the tensor in ``row`` to the model."""
        way, frame = [int(self.numbers[row])], int(self.parents[row])
        while frame:
            way.append(int(self.frames[frame - 1, NUMBER]))
            frame = int(self.frames[frame - 1, PARENT])
        return tuple(way)

    def name_row(self, row: int, own: str) -> str:
        """Name the tensor in ``row``, which calls itself ``own``."""
        place = int(self.parents[row]), int(self.numbers[row]), int(self.ordinals[row])
        return self.paths.name_tensor(*place, own, int(self.starts[row]))


def read_records(source: Source, walker: Walker, check: Check) -> Records:
    """Read the tensors of the model in ``source``."""
    if not kernels.NATIVE:
        return _list_records(source, walker, check)
    names: list[str] = []
    none = np.empty((0, FRAME), np.uint64)
    tables, dims, frames = [np.empty((len(_KEPT), 0), np.uint64)], [np.empty(0, np.uint64)], [none]
    for window in read_windows(source, walker, check):
        names += _read_names(window, check)
        tables.append(window.rows.T[_KEPT])
        dims.append(window.dims)
        frames.append(window.frames)
        check.limit("tensors", len(names), window.base, "onnx: tensors")
    columns = np.concatenate(tables, axis=1)
    odd, ranks, codes, typed, location, places, ends = columns[FRAME:]
    values = np.concatenate(dims)
    sizes = ends - places
    plain = (odd != 1) & (location == 0) & (ends != 0) & (typed != 0)
    plain &= _have_right_size(codes, ranks, values, sizes, source.size) & (ranks <= np.uint64(check.limits.rank))
    messages = np.concatenate(frames)
    paths = Paths(messages, walker, check)
    fields, starts, stops, parents, numbers, ordinals = columns[:FRAME]
    records = Records(
        fields, starts, stops, parents, numbers, ordinals, plain, names, codes, ranks, values, places, sizes, messages,
        paths,
    )  # fmt: skip
    nested = records.find_nested()
    plain &= (odd != _UNNAMED) | nested
    for row in (plain & nested).nonzero()[0].tolist():
        names[row] = records.name_row(row, names[row])
    return records


def _describe_lack(what: str, row: int) -> str:
    return f"onnx: a sparse tensor has no {what}"


def _list_records(source: Source, walker: Walker, check: Check) -> Records:
    """Find the tensors without the kernel: only their places. None is plain, so each is read one by one."""
    rows, frames = find_tensors(source.size, walker, check)
    codes, ranks, places, sizes = np.zeros((4, len(rows)), np.uint64)
    plain, dims = np.zeros(len(rows), np.bool_), np.empty(0, np.uint64)
    paths = Paths(frames, walker, check)
    fields, starts, stops, parents, numbers, ordinals = rows.T.copy()
    return Records(
        fields, starts, stops, parents, numbers, ordinals, plain, [""] * len(rows), codes, ranks, dims, places, sizes,
        frames, paths,
    )  # fmt: skip


def _read_names(window: Window, check: Check) -> list[str]:
    """Read what the tensors call themselves; empty for odd ones. A name that is long, cut or wrong makes one odd."""
    rows, base = window.rows, window.base
    longest = check.limits.metadata_bytes
    starts, stops = rows[:, NAME], rows[:, NAME + 1]
    lengths = stops - starts
    rows[(lengths > np.uint64(longest)) | (stops > np.uint64(base + len(window.data))), ODD] = 1
    rows[(rows[:, ODD] == 0) & (lengths == 0), ODD] = _UNNAMED
    sound = rows[:, ODD] == 0
    places = np.where(sound, starts - np.uint64(base), np.uint64(0))
    sizes = np.where(sound, lengths, np.uint64(0))
    names, bad = kernels.texts(window.data, places, sizes)
    if bad >= 0:
        spans = zip(places.tolist(), sizes.tolist(), strict=True)
        text = np.array([is_utf8(window.data[place : place + size]) for place, size in spans])
        rows[~text, ODD] = 1
        names, _ = kernels.texts(window.data, np.where(text, places, np.uint64(0)), np.where(text, sizes, np.uint64(0)))
    return names


def _have_right_size(
    codes: NDArray[np.uint64], ranks: NDArray[np.uint64], dims: NDArray[np.uint64], sizes: NDArray[np.uint64], size: int
) -> NDArray[np.bool_]:
    """Which rows have a known type and exactly the bytes that type and dims need. No product here can overflow."""
    counts, exact = Shapes(dims.data, _find_starts(ranks), ranks).counts()
    possible = exact & (counts <= np.uint64(8 * size))  # an element has at least one bit
    bits = _BITS[np.minimum(codes, np.uint64(len(_BITS) - 1))]
    needed = (np.where(possible, counts, np.uint64(0)) * bits + np.uint64(7)) // np.uint64(8)
    ok: NDArray[np.bool_] = possible & (bits != 0) & (needed == sizes)
    negative = dims >> np.uint64(63) != 0
    if negative.any():
        ok[np.repeat(np.arange(len(ranks)), ranks.astype(np.intp))[negative]] = False
    return ok


def _find_starts(ranks: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Find the byte at which the dims of each row begin."""
    starts: NDArray[np.uint64] = (np.cumsum(ranks, dtype=np.uint64) - ranks) * np.uint64(8)
    return starts
