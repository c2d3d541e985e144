"""Parameters of one or several models: loaded once, when first used, and kept as the budget allows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import ArrayLike

from holdall.base.locks import is_owned, make_lock
from holdall.base.once import computed_once
from holdall.errors import ContentError, MissingError
from holdall.model.identity import Identities, base_id, derived_key, param_key
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from holdall.packed import join_weights
from holdall.params.cache import Cache
from holdall.params.disk import DiskForms, stamp_of
from holdall.params.forms import Array, Make, Size, copy_values, find_form, freeze, measure
from holdall.params.lazy import LazyParameter
from holdall.params.streaming import Streaming

__all__ = ["Figures", "ParamStore", "Parameters", "Resolver"]


class Resolver(Protocol):
    """A store of derived forms by stable key. Several threads call it."""

    def get(self, key: int) -> Any:
        """Return the value set under ``key``, or None."""

    def set(self, key: int, value: Any) -> None:
        """Store ``value`` under ``key``, replacing an earlier one."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Counters of a store. Sizes are bytes of values; a view of a mapped file counts like a copy."""

    hits: int  # requests answered from the cache or by a load in progress
    loads: int  # parameters read from their file
    loaded: int  # bytes of their values
    derived: int  # forms computed from a parameter
    rows: int  # rows read without the rest of their parameter
    evictions: int
    refused: int  # values that were not kept: too large beside the pinned ones
    held: int
    pinned: int
    peak: int
    disk: int = 0  # forms read from disk


class _Turn:
    """Threads that ask for one value at the same time: the first makes it, the others take it from here."""

    def __init__(self) -> None:
        self.lock = make_lock()
        self.value: Any = None


