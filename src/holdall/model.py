"""The neutral content of a weight file: tensors, metadata, assets, and what only its format knows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdall.encodings import Stored
from holdall.errors import ClosedError, ContentError, MissingError
from holdall.metadata import Assets, Metadata
from holdall.payload import Payload, Range
from holdall.tensor import Tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from holdall.columns import Places
    from holdall.ledger import Ledger
    from holdall.limits import Limits
    from holdall.source import Source

__all__ = ["ColumnTable", "ListTable", "Model", "TensorTable", "Totals", "model_of"]

_NAMED = 8  # tensors that a message names


@dataclass(slots=True)
class Totals:
    """Tensors of one dtype, added up."""

    tensors: int = 0
    elements: int = 0
    nbytes: int = 0


class TensorTable(Sequence[Tensor]):
    """The tensors of a model in order, by row and by name."""

    names: Sequence[str]
    _rows: dict[str, int] | None = None

    @abstractmethod
    def tensor(self, row: int) -> Tensor:
        """The tensor in ``row``, made now."""

    @abstractmethod
    def totals(self) -> dict[str, Totals]:
        """Count, elements and bytes by dtype name, in order of first appearance."""

    def largest(self, count: int) -> list[int]:
        """The rows of the ``count`` tensors with most stored bytes, largest first, file order among equals."""
        sizes = [tensor.nbytes for tensor in self]
        return sorted(range(len(sizes)), key=lambda row: -sizes[row])[:count]

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

    def totals(self) -> dict[str, Totals]:
        totals: dict[str, Totals] = {}
        for tensor in self._tensors:
            total = totals.setdefault(str(tensor.dtype), Totals())
            total.tensors += 1
            total.elements += tensor.count
            total.nbytes += tensor.nbytes
        return totals


class ColumnTable(TensorTable):
    """Tensors that are still columns of an index: an object is made only for the one that is asked for.

    ``dtypes`` is the palette that ``codes`` points into; ``stored`` says which tensors have data.
    ``native_of(row)`` gives what the format keeps of a single tensor; ``source_of(row)`` the file it is in,
    where there are several; ``made`` the payloads of the rows that are no plain range of a file.
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
        stored: NDArray[np.bool_] | None = None,
        native_of: Callable[[int], object] | None = None,
        source_of: Callable[[int], Source] | None = None,
        made: Mapping[int, Payload] | None = None,
    ) -> None:
        self.names = names
        self._source = source
        self._dtypes = dtypes
        self._codes = codes
        self._shapes = shapes
        self._offsets = offsets
        self._sizes = sizes
        self._stored = stored
        self._native_of = native_of
        self._source_of = source_of
        self._made = made or {}

    def tensor(self, row: int) -> Tensor:
        payload: Payload | None = self._made.get(row)
        if payload is None and (self._stored is None or self._stored[row]):
            source = self._source if self._source_of is None else self._source_of(row)
            payload = Range(source, int(self._offsets[row]), int(self._sizes[row]))
        native = None if self._native_of is None else self._native_of(row)
        return Tensor(self.names[row], self._dtypes[int(self._codes[row])], self._shapes[row], payload, native)

    def totals(self) -> dict[str, Totals]:
        import numpy as np

        totals: dict[str, Totals] = {}
        present = np.bincount(self._codes.astype(np.intp)).nonzero()[0].tolist() if len(self._codes) else []
        places = {code: (self._codes == code).nonzero()[0] for code in present}
        for code, rows in sorted(places.items(), key=lambda item: int(item[1][0])):
            total = totals.setdefault(str(self._dtypes[code]), Totals())
            total.tensors += len(rows)
            total.nbytes += int(self._sizes[rows].sum())
            total.elements += self._elements(rows)
        return totals

    def largest(self, count: int) -> list[int]:
        held = self._sizes if self._stored is None else self._sizes * self._stored
        order: list[int] = (~held).argsort(kind="stable")[:count].tolist()  # ~ turns uint64 around without a sign
        return order

    @property
    def extents(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Where the bytes of each tensor begin, and how many they are."""
        return self._offsets, self._sizes

    def rows_between(self, start: int, stop: int, most: int | None = None) -> list[int]:
        """The rows of tensors that have bytes in a range of the file, by their place; of the ``most`` last to begin."""
        return self._places.rows(start, stop, most)

    def names_between(self, start: int, stop: int) -> str:
        """The tensors that have bytes in a range of the file, for a message."""
        count, rows = self._places.first(start, stop, _NAMED)
        shown = ", ".join(repr(self.names[row]) for row in rows) or "no tensor"
        return shown if count <= _NAMED else f"{shown} and {count - _NAMED} more tensors"

    @cached_property
    def _places(self) -> Places:
        from holdall.columns import Places

        return Places(*self.extents, self._stored)

    def _elements(self, rows: NDArray[np.intp]) -> int:
        from math import prod

        from holdall.columns import Shapes

        if not isinstance(self._shapes, Shapes):
            return sum(prod(self._shapes[row]) for row in rows.tolist())
        counts, exact = self._shapes.counts()
        huge = sum(prod(self._shapes[row]) for row in rows[~exact[rows]].tolist())
        return int(counts[rows][exact[rows]].sum()) + huge


class Model(Mapping[str, Tensor]):
    """An open weight file, or one about to be written: a mapping from names to tensors, and three more slots.

    ``metadata`` (ordered entries), ``assets`` (named blobs), and ``native``, one frozen record owned by the
    format. Close it, or use it as a context manager; arrays taken from it stay valid.
    """

    def __init__(
        self,
        tensors: TensorTable | Iterable[Tensor] = (),
        *,
        metadata: Metadata | Mapping[str, Any] | None = None,
        assets: Assets | Mapping[str, Any] | None = None,
        native: object = None,
        format: str | None = None,
        version: tuple[int, ...] = (),
        sources: Sequence[Source] = (),
        ledger: Ledger | None = None,
        origin: Model | None = None,
    ) -> None:
        self._tensors = tensors if isinstance(tensors, TensorTable) else ListTable(tensors)
        self.metadata = metadata if isinstance(metadata, Metadata) else Metadata(metadata or {})
        self.assets = assets if isinstance(assets, Assets) else Assets(assets or {})
        self.native = native
        self.format = format
        self.version = version
        self.sources = tuple(sources)
        self.ledger = ledger
        self.limits: Limits | None = None  # those it was opened with; they hold for what it carries too
        self.allowed: Collection[str] | None = None  # likewise the formats that may be read
        self.origin = origin  # the model that this one was made from; answers for the facets that this one lacks
        self._closed = False
        self._reopen: tuple[Callable[..., Model], tuple[Any, ...]] | None = None

    # -- tensors ----------------------------------------------------------------------------------------------------

    @property
    def tensors(self) -> TensorTable:
        """All tensors in file order, by row."""
        if self._closed:
            raise ClosedError("the model is closed")
        return self._tensors

    def __getitem__(self, name: str) -> Tensor:
        tensors = self.tensors
        try:
            return tensors.tensor(tensors.row(name))
        except KeyError:
            message = f"there is no tensor {name!r} among the {len(tensors)}"
            raise MissingError(message, str(name), tensors.names) from None  # a name may be asked for that is no text

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors.names)

    def __len__(self) -> int:
        return len(self.tensors)

    def __contains__(self, name: object) -> bool:
        try:
            self.tensors.row(name)  # type: ignore[arg-type]  # anything may be asked for
        except (KeyError, TypeError):
            return False
        return True

    @property
    def nbytes(self) -> int:
        """Stored bytes of all tensors."""
        return sum(total.nbytes for total in self.tensors.totals().values())

    def replace(
        self,
        *,
        tensors: TensorTable | Iterable[Tensor] | None = None,
        metadata: Metadata | Mapping[str, Any] | None = None,
        assets: Assets | Mapping[str, Any] | None = None,
    ) -> Model:
        """This model with other content, standing on the same files; what is not given stays."""
        model = Model(
            self.tensors if tensors is None else tensors,
            metadata=self.metadata if metadata is None else metadata,
            assets=self.assets if assets is None else assets,
            native=self.native,
            format=self.format,
            version=self.version,
            sources=self.sources,
            origin=self.origin,
        )
        model.limits, model.allowed = self.limits, self.allowed
        return model

    def fetch(self, names: Iterable[str] | None = None) -> Iterator[Tensor]:
        """Tensors with their bytes at hand: those in ``names``, or all, in that order.

        For reading many. From afar neighbours come in one request and several requests are under way at once, the
        next tensors being fetched while one is in use; memory holds what is kept of them and a window ahead. From a
        disk they are the tensors as they are.

        >>> import holdall, numpy as np
        >>> holdall.save("example.oinf", {"a": np.zeros(2, np.int8), "b": np.ones(2, np.int8)})
        >>> with holdall.open("example.oinf") as model:
        ...     {tensor.name: tensor.numpy().tolist() for tensor in model.fetch()}
        {'a': [0, 0], 'b': [1, 1]}
        """
        from holdall.ahead import ahead

        tensors = self.tensors
        return ahead(tensors if names is None else (self[name] for name in names))

    # -- facets -----------------------------------------------------------------------------------------------------

    @property
    def sizevars(self) -> Mapping[str, int]:
        """Named sizes such as ``B`` or ``D``; empty where the content has none."""
        return self._facet("sizevars") or {}

    @property
    def vocab(self) -> Any:
        """The vocabulary; None where the content has none."""
        return self._facet("vocab")

    @property
    def config(self) -> Any:
        """The model's configuration; None where the content has none."""
        return self._facet("config")

    def _facet(self, name: str) -> Any:
        """What the format answers; failing that, the model it was made from, or the one whose skeleton it carries."""
        from holdall import registry

        found = None if self.format is None else registry.find(self.format).facet(name, self)
        if found is None and self.origin is not None:
            return self.origin._facet(name)
        if found is None and self.format is not None:
            from holdall.operations.convert.bound import original_of

            original = original_of(self)
            found = None if original is None else registry.find(original.format or "").facet(name, original)
        return found

    def resolve(self, dims: Sequence[str | int]) -> tuple[int, ...]:
        """Symbolic dims as numbers, by the model's size variables.

        >>> from holdall import oinf
        >>> oinf.model(sizevars={"B": 2, "D": 8}).resolve(("B", "D", 4))
        (2, 8, 4)
        """
        sizes = self.sizevars
        unknown = sorted({dim for dim in dims if isinstance(dim, str)} - set(sizes))
        if unknown:
            known = ", ".join(sizes) or "none"
            raise MissingError(f"unknown size variable {', '.join(map(repr, unknown))}; the model has: {known}")
        return tuple(sizes[dim] if isinstance(dim, str) else int(dim) for dim in dims)

    # -- life -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the files. Arrays and views that were handed out stay valid."""
        self._closed = True
        for source in self.sources:
            source.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def travels_as(self, reopen: Callable[..., Model], arguments: tuple[Any, ...]) -> None:
        """How to make this model again in another process: a pickle holds this call, not the bytes.

        The identities of its sources follow the ``arguments``.
        """
        self._reopen = (reopen, arguments)

    def __reduce__(self) -> tuple[Callable[..., Model], tuple[Any, ...]]:
        if self._reopen is None:
            raise TypeError("only a model that was opened from a file can be pickled: it travels as path and identity")
        reopen, arguments = self._reopen
        # What was not opened yet was not looked at either: it may be what it is when it is opened there.
        identities = tuple(source.identity if source.opened else None for source in self.sources)
        return reopen, (*arguments, identities)

    def __repr__(self) -> str:
        version = ".".join(map(str, self.version))
        return f"<Model {' '.join(filter(None, [self.format, version]))}: {len(self._tensors)} tensors>"

    def _repr_html_(self) -> str:
        from holdall.notebook import model_html

        return model_html(self)


def model_of(
    content: Model | Mapping[str, Tensor | ArrayLike] | Iterable[Tensor], metadata: Mapping[str, Any] | None = None
) -> Model:
    """A model from whatever :func:`holdall.save` was given: a model, or a mapping from names to arrays."""
    if isinstance(content, Model):
        return content if metadata is None else content.replace(metadata=metadata)
    if not isinstance(content, Mapping):
        return Model(content, metadata=metadata)
    tensors = []
    for name, value in content.items():
        if not isinstance(name, str):
            raise ContentError(f"tensor names are text, not {type(name).__name__}")
        tensors.append(value.replace(name=name) if isinstance(value, Tensor) else Tensor.of(name, value))
    return Model(tensors, metadata=metadata)
