"""The tensors of a table, some of them replaced by others."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from holdall.model.forms import Form, Forms
from holdall.model.payload import Payload, SourceRange
from holdall.model.ranges import Ranges
from holdall.model.table import TensorTable, form_of
from holdall.model.tensor import Tensor
from holdall.model.totals import Totals, add_up

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["ReplacedTable"]

T = TypeVar("T")


class ReplacedTable(TensorTable):
    """The tensors of another table, with ``tensors`` in the place of those in their rows. The names stay the same.

    >>> from holdall.model.array_table import ArrayTable
    >>> table = ArrayTable({"a": np.zeros(1), "b": np.ones(2)})
    >>> list(ReplacedTable(table, {1: Tensor.of("b", np.ones(3, np.int8))}))
    [<Tensor 'a' f64[1]>, <Tensor 'b' i8[3]>]
    """

    def __init__(self, table: TensorTable, tensors: Mapping[int, Tensor]) -> None:
        self.names = table.names
        self._table = table
        self._tensors = tensors
        self._is_new = np.zeros(len(table), np.bool_)
        self._is_new[list(tensors)] = True

    def tensor(self, row: int) -> Tensor:
        return self._tensors[row] if row in self._tensors else self._table.tensor(row)

    def payload(self, row: int) -> Payload | None:
        return self._tensors[row].payload if row in self._tensors else self._table.payload(row)

    def read(self, rows: NDArray[np.intp]) -> Sequence[bytes | memoryview]:
        is_new = self._is_new[rows]
        found = iter(self._table.read(rows[~is_new]))
        replaced = iter(super().read(rows[is_new]))
        return [next(replaced if new else found) for new in is_new.tolist()]

    def identify(self, row: int) -> Hashable:
        return super().identify(row) if row in self._tensors else self._table.identify(row)

    def ranges(self) -> Ranges:
        ranges, others = self._table.ranges(), np.array(list(self._tensors), np.intp)
        new = Ranges.of_payloads(tensor.payload for tensor in self._tensors.values())
        both, order = Ranges.join(ranges, new), np.arange(len(self))
        order[others] = len(self) + np.arange(len(others))
        return both.take(order)

    def totals(self) -> dict[str, Totals]:
        return add_up(self.forms())

    def _collect_forms(self) -> Forms:
        forms = self._table.forms()
        kinds: dict[Form, int] = {}
        # Numbers of forms that are left by nothing but replaced tensors must not remain.
        left, firsts, inverse = np.unique(forms.codes[~self._is_new], return_index=True, return_inverse=True)
        codes, places = np.empty(len(self), np.uint32), (~self._is_new).nonzero()[0]
        seen = [(int(places[first]), forms.kinds[code]) for first, code in zip(firsts, left.tolist(), strict=True)]
        for _, form in sorted([*seen, *((row, form_of(new)) for row, new in self._tensors.items())], key=_row):
            kinds.setdefault(form, len(kinds))  # in the order in which they first appear
        codes[places] = np.array([kinds[form] for _, form in seen], np.uint32)[inverse]
        for row, tensor in self._tensors.items():
            codes[row] = kinds[form_of(tensor)]
        return Forms(list(kinds), codes)

    def natives(self, kind: type[T]) -> Iterator[tuple[int, T]]:
        found = {row: native for row, native in self._table.natives(kind) if row not in self._tensors}
        found |= {row: new.native for row, new in self._tensors.items() if isinstance(new.native, kind)}
        return iter(sorted(found.items(), key=_row))

    def find_trained(self) -> NDArray[np.bool_]:
        trained = self._table.find_trained().copy()
        for row, tensor in self._tensors.items():
            trained[row] = tensor.requires_grad
        return trained

    def _find_sources(self) -> Iterator[Source]:
        yield from self._table.sources()
        payloads = (tensor.payload for tensor in self._tensors.values())
        yield from (payload.source for payload in payloads if isinstance(payload, SourceRange))


def _row(pair: tuple[int, object]) -> int:
    return pair[0]
