"""The tensors of a table in other dtypes, without an object for each."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from holdall.model.casts import cast, cast_bytes, require_plain
from holdall.model.dtypes import DType
from holdall.model.encodings import Scaling
from holdall.model.forms import Form, Forms
from holdall.model.payload import Payload
from holdall.model.ranges import Ranges
from holdall.model.table import TensorTable
from holdall.model.tensor import Tensor
from holdall.model.totals import Totals, add_up

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["CastTable"]

T = TypeVar("T")


class CastTable(TensorTable):
    """The tensors of another table, cast when they are read.

    ``choices`` has for each row the number of its new dtype in ``dtypes``, -1 where the tensor stays as it is.
    ``on_warning`` receives overflow messages. A tensor whose elements are not its values raises ContentError now.

    >>> from holdall.model.array_table import ArrayTable
    >>> from holdall.model.dtypes import find_dtype
    >>> table = ArrayTable({"a": np.ones(2, np.float32), "b": np.ones(2, np.int8)})
    >>> list(CastTable(table, [find_dtype("f16")], np.array([0, -1])))
    [<Tensor 'a' f16[2]>, <Tensor 'b' i8[2]>]
    """

    def __init__(
        self,
        table: TensorTable,
        dtypes: Sequence[DType],
        choices: NDArray[np.intp],
        on_warning: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.names = table.names
        self._table = table
        self._on_warning = on_warning
        self._pairs, self._codes = _number_casts(table.forms(), dtypes, choices)
        self._refuse_others()

    def _refuse_others(self) -> None:
        """Raise ContentError for the first tensor that cannot be cast."""
        forms = self._table.forms()
        firsts = np.unique(forms.codes.astype(np.int64) * len(self._pairs) + self._codes, return_index=True)[1].tolist()
        for row in sorted({*firsts, *self._find_scaled()}):
            if self._pairs[self._codes[row]] is not None:
                require_plain(self._table.tensor(row), "casting")

    def _find_scaled(self) -> Iterator[int]:
        """The first row that is cast and has quantization parameters, if there is one."""
        kinds: dict[type, bool] = {}
        for row, native in self._table.natives(object):
            kind = type(native)
            if kind not in kinds:  # to compare each with a protocol would take long
                kinds[kind] = isinstance(native, Scaling)
            if kinds[kind] and self._pairs[self._codes[row]] is not None:
                yield row
                return

    def tensor(self, row: int) -> Tensor:
        tensor, pair = self._table.tensor(row), self._pairs[self._codes[row]]
        return tensor if pair is None else cast(tensor, pair[1], self._on_warning)

    def payload(self, row: int) -> Payload | None:
        return self._table.payload(row) if self._pairs[self._codes[row]] is None else self.tensor(row).payload

    def read(self, rows: NDArray[np.intp]) -> Sequence[bytes | memoryview]:
        found = list(self._table.read(rows))
        codes, alone = self._codes[rows], list[int]()
        for code in np.unique(codes).tolist():
            pair, places = self._pairs[code], (codes == code).nonzero()[0].tolist()
            if pair is not None and not _cast_together(found, places, pair):
                alone += places
        for place in sorted(alone):  # which warns, or names what does not fit
            payload = self.payload(int(rows[place]))
            found[place] = b"" if payload is None else payload.read()
        return found

    def identify(self, row: int) -> Hashable:
        # A payload that is cast is made when it is asked for, and has no identity of its own.
        return self._table.identify(row) if self._pairs[self._codes[row]] is None else ("row", row)

    def ranges(self) -> Ranges:
        ranges = self._table.ranges()
        return Ranges(ranges.sources, np.where(self._codes == 0, ranges.owners, -1), ranges.starts, ranges.sizes)

    def totals(self) -> dict[str, Totals]:
        return add_up(self.forms())

    def _collect_forms(self) -> Forms:
        forms, width = self._table.forms(), len(self._pairs)
        keys, rows = forms.codes.astype(np.int64) * width + self._codes, dict[Form, int]()
        distinct, firsts, inverse = np.unique(keys, return_index=True, return_inverse=True)
        numbers = np.empty(len(distinct), np.uint32)
        for place in firsts.argsort().tolist():  # forms are numbered in the order in which they first appear
            code, pair = divmod(int(distinct[place]), width)
            numbers[place] = rows.setdefault(_cast_form(forms.kinds[code], self._pairs[pair]), len(rows))
        return Forms(list(rows), numbers[inverse])

    def natives(self, kind: type[T]) -> Iterator[tuple[int, T]]:
        return ((row, native) for row, native in self._table.natives(kind) if self._codes[row] == 0)

    def find_trained(self) -> NDArray[np.bool_]:
        return self._table.find_trained()

    def sources(self) -> Sequence[Source]:
        return self._table.sources()


def _cast_together(found: list[bytes | memoryview], places: Sequence[int], pair: tuple[DType, DType]) -> bool:
    """Cast the bytes in some ``places`` at once; False if each has to be cast alone."""
    made = cast_bytes(b"".join(found[place] for place in places), *pair)
    if made is None:
        return False
    at = 0
    for place in places:
        end = at + len(found[place]) * pair[1].bits // pair[0].bits
        found[place] = made[at:end]
        at = end
    return True


def _number_casts(
    forms: Forms, dtypes: Sequence[DType], choices: NDArray[np.intp]
) -> tuple[list[tuple[DType, DType] | None], NDArray[np.intp]]:
    """Number the pairs (old, new) of dtypes that occur, and give the number of each row; 0 is for no cast."""
    pairs: list[tuple[DType, DType] | None] = [None]
    numbers = np.zeros((len(forms.kinds), len(dtypes) + 1), np.intp)
    for code, form in enumerate(forms.kinds):
        for choice, dtype in enumerate(dtypes):
            if form.dtype != dtype:
                # What has no dtype is refused; till then any pair stands for it.
                pair = (form.dtype if isinstance(form.dtype, DType) else dtype, dtype)
                if pair not in pairs:
                    pairs.append(pair)
                numbers[code, choice] = pairs.index(pair)
    return pairs, numbers[forms.codes, choices]  # a choice of -1 is the last column, which is 0


def _cast_form(form: Form, pair: tuple[DType, DType] | None) -> Form:
    if pair is None:
        return form
    return Form(pair[1], form.shape, None if form.size is None else pair[1].nbytes(form.shape))
