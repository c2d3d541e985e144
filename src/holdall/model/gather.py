"""Reading many small payloads with few reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.model.payload import InMemory, Payload
from holdall.model.ranges import Ranges
from holdall.source import Source

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.table import TensorTable

__all__ = ["read_rows", "read_together"]

_GAP = buffer_size(4096)  # bytes between two ranges that are read with them: a read of its own would take longer
_MOST = buffer_size(1 << 20)  # bytes of one read


def read_together(payloads: Sequence[Payload | None]) -> list[bytes | memoryview]:
    """Read all bytes of each of ``payloads``, none of None. Ranges of a local file that lie close are read at once.

    >>> from holdall.model.payload import SourceRange
    >>> from holdall.source import BytesSource
    >>> source = BytesSource(b"holdall")
    >>> list(map(bytes, read_together([SourceRange(source, 4, 3), InMemory(b"x"), SourceRange(source, 0, 4)])))
    [b'all', b'x', b'hold']
    """
    found = _read_ranges(Ranges.of_payloads(payloads))
    return [_read(payload) if data is None else data for payload, data in zip(payloads, found, strict=True)]


def read_rows(table: TensorTable, ranges: Ranges, rows: NDArray[np.intp]) -> list[bytes | memoryview]:
    """Read the tensors in ``rows`` as :func:`read_together` does. ``ranges`` are those of the table.

    >>> from holdall.model.array_table import ArrayTable
    >>> table = ArrayTable({"a": np.ones(2, np.int8), "b": np.zeros(1, np.int8)})
    >>> list(map(bytes, read_rows(table, table.ranges(), np.array([1, 0]))))
    [b'\\x00', b'\\x01\\x01']
    """
    found = zip(rows.tolist(), _read_ranges(ranges.take(rows)), strict=True)
    return [_read(table.payload(row)) if data is None else data for row, data in found]


def _read(payload: Payload | None) -> bytes | memoryview:
    if payload is None:
        return b""
    return payload.copy() if type(payload) is InMemory else payload.read()


def _read_ranges(ranges: Ranges) -> list[bytes | None]:
    """Read all bytes of each of ``ranges``; None for one that is not in a local file that is read as it is."""
    found: list[bytes | None] = [None] * len(ranges)
    for number, source in enumerate(ranges.sources):
        rows = (ranges.owners == number).nonzero()[0]
        if len(rows) and not source.is_remote and not source.is_checked:
            _read_from(source, rows[np.argsort(ranges.starts[rows], kind="stable")], ranges, found)
    return found


def _read_from(source: Source, rows: NDArray[np.intp], ranges: Ranges, found: list[bytes | None]) -> None:
    """Read the ranges in ``rows``, which lie in ``source`` and are sorted."""
    starts, stops = ranges.starts[rows].tolist(), (ranges.starts[rows] + ranges.sizes[rows]).tolist()
    numbers = rows.tolist()
    for first, last in _find_runs(starts, stops):
        low, high = starts[first], max(stops[first:last])
        data = source.read(low, high - low)
        for number, start, stop in zip(numbers[first:last], starts[first:last], stops[first:last], strict=True):
            found[number] = data[start - low : stop - low]


def _find_runs(starts: Sequence[int], stops: Sequence[int]) -> list[tuple[int, int]]:
    """Find the stretches of sorted ranges that are read at once: their first, and the one after their last."""
    firsts = [0]
    begin = end = starts[0]
    for number, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        if start > end + _GAP or stop > begin + _MOST:
            firsts.append(number)
            begin = end = start
        end = max(end, stop)
    return [(first, last) for first, last in zip(firsts, [*firsts[1:], len(starts)], strict=True) if first < last]
