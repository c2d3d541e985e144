"""Parameters of one or several models: loaded when first needed, once, and kept as the budget allows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from threading import Event, Lock, get_ident
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdall.dtypes import DTYPES
from holdall.errors import ContentError, MissingError
from holdall.identity import Identities, base_id, derived_key, param_key
from holdall.model import Model
from holdall.params.cache import Cache
from holdall.params.streaming import Streaming
from holdall.payload import Held
from holdall.tensor import Tensor

__all__ = ["Figures", "ParamStore", "Parameters", "Resolver"]

Array = NDArray[Any]
Make = Callable[[Array], Array]

_CASTS = ("f64", "f32", "f16", "bf16")


class Resolver(Protocol):
    """Where derived forms are remembered, by stable key. It is called by several threads."""

    def get(self, key: int) -> Array | None:
        """What was set under ``key``, or None."""

    def set(self, key: int, value: Array) -> None:
        """Remember ``value``; what was there before is replaced."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a store did so far. Sizes are bytes of values, a view of a mapped file counting like a copy."""

    hits: int  # asked for and there, or being loaded for somebody else
    loads: int  # parameters read from their file
    loaded: int  # bytes that they had as values
    derived: int  # forms made
    rows: int  # rows read without the rest of their parameter
    evictions: int
    refused: int  # values handed out, but not kept: too large beside what is pinned
    held: int
    pinned: int
    peak: int


class _Pending:
    """A value that some thread is making: the others wait."""

    def __init__(self) -> None:
        self.owner = get_ident()
        self.done = Event()
        self.value: Array | None = None
        self.error: BaseException | None = None


