"""The first and last values of a tensor, read without the rest of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from holdall.model.dtypes import DType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.tensor import Tensor

__all__ = ["Preview", "preview_alike", "preview_array", "preview_list", "preview_tensor"]

_WHOLE = 10  # values of a row that is shown as a whole
_ENDS = 5  # values at each end of a longer row
_ROWS = 5


@dataclass(frozen=True, slots=True)
class Preview:
    """The values at the ends of some rows; ``...`` stands for those between. ``more``: there are further rows."""

    rows: tuple[tuple[Any, ...], ...]
    more: bool = False


def preview_tensor(tensor: Tensor) -> Preview:
    """The ends of the first rows of ``tensor``: of as many as it has dimensions, as the verifier of OINF chooses them.

    >>> import numpy as np
    >>> from holdall import Tensor
    >>> preview_tensor(Tensor.of("w", np.arange(24).reshape(2, 12))).rows[1]
    (12, 13, 14, 15, 16, Ellipsis, 19, 20, 21, 22, 23)
    """
    return _choose_rows(tensor.shape, lambda row, size: _take_ends(tensor, row, size))


def preview_array(array: NDArray[Any]) -> Preview:
    """The same of an array.

    >>> import numpy as np
    >>> preview_array(np.zeros((3, 2))).more
    True
    """
    flat = array.reshape(-1)
    return _choose_rows(array.shape, lambda row, size: preview_list(flat[row * size : (row + 1) * size].tolist()))


def preview_alike(values: NDArray[Any], shape: Sequence[int]) -> list[Preview]:
    """The same of many tensors of one shape, the columns of ``values``.

    >>> import numpy as np
    >>> preview_alike(np.arange(24).reshape(12, 2), [12])[1].rows
    ((1, 3, 5, 7, 9, Ellipsis, 15, 17, 19, 21, 23),)
    """
    import numpy as np

    places = preview_array(np.arange(len(values)).reshape(shape))
    shown = [[place for place in row if place is not ...] for row in places.rows]
    rows = [values[row].T.tolist() for row in shown]
    for number, row in enumerate(places.rows):
        if ... in row:
            for part in rows[number]:
                part.insert(_ENDS, ...)
    return [Preview(tuple(map(tuple, parts)), places.more) for parts in zip(*rows, strict=True)]


def _choose_rows(shape: Sequence[int], take: Callable[[int, int], tuple[Any, ...]]) -> Preview:
    """Preview the rows that are shown of ``shape``; ``take`` returns the ends of a row by number and size."""
    count = prod(shape)
    if not count:
        return Preview(())
    if len(shape) < 2:
        return Preview((take(0, count),))
    rows = min(shape[0], len(shape), _ROWS)
    return Preview(tuple(take(row, count // shape[0]) for row in range(rows)), shape[0] > rows)


def preview_list(values: Any) -> tuple[Any, ...]:
    """The ends of a list or of a flat array.

    >>> preview_list(range(100))
    (0, 1, 2, 3, 4, Ellipsis, 95, 96, 97, 98, 99)
    """
    if len(values) <= _WHOLE:
        return tuple(values)
    return (*values[:_ENDS], ..., *values[-_ENDS:])


def _take_ends(tensor: Tensor, row: int, size: int) -> tuple[Any, ...]:
    """The ends of row number ``row``, of ``size`` values."""
    if not isinstance(tensor.dtype, DType):
        decoded = tensor[row] if tensor.ndim > 1 else tensor.numpy()
        return preview_list(decoded.reshape(-1).tolist())
    start = row * size
    if size <= _WHOLE:
        return tuple(_read(tensor, tensor.dtype, start, size).tolist())
    head, tail = (_read(tensor, tensor.dtype, at, _ENDS).tolist() for at in (start, start + size - _ENDS))
    return (*head, ..., *tail)


def _read(tensor: Tensor, dtype: DType, start: int, count: int) -> NDArray[Any]:
    """The values from element ``start`` on, counted over the flat tensor."""
    assert tensor.payload is not None
    bit = start * dtype.bits
    data = tensor.payload.slice(bit // 8, -(-(bit + count * dtype.bits) // 8))
    return dtype.decode_bits(data, bit % 8, count) if dtype.packed else dtype.decode_flat(data, 0, count)
