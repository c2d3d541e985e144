"""Whole tables from columns: what a scan takes apart, put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.errors import ContentError
from holdall.layout import Field, Layout
from holdall.sizes import tuned

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["build"]

_WIDTH = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i32": 4, "i64": 8, "f32": 4, "f64": 8}
_BLOCK = tuned(1 << 14)  # rows that are built at a time, so that the temporaries stay small


def build(layout: Layout, **columns: Sequence[Any]) -> bytes:
    """The bytes of a table, from a column for each field of ``layout``.

    Integer fields take integers, counted strings ``bytes``, counted arrays sequences of integers; the counter of an
    array is a column of its own. Much faster than ``layout.pack`` for each row of a long table.

    >>> from holdall.layout import U8, U16, text
    >>> build(Layout("named", name=text(U16), value=U8), name=[b"a", b"bc"], value=[1, 2])
    b'\\x01\\x00a\\x01\\x02\\x00bc\\x02'
    """
    count = len(columns[next(iter(layout.fields))])
    try:
        return b"".join(
            _block(layout, {name: column[at : at + _BLOCK] for name, column in columns.items()})
            for at in range(0, count, _BLOCK)
        )
    except OverflowError as error:
        raise ContentError(f"{layout.name}: {error}") from None


def _block(layout: Layout, columns: Mapping[str, Sequence[Any]]) -> bytes:
    lengths = {name: _lengths(field, columns[name]) for name, field in layout.fields.items()}
    sizes = {name: _stored(field, lengths[name]) for name, field in layout.fields.items()}
    total: NDArray[np.int64] = np.sum(list(sizes.values()), axis=0)
    ends = np.cumsum(total)
    data = bytearray(int(ends[-1]))
    at = ends - total
    for name, field in layout.fields.items():
        column, width, code = columns[name], _WIDTH[field.type], f"<{field.type[0]}{_WIDTH[field.type]}"
        if field.kind == "text":
            _scatter(data, at, code, lengths[name])
            _scatter(data, _spread(at + width, lengths[name], 1), "u1", np.frombuffer(b"".join(column), np.uint8))
        elif field.kind == "array":
            _scatter(data, _spread(at, lengths[name], width), code, [item for items in column for item in items])
        else:
            _scatter(data, at, code, column)
        at = at + sizes[name]
    return bytes(data)


def _lengths(field: Field, column: Sequence[Any]) -> NDArray[np.int64]:
    """Items in each row: 1 of an integer field, as many as are counted of the others."""
    assert field.kind in ("int", "text", "array"), f"no table is built with a field of kind {field.kind}"
    return np.fromiter(map(len, column), np.int64, len(column)) if field.kind != "int" else np.ones(len(column), int)


def _stored(field: Field, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bytes of each row."""
    if field.kind == "text":
        return -(-(_WIDTH[field.type] + lengths) // field.pad) * field.pad
    return lengths * _WIDTH[field.type]


def _scatter(data: bytearray, at: NDArray[np.int64], code: str, values: Any) -> None:
    """Put each value at its place, aligned or not."""
    if len(at):
        kind = np.dtype(code)
        if kind.kind in "iu":  # an array would be wrapped without a word, and so would a list before numpy 2
            fits = np.iinfo(kind)
            low, high = (values.min(), values.max()) if isinstance(values, np.ndarray) else (min(values), max(values))
            if low < fits.min or high > fits.max:
                raise OverflowError(f"{low if low < fits.min else high} does not fit {kind.name}")
        np.ndarray(len(data) - kind.itemsize + 1, kind, data, strides=(1,))[at] = np.asarray(values, kind)


def _spread(at: NDArray[np.int64], lengths: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """The places of all items of runs: ``lengths[i]`` items of ``width`` bytes from ``at[i]`` on."""
    before = np.cumsum(lengths) - lengths
    places: NDArray[np.int64] = np.repeat(at - before * width, lengths) + np.arange(int(lengths.sum())) * width
    return places
