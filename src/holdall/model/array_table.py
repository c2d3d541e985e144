"""Arrays in memory as the tensors of a model, without an object for each."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from holdall.model.dtypes import is_stored_form
from holdall.model.payload import InMemory, Payload, SourceRange
from holdall.model.table import TensorTable, form_of, key_of
from holdall.model.tensor import Tensor
from holdall.model.totals import Totals, add_up

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from holdall.model.forms import Forms
    from holdall.source import Source

__all__ = ["ArrayTable"]

T = TypeVar("T")


class ArrayTable(TensorTable):
    """Arrays in memory, by name: a tensor object is made only when it is asked for.

    >>> import numpy as np
    >>> ArrayTable({"w": np.zeros((2, 3), np.int8)})[0].shape
    (2, 3)
    """

    def __init__(self, content: Mapping[str, Tensor | ArrayLike]) -> None:
        self.names = list(content)
        self._values = list(content.values())
        self.forms()  # raises ContentError for a value that no tensor can hold

    def tensor(self, row: int) -> Tensor:
        value = self._values[row]
        if isinstance(value, Tensor):
            return value.replace(name=self.names[row])
        return Tensor.of(self.names[row], value)

    def payload(self, row: int) -> Payload | None:
        value = self._values[row]
        if is_stored_form(value):
            return InMemory(value)
        return value.payload if isinstance(value, Tensor) else self.tensor(row).payload

    def identify(self, row: int) -> Hashable:
        # The payload of an array is made when it is asked for, and has no identity of its own.
        return super().identify(row) if isinstance(self._values[row], Tensor) else ("row", row)

    def _collect_forms(self) -> Forms:
        import numpy as np

        from holdall.model.forms import collect_forms

        arrays = (
            (value.dtype, value.shape) if type(value) is np.ndarray else key_of(self.tensor(row))
            for row, value in enumerate(self._values)
        )
        return collect_forms(arrays, len(self), lambda row: form_of(self.tensor(row)))

    def totals(self) -> dict[str, Totals]:
        return add_up(self.forms())

    def natives(self, kind: type[T]) -> Iterator[tuple[int, T]]:
        for row, value in enumerate(self._values):
            if isinstance(value, Tensor) and isinstance(value.native, kind):
                yield row, value.native

    def find_trained(self) -> NDArray[np.bool_]:
        import numpy as np

        marks = (isinstance(value, Tensor) and value.requires_grad for value in self._values)
        return np.fromiter(marks, np.bool_, len(self))

    def _find_sources(self) -> Iterator[Source]:
        payloads = (value.payload for value in self._values if isinstance(value, Tensor))
        return (payload.source for payload in payloads if isinstance(payload, SourceRange))