class ParamStore:
    """Parameters on demand, over any number of open models, each in its own namespace.

    ``budget`` bounds the bytes kept; parameters of at most ``small`` bytes are pinned; ``keep=False`` keeps only
    pinned ones. ``resolver`` stores derived forms, which otherwise share the budget. ``disk`` also keeps them in a
    folder, for later and for other processes. Arrays are read-only and stay valid after they were evicted. Any thread
    may use the store: each value is loaded or made once.

    >>> import numpy as np
    >>> from holdall.model.model import model_of
    >>> store = ParamStore()
    >>> first = store.add(model_of({"w": np.eye(2, dtype=np.float32)}))
    >>> other = store.add(model_of({"w": np.zeros(3)}))
    >>> first["w"].shape, other["w"].shape, store[first.namespace, "w"] is first["w"]
    ((2, 2), (3,), True)
    """

    def __init__(
        self,
        budget: int | None = None,
        *,
        small: int = 0,
        keep: bool = True,
        resolver: Resolver | None = None,
        disk: DiskForms | str | os.PathLike[str] | None = None,
    ) -> None:
        if budget is not None and budget < 0:
            raise ContentError(f"a budget is 0 bytes or more, not {budget}")
        self.small = small
        self.keep = keep
        self.resolver = resolver
        self.disk = disk if disk is None or isinstance(disk, DiskForms) else DiskForms(disk)
        self.models: dict[int, Parameters] = {}
        self._cache = Cache(budget)
        self._lock = make_lock()
        # A turn lives as long as a thread is in it: nothing has to be removed after an error or an interrupt.
        self._turns: WeakValueDictionary[int, _Turn] = WeakValueDictionary()
        self._hits = self._loads = self._loaded = self._derived = self._rows = self._disk = 0

    @classmethod
    def from_model(
        cls,
        model: Model,
        *,
        budget: int | None = None,
        small: int | None = None,
        resolver: Resolver | None = None,
        disk: DiskForms | str | os.PathLike[str] | None = None,
    ) -> ParamStore:
        """Make a store over one model, set up by ``runtime.weight_streaming`` of its configuration; arguments win.

        Parameters that the configuration wants prefetched are loaded and pinned now.
        """
        stated = Streaming.of(model.config, model.nbytes)
        store = cls(
            stated.budget if budget is None else budget,
            small=stated.small if small is None else small,
            keep=stated.keep or budget is not None,
            resolver=resolver,
            disk=disk,
        )
        parameters = store.add(model)
        for name in stated.names_to_prefetch(parameters.model):
            parameters.load(name, pin=True)
        return store

    @property
    def budget(self) -> int | None:
        """The limit of the bytes kept; None for no limit."""
        return self._cache.budget

    def add(self, model: Model, namespace: int | None = None) -> Parameters:
        """Add an open model under a namespace, by default the next free number.

        Its parameters are its weights, also those that are made of several stored tensors.
        """
        model = join_weights(model)
        with self._lock:
            if namespace is None:
                namespace = next(n for n in range(1, len(self.models) + 2) if n not in self.models)
            if namespace in self.models:
                raise ContentError(f"the namespace {namespace} is taken")
            found = self.models[namespace] = Parameters(self, model, namespace)
        return found

    def __getitem__(self, name: str | tuple[int, str]) -> Array:
        """Load a parameter by name, if there is one model, or by namespace and name."""
        if isinstance(name, str):
            if len(self.models) != 1:
                raise MissingError(f"{len(self.models)} models are here: ask for (namespace, {name!r})")
            return next(iter(self.models.values()))[name]
        namespace, inner = name
        if namespace not in self.models:
            raise MissingError(f"there is no namespace {namespace} here")
        return self.models[namespace][inner]

    def figures(self) -> Figures:
        """Return the current counters: hits, loads, evictions, bytes held."""
        with self._lock:
            cache = self._cache
            counts = (self._hits, self._loads, self._loaded, self._derived, self._rows)
            return Figures(*counts, cache.evictions, cache.refused, cache.held, cache.pinned, cache.peak, self._disk)

    def clear(self) -> None:
        """Drop all values; the models stay."""
        with self._lock:
            self._cache.clear()

    def _derive(
        self, base: int, tensor: Tensor, form: str, make: Make, stamp: str | None, pin: bool, size: Size | None
    ) -> Any:
        """Return a derived form: from the resolver, from disk, or made now. The values of its source are not kept."""
        key, what = derived_key(base, form), f"the form {form!r} of {tensor.name!r}"
        resolver, disk = self.resolver, self.disk

        def make_form() -> Any:
            found = None if resolver is None else resolver.get(key)
            if found is not None:
                self._count(hits=1)
                return found
            stored = None if disk is None or stamp is None else disk.get(key, stamp)
            value = freeze(make(self._load_base(base, tensor)) if stored is None else stored)
            if value is None:
                raise ContentError(f"{what}: the function returned None")
            self._count(derived=stored is None, disk=stored is not None)
            if disk is not None and stamp is not None and stored is None:
                disk.set(key, stamp, value)
            if resolver is not None:
                resolver.set(key, value)
            return value

        return self._load_once(key, pin, make_form, keep=resolver is None, what=what, size=size)

    def _load_base(self, key: int, tensor: Tensor) -> Array:
        with self._lock:
            found: Array | None = self._cache.get(key)
            self._hits += found is not None
        return self._read(tensor) if found is None else found

    def _holds(self, key: int) -> bool:
        with self._lock:
            return key in self._cache

    def _read(self, tensor: Tensor) -> Array:
        """Read the values from the file. Under a budget they are a copy, so that evicting them frees memory."""
        value: Array = freeze(tensor.numpy() if self.budget is None else copy_values(tensor))
        self._count(loads=1, loaded=value.nbytes)
        return value

    def _load_once(
        self,
        key: int,
        pin: bool,
        make: Callable[[], Any],
        *,
        keep: bool = True,
        what: str = "a parameter",
        size: Size | None = None,
    ) -> Any:
        """Return the value under ``key``: cached, made by another thread meanwhile, or made by this one."""
        with self._lock:
            found = self._cache.get(key)
            if found is not None:
                self._hits += 1
                if pin:
                    self._cache.pin(key)
                return found
            turn = self._turns.get(key)
            if turn is None:
                turn = self._turns[key] = _Turn()
        if is_owned(turn.lock):
            raise ContentError(f"{what} is made from itself")
        with turn.lock:
            if turn.value is None:
                made = make()
                nbytes = measure(made, size, what, needed=keep and self.budget is not None)
                pin = pin or nbytes <= self.small
                with self._lock:
                    if keep and (self.keep or pin):
                        self._cache.put(key, made, nbytes, pinned=pin)
                turn.value = made
                return made
        with self._lock:
            self._hits += 1
            if pin:
                self._cache.pin(key)
        return turn.value

    def _count(
        self, hits: int = 0, loads: int = 0, loaded: int = 0, derived: int = 0, rows: int = 0, disk: int = 0
    ) -> None:
        with self._lock:
            self._hits += hits
            self._loads += loads
            self._loaded += loaded
            self._derived += derived
            self._rows += rows
            self._disk += disk


