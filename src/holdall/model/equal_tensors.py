"""Tensors that are equal: the same dtype, shape and bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.base.parallel import map_in_order
from holdall.base.progress import ignore_count
from holdall.binary.kernels import equal
from holdall.model.gather import read_rows
from holdall.model.passes import can_read_anywhere
from holdall.model.payload import Payload, SourceRange
from holdall.source.buffers import lend_pieces

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.forms import Form, Forms
    from holdall.model.table import TensorTable

__all__ = ["find_equal", "hash_payload", "same_bytes"]

_HEAD = buffer_size(1 << 16)  # bytes that are compared before whole payloads are
_PIECE = buffer_size(2 << 20)  # bytes compared at a time: smaller ones wait for the interpreter lock more often
_PART = 4 * _PIECE  # bytes that one thread compares at a time


def find_equal(table: TensorTable, is_candidate: Callable[[Form], bool] = lambda form: True) -> dict[int, int]:
    """Find the rows of tensors that equal an earlier one, each with the row of the first such tensor.

    Only tensors of forms that are candidates are compared. Those that agree in dtype, shape and their first bytes are
    read completely, piece by piece.

    >>> from holdall.model.array_table import ArrayTable
    >>> find_equal(ArrayTable({"a": np.array([1, 2]), "b": np.array([3, 4]), "c": np.array([1, 2])}))
    {2: 0}
    """
    numbers, sizes = _number_candidates(table.forms(), is_candidate), table.forms().sizes()
    groups: dict[tuple[int, bytes], list[int]] = {}
    for row, digest in _hash_heads(table, _drop_lone(numbers), sizes):
        groups.setdefault((int(numbers[row]), digest), []).append(row)
    alike = [rows for rows in groups.values() if len(rows) > 1]
    large = [row for rows in alike for row in rows if sizes[row] > _HEAD]
    digests = dict(zip(large, map_in_order(lambda row: hash_payload(_payload(table, row)), large), strict=True))
    equal: dict[int, int] = {}
    for rows in alike:
        firsts: dict[bytes, int] = {}
        for row in rows:
            first = firsts.setdefault(digests.get(row, b""), row)
            if first != row:
                equal[row] = first
    return equal


def _number_candidates(forms: Forms, is_candidate: Callable[[Form], bool]) -> NDArray[np.intp]:
    """Number the types and shapes of candidates, and give the number of each row; -1 for others."""
    numbers: dict[tuple[str, tuple[int, ...]], int] = {}

    def number(form: Form) -> int:
        if form.size is None or not is_candidate(form):
            return -1
        return numbers.setdefault((str(form.dtype), form.shape), len(numbers))

    return forms.column(number, np.intp)


def _drop_lone(numbers: NDArray[np.intp]) -> NDArray[np.intp]:
    """The rows whose number another row has too. A row that is alone equals no other, and is not read."""
    counts = np.bincount(numbers + 1, minlength=1)
    counts[0] = 0  # those of no candidates
    rows: NDArray[np.intp] = (counts[numbers + 1] > 1).nonzero()[0]
    return rows


def _hash_heads(
    table: TensorTable, rows: NDArray[np.intp], sizes: NDArray[np.uint64]
) -> Iterator[tuple[int, bytes]]:  # fmt: skip
    """Hash the first bytes of each row. Small tensors, of which that is all, come first and are read together."""
    from blake3 import blake3

    ranges, is_small = table.ranges(), sizes[rows] <= np.uint64(_HEAD)
    small = rows[is_small]
    blocks = np.cumsum(sizes[small]) // np.uint64(_PIECE)
    for block in np.split(small, (blocks[1:] != blocks[:-1]).nonzero()[0] + 1):
        for row, data in zip(block.tolist(), read_rows(table, ranges, block), strict=True):
            yield row, blake3(data).digest()
    for row in rows[~is_small].tolist():
        yield row, _hash(islice(_payload(table, row).chunks(_HEAD), 1))


def _payload(table: TensorTable, row: int) -> Payload:
    payload = table.payload(row)
    assert payload is not None, "a candidate has data"
    return payload


def hash_payload(payload: Payload) -> bytes:
    """Compute the BLAKE3 of all bytes of ``payload``, read piece by piece."""
    return _hash(payload.chunks())


def _hash(chunks: Iterable[memoryview]) -> bytes:
    from blake3 import blake3

    running = blake3()
    for chunk in chunks:
        running.update(chunk)
    return running.digest()


def same_bytes(a: Payload, b: Payload, on_bytes: Callable[[int], object] = ignore_count) -> bool:
    """Whether two payloads have the same bytes, read piece by piece up to the first difference.

    ``on_bytes`` gets the size of each piece that was equal; what it raises ends the comparison.
    """
    if a.size != b.size:
        return False
    if can_read_anywhere(a) and can_read_anywhere(b):
        return _same_ranges(a, b, on_bytes)
    left, right = a.chunks(_PIECE), b.chunks(_PIECE)
    same = True
    for x, y in zip(left, right, strict=True):
        same = equal(x, y)
        if not same:
            break
        on_bytes(len(x))
    if not same:
        for payload, rest in ((a, left), (b, right)):
            if not isinstance(payload, SourceRange):  # a compressed member compares its checksum at its end
                deque(rest, 0)
    return same


def _same_ranges(a: SourceRange, b: SourceRange, on_bytes: Callable[[int], object]) -> bool:
    def compare(start: int) -> bool:
        stop = min(start + _PART, a.size)
        left = lend_pieces(a.source, a.offset + start, a.offset + stop, _PIECE)
        right = lend_pieces(b.source, b.offset + start, b.offset + stop, _PIECE)
        return all(equal(x, y) for x, y in zip(left, right, strict=True))

    starts = range(0, a.size, _PART)
    for start, same in zip(starts, map_in_order(compare, starts), strict=True):
        if not same:
            return False
        on_bytes(min(_PART, a.size - start))
    return True
