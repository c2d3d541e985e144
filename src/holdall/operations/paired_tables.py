"""Two tables whose tensors are compared by name: many small ones are read together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.errors import HoldallError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.forms import Form, Forms
    from holdall.model.table import TensorTable

__all__ = ["PairedTables"]

_TOGETHER = buffer_size(1 << 20)  # bytes of tensors that are read at once,
_MANY = buffer_size(1 << 12)  # and at most this many of them


class PairedTables:
    """Two tables. ``partners`` has for each row of ``a`` the row of the same name in ``b``, -1 where there is none.

    >>> from holdall.model.array_table import ArrayTable
    >>> a, b = ArrayTable({"v": np.ones(2), "w": np.ones(2)}), ArrayTable({"w": np.ones(2), "v": np.zeros(2)})
    >>> pairs = PairedTables(a, b)
    >>> pairs.partners.tolist(), pairs.drop_equal(np.arange(2)).tolist()
    ([1, 0], [0])
    """

    def __init__(self, a: TensorTable, b: TensorTable) -> None:
        self.a, self.b = a, b
        self.partners = _pair(a.names, b.names)
        self._forms = _number_forms(a.forms(), b.forms())

    def divide(self, rows: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
        """Divide rows of ``a`` into blocks: many small tensors, which are read together, or one large."""
        first = held = 0
        for number, size in enumerate(self.a.forms().sizes()[rows].tolist()):
            if number > first and (held + size > _TOGETHER or number - first >= _MANY):
                yield rows[first:number]
                first, held = number, 0
            held += size
        if len(rows):
            yield rows[first:]

    def drop_equal(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return ``rows`` of ``a`` without those of tensors that have partners of the same type, shape and bytes."""
        (x, y), partners = self._forms, self.partners
        is_equal = (x[rows] >= 0) & (x[rows] == y[partners[rows]]) & (partners[rows] >= 0)
        alike: NDArray[np.intp] = rows[is_equal]
        try:
            left, right = self.a.read(alike), self.b.read(partners[alike])
        except HoldallError:  # compared alone, each says which one it is
            return rows
        is_equal[is_equal] = [bytes(mine) == bytes(theirs) for mine, theirs in zip(left, right, strict=True)]
        rest: NDArray[np.intp] = rows[~is_equal]
        return rest


def _pair(names: Sequence[str], others: Sequence[str]) -> NDArray[np.intp]:
    """The row of each name among the ``others``; -1 where it is not there."""
    numbers = dict(zip(others, range(len(others)), strict=True))
    return np.fromiter((numbers.get(name, -1) for name in names), np.intp, len(names))


def _number_forms(a: Forms, b: Forms) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Number the forms of two tables, equal ones alike, and give the number of each row; -1 without data."""
    numbers: dict[tuple[str, tuple[int, ...], int], int] = {}

    def number(form: Form) -> int:
        if form.size is None:
            return -1
        return numbers.setdefault((str(form.dtype), form.shape, form.size), len(numbers))

    return a.column(number, np.intp), b.column(number, np.intp)
