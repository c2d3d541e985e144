"""The initializers of a graph as columns: what most of them say, without a look at each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from holdall import kernels
from holdall.check import Check
from holdall.columns import Shapes
from holdall.dtypes import DTYPES as NAMED
from holdall.formats.onnx import layout, rules
from holdall.formats.onnx.wire import BYTES, VARINT, Walker
from holdall.kernels.protobuf_reference import COUNT, FIELD, FIRST, ODD, START, STOP, WIRE
from holdall.sizes import tuned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["Records", "read_records"]

_SINGLES = bytes((layout.NAME << 3 | BYTES, layout.RAW << 3 | BYTES, layout.DATA_TYPE << 3 | VARINT,
                  layout.LOCATION << 3 | VARINT))  # fmt: skip
_ODD = bytes((*layout.NUMBERS, layout.EXTERNAL))
_NAME, _RAW, _TYPE, _LOCATION = range(FIRST, FIRST + 2 * len(_SINGLES), 2)
_KEPT = [FIELD, START, STOP, ODD, COUNT, _TYPE, _TYPE + 1, _LOCATION, _RAW, _RAW + 1]
_ROWS, _DIMS = tuned(1 << 14), tuned(1 << 16)  # that are read at a time
_LEAST, _MOST = tuned(1 << 12), tuned(1 << 20)  # bytes that are read at a time: few where payloads lie between
_BITS = np.zeros(max(layout.DTYPES) + 2, np.uint64)  # by data_type; 0 where there is no such type, as in the last
_BITS[list(layout.DTYPES)] = [NAMED[name].bits for name in layout.DTYPES.values()]


@dataclass(slots=True)
class Records:
    """One row for each initializer. Those that are not ``plain`` have to be looked at one by one."""

    fields: NDArray[np.uint64]  # where the field begins, tag and length included
    starts: NDArray[np.uint64]
    stops: NDArray[np.uint64]
    plain: NDArray[np.bool_]  # raw data of the size that dims and a known type ask for, and a name
    names: list[str]
    codes: NDArray[np.uint64]  # data_type
    ranks: NDArray[np.uint64]
    dims: NDArray[np.uint64]  # of all of them, one after the other
    places: NDArray[np.uint64]  # where the raw data begin
    sizes: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.plain)


def read_records(source: Source, start: int, stop: int, walker: Walker, check: Check) -> Records:
    """The initializers of the graph at ``start..stop``."""
    names: list[str] = []
    tables, dims = [np.empty((len(_KEPT), 0), np.uint64)], [np.empty(0, np.uint64)]
    for base, window, rows, values in _windows(source, start, stop, walker):
        names += _names(rows, base, window, check)
        tables.append(rows.T[_KEPT])
        dims.append(values)
        check.limit("tensors", len(names), start, "onnx: initializers")
    fields, starts, stops, odd, ranks, codes, typed, location, places, ends = np.concatenate(tables, axis=1)
    values = np.concatenate(dims)
    sizes = ends - places
    plain = (odd == 0) & (location == 0) & (ends != 0) & (typed != 0)
    plain &= _fits(codes, ranks, values, sizes, source.size) & (ranks <= np.uint64(check.limits.rank))
    if len(set(names)) != len(names):  # only the first of several can be plain
        seen: set[str] = set()
        for row in plain.nonzero()[0].tolist():
            plain[row] = names[row] not in seen
            seen.add(names[row])
    return Records(fields, starts, stops, plain, names, codes, ranks, values, places, sizes)


def _windows(
    source: Source, start: int, stop: int, walker: Walker
) -> Iterator[tuple[int, bytes, NDArray[np.uint64], NDArray[np.uint64]]]:
    """Where each window begins, its bytes, the rows that are in it and the dims of their tensors."""
    rows, dims = np.empty((_ROWS, FIRST + 2 * len(_SINGLES)), np.uint64), np.empty(_DIMS, np.uint64)
    step = _LEAST
    while start < stop:
        window = source.read(start, min(step, stop - start))
        count, used, reached, why = kernels.protobuf_records(
            window, start, start, stop, layout.INITIALIZER, layout.DIMS, _SINGLES, _ODD, rows, dims
        )
        yield start, window, rows[:count].copy(), dims[:used].copy()
        if why == WIRE:
            for _ in walker.fields(reached, stop):
                raise AssertionError("a field that is broken was read")
        skipped = reached - start > 2 * len(window)
        step = _LEAST if skipped else min(4 * step, _MOST)
        start = reached


def _names(rows: NDArray[np.uint64], base: int, window: bytes, check: Check) -> list[str]:
    """The names of the rows; empty for a row that is odd, or turns out to be."""
    longest = check.limits.metadata_bytes
    starts, stops = rows[:, _NAME], rows[:, _NAME + 1]
    lengths = stops - starts
    rows[(lengths == 0) | (lengths > np.uint64(longest)) | (stops > np.uint64(base + len(window))), ODD] = 1
    sound = rows[:, ODD] == 0
    places = np.where(sound, starts - np.uint64(base), np.uint64(0))
    sizes = np.where(sound, lengths, np.uint64(0))
    names, bad = kernels.texts(window, places, sizes)
    if bad >= 0:
        spans = zip(places.tolist(), sizes.tolist(), strict=True)
        text = np.array([_is_text(window[place : place + size]) for place, size in spans])
        check.rows(text, rules.TEXT, starts, lambda row: "onnx: the name of a tensor is not UTF-8")
    return names


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _fits(
    codes: NDArray[np.uint64], ranks: NDArray[np.uint64], dims: NDArray[np.uint64], sizes: NDArray[np.uint64], size: int
) -> NDArray[np.bool_]:
    """Which rows have a known type and as many bytes as it and the dims ask for, in numbers that cannot wrap."""
    counts, exact = Shapes(dims.data, _starts(ranks), ranks).counts()
    possible = exact & (counts <= np.uint64(8 * size))  # one bit an element, or more
    bits = _BITS[np.minimum(codes, np.uint64(len(_BITS) - 1))]
    needed = (np.where(possible, counts, np.uint64(0)) * bits + np.uint64(7)) // np.uint64(8)
    ok: NDArray[np.bool_] = possible & (bits != 0) & (needed == sizes)
    negative = dims >> np.uint64(63) != 0
    if negative.any():
        ok[np.repeat(np.arange(len(ranks)), ranks.astype(np.intp))[negative]] = False
    return ok


def _starts(ranks: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Where the dims of each row begin, in bytes."""
    starts: NDArray[np.uint64] = (np.cumsum(ranks, dtype=np.uint64) - ranks) * np.uint64(8)
    return starts
