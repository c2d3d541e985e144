"""What tensors are, as columns. Few types and shapes differ, so a tensor takes four bytes: the number of its form."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.model.encodings import Stored

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

__all__ = ["Form", "Forms", "collect_forms"]

_BLOCK = buffer_size(1 << 14)  # rows at a time, so that temporaries stay small


class Form(NamedTuple):
    """The type, shape and stored bytes of one tensor or of many. ``size`` is None for tensors without data."""

    dtype: Stored
    shape: tuple[int, ...]
    size: int | None


class Forms(Sequence[Form]):
    """The form of each tensor, by row. ``kinds`` are the forms that differ, ``codes`` their numbers.

    ``firsts`` are the first rows of each kind: what holds for a form is checked on the tensor there.

    >>> from holdall.model.dtypes import find_dtype
    >>> kinds = [Form(find_dtype("f32"), (2, 3), 24), Form(find_dtype("i8"), (4,), 4)]
    >>> forms = Forms(kinds, np.array([0, 1, 0], np.uint32))
    >>> forms[2].shape, forms.sizes().tolist(), forms.firsts
    ((2, 3), [24, 4, 24], [0, 1])
    """

    def __init__(self, kinds: Sequence[Form], codes: NDArray[np.uint32]) -> None:
        self.kinds = kinds
        self.codes = codes

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> Form:  # type: ignore[override]  # rows only, no slices
        return self.kinds[int(self.codes[row])]

    @property
    def firsts(self) -> list[int]:
        """The first row of each kind."""
        count = int(self.codes.max()) + 1 if len(self.codes) else 0
        found = np.empty(count, np.intp)
        for start in reversed(range(0, len(self.codes), _BLOCK)):
            block = self.codes[start : start + _BLOCK][::-1]
            found[block] = np.arange(
                start + len(block) - 1, start - 1, -1
            )  # of equal codes the last one, the first row
        firsts: list[int] = found.tolist()
        return firsts

    def sizes(self) -> NDArray[np.uint64]:
        """The stored bytes of each tensor, 0 without data."""
        return self.column(lambda form: form.size or 0, np.uint64)

    def column(self, number: Callable[[Form], int], dtype: DTypeLike) -> NDArray[Any]:
        """``number`` of the form of each tensor."""
        return self.table(number, dtype)[self.codes]

    def table(self, number: Callable[[Form], int], dtype: DTypeLike) -> NDArray[Any]:
        """``number`` of each kind."""
        return np.array([number(form) for form in self.kinds], dtype)


class _Numbers(dict[Hashable, int]):
    """Numbers keys in the order in which they are first asked for."""

    def __missing__(self, key: Hashable) -> int:
        number = self[key] = len(self)
        return number


def collect_forms(keys: Iterable[Hashable], count: int, form_of: Callable[[int], Form]) -> Forms:
    """The forms of ``count`` tensors, of which those with equal ``keys`` have the same; ``form_of(row)`` describes one.

    >>> from holdall.model.dtypes import find_dtype
    >>> [form.shape for form in collect_forms([2, 3, 2], 3, lambda row: Form(find_dtype("i8"), (row,), row)).kinds]
    [(0,), (1,)]
    """
    forms = Forms((), np.fromiter(map(_Numbers().__getitem__, keys), np.uint32, count))
    forms.kinds = [form_of(row) for row in forms.firsts]
    return forms
