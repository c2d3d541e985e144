"""The neutral content of a weight file: tensors, metadata, assets, and what only its format knows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdall.base.urls import hide_secrets_in
from holdall.errors import ClosedError, ContentError, MissingError
from holdall.model.array_table import ArrayTable
from holdall.model.metadata import Assets, Metadata
from holdall.model.table import ListTable, TensorTable
from holdall.model.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from holdall.limits import Limits
    from holdall.source import Source
    from holdall.source.ledger import Ledger

__all__ = ["Model", "model_of"]


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
        # The limits and the formats that it was opened with. They also hold for an original that it carries.
        self.limits: Limits | None = None
        self.allowed: Collection[str] | None = None
        self.origin = origin  # the model that this one was made from; it answers for facets that this one lacks
        # Answers for sizevars, vocab and config. Opening installs it, since only the rooms above know formats.
        self.resolve_facet: Callable[[Model, str], Any] | None = None
        self._closed = False
        self._reopen: tuple[Callable[..., Model], tuple[Any, ...]] | None = None

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
            given = str(name)  # callers may ask for a number, and may give a URL in the place of a name
            message = f"there is no tensor {hide_secrets_in(repr(name), [given])} among the {len(tensors)}"
            raise MissingError(message, given, tensors.names) from None

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
        """Return a copy of this model, on the same files, with the given slots replaced."""
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
        model.limits, model.allowed, model.resolve_facet = self.limits, self.allowed, self.resolve_facet
        return model

    def fetch(self, names: Iterable[str] | None = None) -> Iterator[Tensor]:
        """Yield the tensors called ``names``, or all of them, in that order, fetched before they are needed.

        Use it to read many tensors of a remote file. One request fetches neighbouring tensors, several requests run at
        once, and the next tensors are fetched while one is in use; memory holds the tensors that are still referenced
        and the requests under way. Tensors of a local file are returned unchanged.

        >>> import holdall, numpy as np
        >>> holdall.save("example.oinf", {"a": np.zeros(2, np.int8), "b": np.ones(2, np.int8)})
        >>> with holdall.open("example.oinf") as model:
        ...     {tensor.name: tensor.numpy().tolist() for tensor in model.fetch()}
        {'a': [0, 0], 'b': [1, 1]}
        """
        from holdall.model.prefetch import prefetch

        tensors = self.tensors
        return prefetch(tensors if names is None else (self[name] for name in names))

    @property
    def sizevars(self) -> Mapping[str, int]:
        """Named sizes such as ``B`` or ``D``; empty if the content has none."""
        return self._facet("sizevars") or {}

    @property
    def vocab(self) -> Any:
        """The vocabulary; None if the content has none."""
        return self._facet("vocab")

    @property
    def config(self) -> Any:
        """The model's configuration; None if the content has none."""
        return self._facet("config")

    @property
    def decoded(self) -> Model:
        """The model with plain weights in the place of those that its file stores as several tensors.

        They are decoded when they are read. ContentError if something about them cannot be right.
        """
        found = None if self.resolve_facet is None else self.resolve_facet(self, "decoded")
        return self if found is None else found

    def _facet(self, name: str) -> Any:
        """Ask the resolver for a facet; if it has none, ask the model from which this one was made."""
        found = None if self.resolve_facet is None else self.resolve_facet(self, name)
        return self.origin._facet(name) if found is None and self.origin is not None else found

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

    def close(self) -> None:
        """Close the files. Arrays and views that were handed out stay valid."""
        self._closed = True
        for source in self.sources:
            source.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def pickle_as(self, reopen: Callable[..., Model], arguments: tuple[Any, ...]) -> None:
        """Have a pickle of this model store a call that opens it again, rather than its bytes.

        The call is ``reopen(*arguments, identities)``, with the identities of its sources.
        """
        self._reopen = (reopen, arguments)

    def __reduce__(self) -> tuple[Callable[..., Model], tuple[Any, ...]]:
        if self._reopen is None:
            raise TypeError("only a model that was opened from a file can be pickled: it travels as path and identity")
        reopen, arguments = self._reopen
        # Members that are not open yet have no identity to compare.
        identities = tuple(source.identity if source.is_opened else None for source in self.sources)
        return reopen, (*arguments, identities)

    def __repr__(self) -> str:
        version = ".".join(map(str, self.version))
        return f"<Model {' '.join(filter(None, [self.format, version]))}: {len(self._tensors)} tensors>"

    def _repr_html_(self) -> str:
        from holdall.model.notebook import model_html

        return model_html(self)


def model_of(
    content: Model | Mapping[str, Tensor | ArrayLike] | Iterable[Tensor], metadata: Mapping[str, Any] | None = None
) -> Model:
    """A model from the content that :func:`holdall.save` takes: a model, tensors, or a mapping of names to arrays."""
    if isinstance(content, Model):
        return content if metadata is None else content.replace(metadata=metadata)
    if not isinstance(content, Mapping):
        return Model(content, metadata=metadata)
    for name in content:
        if not isinstance(name, str):
            raise ContentError(f"tensor names are text, not {type(name).__name__}")
    return Model(ArrayTable(content), metadata=metadata)