class ParamStore:
    """Parameters on demand, over any number of open models, each in a namespace of its own.

    ``budget`` bounds the bytes kept; parameters of at most ``small`` bytes are pinned; ``keep=False`` keeps only
    what is pinned. ``resolver`` takes over the memory of derived forms, which else share the budget. Arrays are
    read-only and stay valid after they were evicted. Any thread may ask: each value is loaded or made once.

    >>> import numpy as np
    >>> from holdall.model import model_of
    >>> store = ParamStore()
    >>> first = store.add(model_of({"w": np.eye(2, dtype=np.float32)}))
    >>> other = store.add(model_of({"w": np.zeros(3)}))
    >>> first["w"].shape, other["w"].shape, store[first.namespace, "w"] is first["w"]
    ((2, 2), (3,), True)
    """

    def __init__(
        self, budget: int | None = None, *, small: int = 0, keep: bool = True, resolver: Resolver | None = None
    ) -> None:
        if budget is not None and budget < 0:
            raise ContentError(f"a budget is 0 bytes or more, not {budget}")
        self.small = small
        self.keep = keep
        self.resolver = resolver
        self.models: dict[int, Parameters] = {}
        self._cache = Cache(budget)
        self._lock = Lock()
        self._pending: dict[int, _Pending] = {}
        self._hits = self._loads = self._loaded = self._derived = self._rows = 0
        _STORES.add(self)

    @classmethod
    def from_model(
        cls, model: Model, *, budget: int | None = None, small: int | None = None, resolver: Resolver | None = None
    ) -> ParamStore:
        """A store over one model, as ``runtime.weight_streaming`` in its configuration asks; what is given here wins.

        Parameters that the configuration wants prefetched are loaded and pinned now.
        """
        stated = Streaming.of(model.config, model.nbytes)
        store = cls(
            stated.budget if budget is None else budget,
            small=stated.small if small is None else small,
            keep=stated.keep or budget is not None,
            resolver=resolver,
        )
        parameters = store.add(model)
        for name in stated.prefetched(model):
            parameters.load(name, pin=True)
        return store

    @property
    def budget(self) -> int | None:
        """The most bytes that are kept; None for no limit."""
        return self._cache.budget

    def add(self, model: Model, namespace: int | None = None) -> Parameters:
        """Take in an open model, under a namespace that no other has; left out, the next free number."""
        with self._lock:
            if namespace is None:
                namespace = next(n for n in range(1, len(self.models) + 2) if n not in self.models)
            if namespace in self.models:
                raise ContentError(f"the namespace {namespace} is taken")
            found = self.models[namespace] = Parameters(self, model, namespace)
        return found

    def __getitem__(self, name: str | tuple[int, str]) -> Array:
        """A parameter by name, where there is one model, or by namespace and name."""
        if isinstance(name, str):
            if len(self.models) != 1:
                raise MissingError(f"{len(self.models)} models are here: ask for (namespace, {name!r})")
            return next(iter(self.models.values()))[name]
        namespace, inner = name
        if namespace not in self.models:
            raise MissingError(f"there is no namespace {namespace} here")
        return self.models[namespace][inner]

    def figures(self) -> Figures:
        """Hits, loads, evictions and bytes held, at this moment."""
        with self._lock:
            cache = self._cache
            counts = (self._hits, self._loads, self._loaded, self._derived, self._rows)
            return Figures(*counts, cache.evictions, cache.refused, cache.held, cache.pinned, cache.peak)

    def clear(self) -> None:
        """Let go of all values; the models stay."""
        with self._lock:
            self._cache.clear()

    # -- for Parameters ---------------------------------------------------------------------------------------------

    def _value(self, key: int, tensor: Tensor, pin: bool) -> Array:
        return self._once(key, pin, lambda: self._read(tensor))

    def _form(self, key: int, base: int, tensor: Tensor, form: str, make: Make, pin: bool) -> Array:
        """A derived form, from the resolver or made now. The parameter that it is made of is not kept for that."""
        resolver = self.resolver

        def made() -> Array:
            found = None if resolver is None else resolver.get(key)
            if found is not None:
                self._count(hits=1)
                return found
            value = _frozen(make(self._base(base, tensor)))
            self._count(derived=1)
            if resolver is not None:
                resolver.set(key, value)
            return value

        return self._once(key, pin, made, keep=resolver is None, what=f"the form {form!r} of {tensor.name!r}")

    def _base(self, key: int, tensor: Tensor) -> Array:
        with self._lock:
            found = self._cache.get(key)
            self._hits += found is not None
        return self._read(tensor) if found is None else found

    def _holds(self, key: int) -> bool:
        with self._lock:
            return key in self._cache

    def _read(self, tensor: Tensor) -> Array:
        """The values, from the file. Under a budget they have memory of their own, so that letting go frees it."""
        value = _frozen(tensor.numpy() if self.budget is None else _own(tensor))
        self._count(loads=1, loaded=value.nbytes)
        return value

    def _once(
        self, key: int, pin: bool, make: Callable[[], Array], *, keep: bool = True, what: str = "a parameter"
    ) -> Array:
        """The value under ``key``: there already, being made by another thread, or made by this one."""
        with self._lock:
            found = self._cache.get(key)
            if found is not None:
                self._hits += 1
                if pin:
                    self._cache.pin(key)
                return found
            pending = self._pending.get(key)
            if pending is None:
                mine = self._pending[key] = _Pending()
        if pending is not None:
            value = self._awaited(pending, what)
            if pin:
                with self._lock:
                    self._cache.pin(key)
            return value
        try:
            mine.value = make()
        except BaseException as error:
            mine.error = error
            raise
        finally:
            with self._lock:
                self._pending.pop(key, None)
                if mine.value is not None and keep:
                    pin = pin or mine.value.nbytes <= self.small
                    if self.keep or pin:
                        self._cache.put(key, mine.value, pinned=pin)
            mine.done.set()
        return mine.value

    def _awaited(self, pending: _Pending, what: str) -> Array:
        if pending.owner == get_ident():
            raise ContentError(f"{what} is made from itself")
        pending.done.wait()
        if pending.error is not None:
            raise pending.error
        assert pending.value is not None
        self._count(hits=1)
        return pending.value

    def _count(self, hits: int = 0, loads: int = 0, loaded: int = 0, derived: int = 0, rows: int = 0) -> None:
        with self._lock:
            self._hits += hits
            self._loads += loads
            self._loaded += loaded
            self._derived += derived
            self._rows += rows


