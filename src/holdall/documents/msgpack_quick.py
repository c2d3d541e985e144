"""The quick way through a list of maps where the C walker is missing.

A document that is byte for byte what an encoder makes of its decoded content is strict MessagePack with unique keys,
and where everything lies follows from the values. Almost every index is; any other takes the careful way.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from holdall.documents.msgpack import Rows
from holdall.kernels.msgpack_reference import ABSENT, ARRAY, NIL, STR, UINT

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["quick_rows"]

_document = msgspec.msgpack.Decoder(dict[str, list[dict[str, Any]]])

# How long the head of a value is: the bounds, and the bytes below the first, the second and so on.
_INT = np.array([1 << 7, 1 << 8, 1 << 16, 1 << 32], np.uint64), np.array([1, 2, 3, 5, 9], np.uint64)
_TEXT = np.array([1 << 5, 1 << 8, 1 << 16], np.uint64), np.array([1, 2, 3, 5], np.uint64)
_LIST = np.array([1 << 4, 1 << 16], np.uint64), np.array([1, 3, 5], np.uint64)


def quick_rows(data: bytes, member: str, keys: Sequence[str]) -> Rows | None:
    """The maps in the list that is all of ``data`` but its key; None where they are not alike, or not in that form.

    >>> quick_rows(msgspec.msgpack.encode({"a": [{"n": 1}, {"n": 300}]}), "a", ["n"]).value("n").tolist()
    [1, 300]
    """
    try:
        document = _document.decode(data)
        if list(document) != [member] or not document[member] or msgspec.msgpack.encode(document) != data:
            return None
    except (msgspec.MsgspecError, UnicodeError, ValueError, RecursionError):
        return None
    maps = document[member]
    order = tuple(maps[0])
    if len(order) > 15 or not set(order) <= set(keys) or any(tuple(found) != order for found in maps):
        return None
    rows = Rows(keys, len(maps))
    rows.kinds[:], rows.ats[:], rows.values[:], rows.ends[:], rows.extras[:] = ABSENT, 0, 0, 0, 0
    columns = []
    for key in order:
        column = _column([found[key] for found in maps])
        if column is None:
            return None
        columns.append(column)
    heads = [_heads(_TEXT, np.array([len(key.encode())], np.uint64))[0] + np.uint64(len(key.encode())) for key in order]
    sizes = sum((head + size for head, (*_, size) in zip(heads, columns, strict=True)), np.uint64(1))
    first = np.uint64(1 + len(msgspec.msgpack.encode(member))) + _heads(_LIST, np.array([len(maps)], np.uint64))[0]
    at = first + np.cumsum(sizes, dtype=np.uint64) - sizes
    rows.starts[:] = at
    at = at + np.uint64(1)
    for key, head, (kind, values, skipped, size) in zip(order, heads, columns, strict=True):
        at = at + head
        rows.kind(key)[:], rows.at(key)[:], rows.value(key)[:] = kind, at + skipped, values
        at = at + size
        rows.end(key)[:] = at
    rows.stop = int(at[-1])
    return rows


def _column(values: list[Any]) -> tuple[int, Any, Any, Any] | None:
    """Kind, numbers, bytes before the content of a text, and bytes in all; None where the values are not alike."""
    types = set(map(type, values))
    if types == {int} and min(values) >= 0:
        numbers = np.array(values, np.uint64)
        return UINT, numbers, np.uint64(0), _heads(_INT, numbers)
    if types == {str}:
        lengths = np.fromiter((len(value.encode()) for value in values), np.uint64, len(values))
        heads = _heads(_TEXT, lengths)
        return STR, lengths, heads, heads + lengths
    if types == {list}:
        items = list(chain.from_iterable(values))
        if not set(map(type, items)) <= {int} or min(items, default=0) < 0:
            return None
        counts = np.fromiter(map(len, values), np.uint64, len(values))
        inside = np.concatenate(
            [np.zeros(1, np.uint64), _heads(_INT, np.array(items, np.uint64)).cumsum(dtype=np.uint64)]
        )
        ends = counts.cumsum(dtype=np.uint64)
        return ARRAY, counts, np.uint64(0), _heads(_LIST, counts) + inside[ends] - inside[ends - counts]
    return (NIL, np.uint64(0), np.uint64(0), np.ones(len(values), np.uint64)) if types == {type(None)} else None


def _heads(table: tuple[NDArray[np.uint64], NDArray[np.uint64]], numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bounds, sizes = table
    found: NDArray[np.uint64] = sizes[np.searchsorted(bounds, numbers, side="right")]
    return found
