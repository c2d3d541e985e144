"""The tensors of a table in another order, some of them, or by other names."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from holdall.model.payload import Payload
from holdall.model.table import TensorTable
from holdall.model.tensor import Tensor
from holdall.model.totals import Totals, Work, add_up

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from holdall.model.forms import Forms
    from holdall.model.ranges import Ranges
    from holdall.source import Source

__all__ = ["ArrangedTable"]

T = TypeVar("T")


class ArrangedTable(TensorTable):
    """The tensors in ``rows`` of another table, in that order. ``names`` are theirs here, where they differ there.

    >>> import numpy as np
    >>> from holdall.model.array_table import ArrayTable
    >>> table = ArrayTable({"b": np.zeros(1), "a": np.ones(2)})
    >>> ArrangedTable(table, np.array([1]), ["c"])[0]
    <Tensor 'c' f64[2]>
    """

    def __init__(self, table: TensorTable, rows: NDArray[np.intp], names: Sequence[str] | None = None) -> None:
        self._table = table
        self._order = rows
        buffer: Any = rows  # numpy's types call arrays buffers only from Python 3.12 on
        self._quick = memoryview(buffer)  # gives Python integers, and faster than the array
        self._renamed = names is not None
        self.names = [table.names[row] for row in rows.tolist()] if names is None else names

    def tensor(self, row: int) -> Tensor:
        tensor = self._table.tensor(self._quick[row])
        return tensor.replace(name=self.names[row]) if self._renamed else tensor

    def payload(self, row: int) -> Payload | None:
        return self._table.payload(self._quick[row])

    def read(self, rows: NDArray[np.intp]) -> Sequence[bytes | memoryview]:
        return self._table.read(self._order[rows])

    def identify(self, row: int) -> Hashable:
        return self._table.identify(self._quick[row])

    def ranges(self) -> Ranges:
        return self._table.ranges().take(self._order)

    def work(self) -> Work:
        return self._table.work() if len(self) == len(self._table) else super().work()

    def totals(self) -> dict[str, Totals]:
        return add_up(self.forms())

    def _collect_forms(self) -> Forms:
        import numpy as np

        from holdall.model.forms import Forms

        forms = self._table.forms()
        kinds, firsts, codes = np.unique(forms.codes[self._order], return_index=True, return_inverse=True)
        appearing = firsts.argsort()  # forms are numbered in the order in which they first appear
        return Forms(
            [forms.kinds[kind] for kind in kinds[appearing].tolist()], appearing.argsort()[codes].astype(np.uint32)
        )

    def natives(self, kind: type[T]) -> Iterator[tuple[int, T]]:
        found = dict(self._table.natives(kind))
        return ((row, found[old]) for row, old in enumerate(self._quick if found else ()) if old in found)

    def find_trained(self) -> NDArray[np.bool_]:
        return self._table.find_trained()[self._order]

    def sources(self) -> Sequence[Source]:
        return self._table.sources()

    @classmethod
    def by_name(cls, table: TensorTable) -> TensorTable:
        """The tensors of ``table`` sorted by name.

        >>> import numpy as np
        >>> from holdall.model.array_table import ArrayTable
        >>> ArrangedTable.by_name(ArrayTable({"b": np.zeros(1), "a": np.ones(2)})).names
        ['a', 'b']
        """
        from holdall.binary.columns import sort_names

        return cls(table, sort_names(table.names))