class Parameters(Mapping[str, Array]):
    """The parameters of one model of a store, by name."""

    def __init__(self, store: ParamStore, model: Model, namespace: int) -> None:
        self.store = store
        self.model = model
        self.namespace = namespace
        self._keys: dict[str, int] = {}
        self._ids = Identities(model)

    def __getitem__(self, name: str) -> Array:
        return self.load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.model)

    def __len__(self) -> int:
        return len(self.model)

    def __contains__(self, name: object) -> bool:
        return name in self.model

    def key(self, name: str) -> int:
        """The stable key of a parameter in this store."""
        found = self._keys.get(name)
        if found is None:
            found = self._keys[name] = param_key(self.namespace, base_id(name))
        return found

    def by_id(self, id: int) -> Array:
        """A parameter by its base id."""
        return self.load(self._ids.name(id))

    def load(self, name: str, *, pin: bool = False) -> Array:
        """A parameter's values; those of a quantized one are dequantized."""
        return self.store._value(self.key(name), self.model[name], pin)

    def read(self, name: str) -> Array:
        """A parameter's values for one use: those that are held, else read now and not kept."""
        return self.store._base(self.key(name), self.model[name])

    def derived(self, name: str, form: str, make: Make | None = None, *, pin: bool = False) -> Array:
        """A form of a parameter, made by ``make`` and remembered under the key of parameter and form.

        Without ``make`` the form is a dtype (f64, f32, f16, bf16), with ``.T`` after it for transposed.
        """
        if make is None:
            if form == str(self.model[name].dtype):
                return self.load(name, pin=pin)
            make = _known(form)
        base = self.key(name)
        return self.store._form(derived_key(base, form), base, self.model[name], form, make, pin)

    def rows(self, name: str, indices: ArrayLike) -> Array:
        """Some rows of a parameter. Under a budget, one that is not held is not loaded for them: only they are read."""
        wanted = np.asarray(indices, np.int64)
        tensor = self.model[name]
        count = tensor.shape[0] if tensor.shape else 0
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < count:
            raise ContentError(f"rows {wanted.min()} to {wanted.max()} of {name!r}, which has {count}")
        whole = self.store.budget is None and self.store.keep
        if whole or self.store._holds(self.key(name)):
            return self.load(name)[wanted]
        unique, places = np.unique(wanted, return_inverse=True)
        runs = np.split(unique, np.flatnonzero(np.diff(unique) != 1) + 1)  # neighbours are read together
        parts = [tensor[int(run[0]) : int(run[-1]) + 1] for run in runs if run.size] or [tensor[0:0]]
        self.store._count(rows=int(unique.size))
        found: Array = np.concatenate(parts)[places.reshape(wanted.shape)]
        return found

    def prefetch(self, *patterns: str, form: str | None = None, pin: bool = True) -> list[str]:
        """Load every parameter whose name fits a pattern (``encoder.layer.0.*``), and pin it; says which they were."""
        names = [name for name in self.model if any(fnmatchcase(name, pattern) for pattern in patterns)]
        for name in names:
            if form is None:
                self.load(name, pin=pin)
            else:
                self.derived(name, form, pin=pin)
        return names


def _known(form: str) -> Make:
    cast, dot, turned = form.partition(".")
    if cast not in _CASTS or (dot and turned != "T"):
        raise ContentError(f"the form {form!r} needs a function; known are {', '.join(_CASTS)}, also with .T")
    dtype = DTYPES[cast].numpy
    if turned:
        return lambda values: np.ascontiguousarray(values.T.astype(dtype, copy=False))
    return lambda values: values.astype(dtype, copy=False)


def _own(tensor: Tensor) -> Array:
    """The values in memory of their own, by positioned reads."""
    if tensor.payload is None:
        return tensor.numpy()  # which says what is wrong
    data = np.empty(tensor.nbytes, np.uint8)
    at = 0
    for piece in tensor.payload.chunks():
        data[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
        at += len(piece)
    return tensor.replace(payload=Held(data)).numpy()


def _frozen(value: Array) -> Array:
    """Read-only: several callers share it."""
    shared = value.view()
    shared.flags.writeable = False
    return shared


_STORES: WeakSet[ParamStore] = WeakSet()


def _in_child() -> None:
    """A lock may have been held when the process forked, and the thread that would open it is not here."""
    for store in _STORES:
        store._lock = Lock()
        store._pending = {}


os.register_at_fork(after_in_child=_in_child)
