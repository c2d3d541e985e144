"""The tensors of a model as a table: one row each, as objects or as columns of an index."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

from holdall.base.buffer_sizes import buffer_size
from holdall.base.once import computed_once
from holdall.model.encodings import Stored
from holdall.model.payload import Payload, SourceRange
from holdall.model.tensor import Tensor
from holdall.model.totals import Totals, Work, add_up, add_work

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from holdall.binary.columns import Places
    from holdall.model.forms import Form, Forms
    from holdall.model.ranges import Ranges
    from holdall.source import Source

__all__ = ["ColumnTable", "ListTable", "TensorTable", "form_of", "key_of"]

T = TypeVar("T")

_NAMED = 8  # tensors that a message names
_BLOCK = buffer_size(1 << 14)  # rows whose numbers are Python objects at a time


def form_of(tensor: Tensor) -> Form:
    """Type, shape and size of one tensor."""
    from holdall.model.forms import Form

    return Form(tensor.dtype, tensor.shape, _size_of(tensor.payload))


def _size_of(payload: Payload | None) -> int | None:
    return None if payload is None else payload.size


def key_of(tensor: Tensor) -> Hashable:
    """A key that is equal for tensors of the same form. To hash their dtypes, which stay, would take longest."""
    return id(tensor.dtype), tensor.shape, _size_of(tensor.payload)


class TensorTable(Sequence[Tensor]):
    """The tensors of a model in order, by row and by name."""

    names: Sequence[str]
    _rows: dict[str, int] | None = None
    _forms: Forms | None = None
    _sources: Sequence[Source] | None = None

    @abstractmethod
    def tensor(self, row: int) -> Tensor:
        """Make the tensor in ``row``."""

    @abstractmethod
    def totals(self) -> dict[str, Totals]:
        """Count, elements and bytes by dtype name, in order of first appearance."""

    def payload(self, row: int) -> Payload | None:
        """The payload of the tensor in ``row``; None without data."""
        return self.tensor(row).payload

    def read(self, rows: NDArray[np.intp]) -> Sequence[bytes | memoryview]:
        """Read all bytes of the tensors in ``rows``, which are small; none for a tensor without data."""
        from holdall.model.gather import read_together

        return read_together([self.payload(row) for row in rows.tolist()])

    def work(self) -> Work:
        """What it takes to read all tensors once."""
        return add_work(map(self.payload, range(len(self))))

    def identify(self, row: int) -> Hashable:
        """A key that is equal for tensors that have the same payload: one object, or the same range of a source."""
        payload = self.payload(row)
        if isinstance(payload, SourceRange):
            return id(payload.source), payload.offset, payload.size
        return id(payload)  # which stays, unlike a range

    def ranges(self) -> Ranges:
        """Where the payload of each tensor is, as columns."""
        from holdall.model.ranges import Ranges

        return Ranges.of_payloads(map(self.payload, range(len(self))))

    def forms(self) -> Forms:
        """Type, shape and size of every tensor, as columns. They are made once."""
        if self._forms is None:
            self._forms = self._collect_forms()
        return self._forms

    def _collect_forms(self) -> Forms:
        from holdall.model.forms import collect_forms

        keys = ((tensor.dtype, tensor.shape, _size_of(tensor.payload)) for tensor in self)
        return collect_forms(keys, len(self), lambda row: form_of(self.tensor(row)))

    def natives(self, kind: type[T]) -> Iterator[tuple[int, T]]:
        """The tensors whose native part is of ``kind``: their rows, and the native parts."""
        for row, tensor in enumerate(self):
            if isinstance(tensor.native, kind):
                yield row, tensor.native

    def find_trained(self) -> NDArray[np.bool_]:
        """Which tensors are marked as trained, by row."""
        import numpy as np

        return np.fromiter((tensor.requires_grad for tensor in self), np.bool_, len(self))

    def sources(self) -> Sequence[Source]:
        """The sources that the payloads are ranges of, each once. They are found once."""
        if self._sources is None:
            self._sources = list({id(source): source for source in self._find_sources()}.values())
        return self._sources

    def _find_sources(self) -> Iterator[Source]:
        """The sources that the payloads are ranges of, some of them several times."""
        payloads = map(self.payload, range(len(self)))
        return (payload.source for payload in payloads if isinstance(payload, SourceRange))

    def list_computed(self) -> Iterator[Payload]:
        """The payloads that are not a plain range of a file."""
        payloads = map(self.payload, range(len(self)))
        return (payload for payload in payloads if payload is not None and type(payload) is not SourceRange)

    def largest(self, count: int) -> list[int]:
        """The rows of the ``count`` tensors with most stored bytes, largest first, file order among equals."""
        # ~ reverses the order of uint64, which has no negative numbers.
        order: list[int] = (~self.forms().sizes()).argsort(kind="stable")[:count].tolist()
        return order

    def row(self, name: str) -> int:
        """The row of the tensor called ``name``; KeyError when there is none."""
        if self._rows is None:
            self._rows = {name: row for row, name in enumerate(self.names)}
        return self._rows[name]

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Tensor]:
        return map(self.tensor, range(len(self)))

    def __getitem__(self, row: int) -> Tensor:  # type: ignore[override]  # rows only, no slices
        if not -len(self) <= row < len(self):
            raise IndexError(row)
        return self.tensor(row % len(self))


class ListTable(TensorTable):
    """Tensors that exist as objects: a model made in memory or derived from another."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._tensors = list(tensors)
        self.names = [tensor.name for tensor in self._tensors]

    def tensor(self, row: int) -> Tensor:
        return self._tensors[row]

    def payload(self, row: int) -> Payload | None:
        return self._tensors[row].payload

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._tensors)

    def _collect_forms(self) -> Forms:
        from holdall.model.forms import collect_forms

        return collect_forms(map(key_of, self), len(self), lambda row: form_of(self._tensors[row]))

    def totals(self) -> dict[str, Totals]:
        return add_up(self.forms())