class Parameters(Mapping[str, Array]):
    """The parameters of one model of a store, by name."""

    def __init__(self, store: ParamStore, model: Model, namespace: int) -> None:
        self.store = store
        self.model = model
        self.namespace = namespace
        self._keys: dict[str, int] = {}
        self._ids = Identities(model)

    @computed_once
    def _stamp(self) -> str | None:
        return stamp_of(self.model)

    def __getitem__(self, name: str) -> Array:
        return self.load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.model)

    def __len__(self) -> int:
        return len(self.model)

    def __contains__(self, name: object) -> bool:
        return name in self.model

    def key(self, name: str) -> int:
        """Return the stable key of a parameter in this store."""
        found = self._keys.get(name)
        if found is None:
            found = self._keys[name] = param_key(self.namespace, base_id(name))
        return found

    def by_id(self, id: int) -> Array:
        """Load a parameter by its base id."""
        return self.load(self._ids.name(id))

    def lazy(self, name: str) -> LazyParameter:
        """Return a parameter that is loaded when it is first used: its ids, shape and dtype are known before.

        >>> from holdall.model.model import model_of
        >>> weights = ParamStore().add(model_of({"w": np.ones((2, 3), np.float32)}))
        >>> weights.lazy("w").shape, weights.store.figures().loads, np.sum(weights.lazy("w"))
        ((2, 3), 0, np.float32(6.0))
        """
        return LazyParameter(self, self.model[name])

    def holds(self, name: str) -> bool:
        """Whether the values of a parameter are in memory."""
        return self.store._holds(self.key(name))

    def load(self, name: str, *, pin: bool = False) -> Array:
        """Return the values of a parameter; a quantized one is decoded."""
        tensor = self.model[name]
        values: Array = self.store._load_once(self.key(name), pin, lambda: self.store._read(tensor))
        return values

    def read(self, name: str) -> Array:
        """Return the values of a parameter for one use: the cached ones, else read now and not kept."""
        return self.store._load_base(self.key(name), self.model[name])

    def derive(
        self, name: str, form: str, make: Make | None = None, *, pin: bool = False, size: Size | None = None
    ) -> Any:
        """Return a form of a parameter, made by ``make`` and kept under the key of parameter and form.

        Without ``make`` the form is a dtype (f64, f32, f16, bf16), with ``.T`` after it for transposed. It may be any
        object, such as a tensor on a device or a handle: ``size`` is its bytes for the budget, or a function of it,
        unless it has ``nbytes``.
        """
        if make is None:
            if form == str(self.model[name].dtype):
                return self.load(name, pin=pin)
            make = find_form(form)
        stamp = None if self.store.disk is None else self._stamp
        return self.store._derive(self.key(name), self.model[name], form, make, stamp, pin, size)

    def rows(self, name: str, indices: ArrayLike) -> Array:
        """Return some rows of a parameter. Under a budget, only these rows are read unless the parameter is cached."""
        wanted = np.asarray(indices, np.int64)
        tensor = self.model[name]
        count = tensor.shape[0] if tensor.shape else 0
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < count:
            raise ContentError(f"rows {wanted.min()} to {wanted.max()} of {name!r}, which has {count}")
        whole = self.store.budget is None and self.store.keep
        if whole or self.holds(name):
            return self.load(name)[wanted]
        unique, places = np.unique(wanted, return_inverse=True)
        self.store._count(rows=int(unique.size))
        if wanted.size and any(payload.in_order for payload in tensor.payloads):  # one pass, not one for each run
            unique = np.arange(unique[0], unique[-1] + 1)
            places = wanted - unique[0]
        runs = np.split(unique, np.flatnonzero(np.diff(unique) != 1) + 1)  # neighbours are read together
        parts = [tensor[int(run[0]) : int(run[-1]) + 1] for run in runs if run.size] or [tensor[0:0]]
        found: Array = np.concatenate(parts)[places.reshape(wanted.shape)]
        return found

    def prefetch(self, *patterns: str, form: str | None = None, pin: bool = True) -> list[str]:
        """Load and pin every parameter whose name matches a pattern (``encoder.layer.0.*``); return their names."""
        names = [name for name in self.model if any(fnmatchcase(name, pattern) for pattern in patterns)]
        for name in names:
            if form is None:
                self.load(name, pin=pin)
            else:
                self.derive(name, form, pin=pin)
        return names