class ColumnTable(TensorTable):
    """Tensors that are columns of an index: a tensor object is made only when it is asked for.

    ``codes`` are indices into ``dtypes``; ``has_data`` says which tensors have data. ``native_of(row)`` gives what the
    format keeps of a single tensor, and ``source_of(row)`` its file where there are several. ``payloads`` has those of
    rows that are not a plain range of a file, and ``requires_grad`` says which tensors are trained.
    """

    def __init__(
        self,
        source: Source,
        names: Sequence[str],
        dtypes: Sequence[Stored],
        codes: NDArray[Any],
        shapes: Sequence[tuple[int, ...]],
        offsets: NDArray[np.uint64],
        sizes: NDArray[np.uint64],
        *,
        has_data: NDArray[np.bool_] | None = None,
        native_of: Callable[[int], object] | None = None,
        source_of: Callable[[int], Source] | None = None,
        payloads: Mapping[int, Payload] | None = None,
        requires_grad: NDArray[np.bool_] | None = None,
    ) -> None:
        self.names = names
        self._source = source
        self._dtypes = dtypes
        self._codes = codes
        self._shapes = shapes
        self._offsets = offsets
        self._sizes = sizes
        self._has_data = has_data
        self._native_of = native_of
        self._source_of = source_of
        self._payloads = payloads or {}
        self._requires_grad = requires_grad

    def tensor(self, row: int) -> Tensor:
        native = None if self._native_of is None else self._native_of(row)
        dtype = self._dtypes[int(self._codes[row])]
        trained = self._requires_grad is not None and bool(self._requires_grad[row])
        return Tensor(self.names[row], dtype, self._shapes[row], self.payload(row), native, trained)

    def payload(self, row: int) -> Payload | None:
        payload: Payload | None = self._payloads.get(row)
        if payload is None and (self._has_data is None or self._has_data[row]):
            source = self._source if self._source_of is None else self._source_of(row)
            payload = SourceRange(source, int(self._offsets[row]), int(self._sizes[row]))
        return payload

    def read(self, rows: NDArray[np.intp]) -> Sequence[bytes | memoryview]:
        from holdall.model.gather import read_rows

        return read_rows(self, self._plain_ranges, rows)

    @computed_once
    def _plain_ranges(self) -> Ranges:
        return self.ranges()

    def work(self) -> Work:
        from holdall.binary.columns import sum_runs

        if not len(self):
            return Work()
        sizes = self._sizes if self._has_data is None else self._sizes * self._has_data
        if self._payloads:
            sizes = sizes.copy()
            sizes[list(self._payloads)] = 0
        plain, others = sum_runs(sizes, [0])[0], add_work(self._payloads.values())
        return Work(plain + others.made, plain + others.read, others.wasted)

    def _collect_forms(self) -> Forms:
        from holdall.model.forms import Form, collect_forms

        def form_at(row: int) -> Form:
            payload = self.payload(row)
            dtype = self._dtypes[int(self._codes[row])]
            return Form(dtype, self._shapes[row], _size_of(payload))

        return collect_forms(self._keys(), len(self), form_at)

    def _keys(self) -> Iterator[Hashable]:
        """For each tensor what is equal for tensors of the same type, shape and size."""
        from holdall.binary.columns import Shapes

        for start in range(0, len(self), _BLOCK):
            rows = range(start, min(start + _BLOCK, len(self)))
            shapes = (
                self._shapes.keys(rows) if isinstance(self._shapes, Shapes) else map(self._shapes.__getitem__, rows)
            )
            stored: Iterable[bool] = (
                repeat(True) if self._has_data is None else self._has_data[start : rows.stop].tolist()
            )
            sizes = self._sizes[start : rows.stop].tolist()
            for row in rows if self._payloads else ():
                if row in self._payloads:
                    sizes[row - start] = self._payloads[row].size
            yield from zip(self._codes[start : rows.stop].tolist(), shapes, sizes, stored, strict=False)

    def ranges(self) -> Ranges:
        import numpy as np

        from holdall.model.ranges import Ranges

        if self._payloads:
            return super().ranges()
        sources, owners = [self._source], np.zeros(len(self), np.intp)
        if self._source_of is not None:
            found = list(map(self._source_of, range(len(self))))
            sources = list({id(source): source for source in found}.values())
            numbers = {id(source): number for number, source in enumerate(sources)}
            owners = np.fromiter((numbers[id(source)] for source in found), np.intp, len(self))
        if self._has_data is not None:
            owners[~self._has_data] = -1
        return Ranges(sources, owners, self._offsets, self._sizes)

    def natives(self, kind: type[T]) -> Iterator[tuple[int, T]]:
        native_of = self._native_of
        natives = ((row, native_of(row)) for row in range(len(self))) if native_of is not None else ()
        return ((row, native) for row, native in natives if isinstance(native, kind))

    def find_trained(self) -> NDArray[np.bool_]:
        import numpy as np

        return np.zeros(len(self), np.bool_) if self._requires_grad is None else self._requires_grad

    def list_computed(self) -> Iterator[Payload]:
        return (payload for payload in self._payloads.values() if type(payload) is not SourceRange)

    def _find_sources(self) -> Iterator[Source]:
        if self._source_of is None and not self._payloads:
            return iter((self._source,))
        return super()._find_sources()

    def totals(self) -> dict[str, Totals]:
        import numpy as np

        from holdall.binary.columns import sum_runs

        totals: dict[str, Totals] = {}
        if not len(self):
            return totals
        # One pass, whatever the number of types. Numbers of 16 bits are sorted fastest.
        codes = self._codes.astype(np.uint16) if int(self._codes.max()) < 1 << 16 else self._codes
        order = codes.argsort(kind="stable")
        ordered = codes[order]
        starts = np.concatenate(([0], (ordered[1:] != ordered[:-1]).nonzero()[0] + 1))
        kinds = ordered[starts].tolist()
        elements, exact = self._count_elements()
        sums = dict(zip(kinds, sum_runs(elements[order], starts), strict=True))
        for row in (~exact).nonzero()[0].tolist():
            sums[int(codes[row])] += prod(self._shapes[row])
        counts, sizes = np.diff(starts, append=len(order)).tolist(), sum_runs(self._sizes[order], starts)
        for _, code, count, size in sorted(zip(order[starts].tolist(), kinds, counts, sizes, strict=True)):
            total = totals.setdefault(str(self._dtypes[code]), Totals())
            total.tensors += count
            total.elements += sums[code]
            total.nbytes += size
        return totals

    def largest(self, count: int) -> list[int]:
        sizes = self._sizes if self._has_data is None else self._sizes * self._has_data
        # ~ reverses the order of uint64, which has no negative numbers.
        order: list[int] = (~sizes).argsort(kind="stable")[:count].tolist()
        return order

    @property
    def extents(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """The offset and the size in bytes of each tensor."""
        return self._offsets, self._sizes

    def rows_between(self, start: int, stop: int, most: int | None = None) -> list[int]:
        """Rows of tensors with bytes in a range of the file, in file order, only among the ``most`` that begin last."""
        return self._places.rows(start, stop, most)

    def names_between(self, start: int, stop: int) -> str:
        """The names of tensors with bytes in a range of the file, for a message."""
        count, rows = self._places.first(start, stop, _NAMED)
        shown = ", ".join(repr(self.names[row]) for row in rows) or "no tensor"
        return shown if count <= _NAMED else f"{shown} and {count - _NAMED} more tensors"

    @computed_once
    def _places(self) -> Places:
        from holdall.binary.columns import Places

        return Places(*self.extents, self._has_data)

    def _count_elements(self) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """The elements of each tensor, and where the number is exact; it is 0 elsewhere."""
        import numpy as np

        from holdall.binary.columns import Shapes

        if isinstance(self._shapes, Shapes):
            counts, exact = self._shapes.counts()
            return counts * exact, exact
        numbers = [prod(shape) for shape in self._shapes]
        small = [number < 1 << 62 for number in numbers]
        return np.array([n if s else 0 for n, s in zip(numbers, small, strict=True)], np.uint64), np.array(small, bool)
