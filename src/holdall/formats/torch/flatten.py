"""The content of a pickle as tensors with dotted names, and the plain rest as metadata."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdall.check import Check
from holdall.formats.torch import rules
from holdall.formats.torch.content import Device, Global, Ordered, Size, Storage, TensorRef
from holdall.formats.torch.nesting import ATTRIBUTE, LONE, METADATA, VALUE, Container, Nesting
from holdall.formats.torch.refs import Refs
from holdall.limits import Limits
from holdall.metadata import Entry

__all__ = ["KIND", "Content", "flatten"]

KIND = "pickle"  # of metadata that is a value among the tensors, or in the attribute METADATA

# What the content weighs, by what it takes in memory and time. A pickle may come to Limits.decompression_ratio for each
# of its bytes, 64: so every value may stand in it once, however short, and what is long is used again many times.
_FLOOR = 1 << 24
_VALUE = 64  # a plain value, or a dim of a tensor
_LETTER = 4  # of text and of names
_ENTRY = 256  # an entry of metadata, or a container with tensors
_TENSOR = 1536

_PLAIN = frozenset({type(None), bool, int, float})


class Content:
    """What :func:`flatten` finds: ``tensors`` by name, after those in ``ahead``, and ``entries`` of metadata."""

    def __init__(self) -> None:
        self.ahead: Refs | None = None
        self.tensors: dict[str, TensorRef] = {}
        self.entries: list[Entry] = []
        self.containers: list[Container] = []
        self.stored: dict[tuple[str, str], tuple[Any, Any]] = {}  # values of which entries have a plainer form
        self.flat = False  # whether all there is are tensors in one dict

    @property
    def nesting(self) -> Nesting | None:
        """What dotted names do not say; None for a flat dict of tensors, of which they say all."""
        ahead = () if self.ahead is None else self.ahead.names
        return None if self.flat else Nesting(self.containers, ahead, self.stored)

    @property
    def refs(self) -> Refs:
        """All tensors, as columns."""
        rest = Refs.of(self.tensors)
        return rest if self.ahead is None else Refs.joined([self.ahead, rest] if self.tensors else [self.ahead])


def flatten(root: Any, size: int, at: int, check: Check, ahead: Refs | None = None) -> Content:
    """``root`` taken apart. ``size`` is that of its pickle: values that are remembered and used again many times may
    not grow beyond a multiple of it. ``ahead`` are tensors that come first in ``root`` and are not in it any more."""
    walk = _Walk(size, at, check, ahead)
    found = walk.content
    if isinstance(root, TensorRef):
        found.tensors[LONE] = root
    elif isinstance(root, (dict, list, tuple)):
        found.flat = isinstance(root, dict)
        walk.inside(Container(-1, None, "", root), 0)
    else:
        walk.entry(VALUE, root, 0, KIND)
    check.limit("tensors", len(found.tensors) + len(found.ahead or ()), at, "torch: tensors")
    return found


class _Walk:
    def __init__(self, size: int, at: int, check: Check, ahead: Refs | None) -> None:
        limits: Limits = check.limits
        self.content = Content()
        self._left = limits.decompression_ratio * size + _FLOOR
        if ahead is not None:
            self.content.ahead = ahead
        self._at = at
        self._check = check
        self._depth = limits.nesting
        self._plainer = False  # whether the value at hand is of a type that metadata does not have
        self._bare: dict[int, bool] = {}  # containers by identity: whether no tensor is inside

    def _spend(self, weight: int, depth: int) -> None:
        self._left -= weight
        if self._left < 0 or depth > self._depth:
            what = "is nested too deeply" if depth > self._depth else "repeats what it remembers beyond all measure"
            self._check.fail(rules.SIZE, self._at, f"torch: the content {what}")

    def inside(self, home: Container, depth: int) -> None:
        """Tensors and plain values of a container that holds tensors somewhere, or of the outermost one."""
        container, prefix, number = home.value, home.prefix, len(self.content.containers)
        self.content.containers.append(home)
        pairs: Iterable[tuple[Any, Any]] = container.items() if isinstance(container, dict) else enumerate(container)
        for key, value in pairs:
            name = f"{prefix}{key}"
            if isinstance(value, TensorRef):
                self._spend(_TENSOR + _VALUE * len(value.shape) + _LETTER * len(name), depth)
                if name in self.content.tensors:
                    self._check.fail(rules.DUPLICATE, value.at, f"torch: two tensors would be called {name!r}")
                self.content.tensors[name] = value
            elif isinstance(value, (dict, list, tuple)) and not self._plain_only(value, depth + 1):
                self.content.flat = False
                self._spend(_ENTRY + _LETTER * len(name), depth)
                self.inside(Container(number, key, name + ".", value), depth + 1)
            else:
                self.content.flat = False
                self.entry(name, value, depth + 1, KIND)
        if isinstance(container, Ordered):
            self._attributes(container, prefix)

    def _attributes(self, container: Ordered, prefix: str) -> None:
        """What is set on an OrderedDict: the versions of modules, and on the outermost one what holdall wrote."""
        for name, value in container.attributes.items():
            own = name == METADATA and isinstance(value, dict) and all(isinstance(key, str) for key in value)
            if own and not prefix:
                for key, item in value.items():
                    self._spend(_ENTRY + _LETTER * len(key), 1)
                    self.content.entries.append(Entry(key, self.plain(item, 1), KIND))
            else:
                self.entry(prefix + name, value, 1, ATTRIBUTE)

    def entry(self, key: str, value: Any, depth: int, kind: str) -> None:
        """An entry of metadata; what is lost of its value is kept for whoever writes it again."""
        self._spend(_ENTRY + _LETTER * len(key), depth)
        self._plainer = False
        plain = self.plain(value, depth)
        self.content.entries.append(Entry(key, plain, kind))
        if self._plainer:
            self.content.stored[key, kind] = value, plain

    def _plain_only(self, value: Any, depth: int) -> bool:
        """Whether no tensor is inside ``value``; settled once for each container, however often it is used."""
        if not isinstance(value, (dict, list, tuple)):
            return not isinstance(value, TensorRef)
        known = self._bare.get(id(value))
        if known is not None:
            return known
        self._spend(0, depth)
        self._bare[id(value)] = True  # a container inside itself: the depth says so later
        items = value.values() if isinstance(value, dict) else value
        bare = all(type(item) in _PLAIN or self._plain_only(item, depth + 1) for item in items)
        self._bare[id(value)] = bare
        return bare

    def plain(self, value: Any, depth: int) -> Any:
        """A copy of a value that holds no tensor; its container, or its entry, has paid for it but for the letters."""
        if type(value) in _PLAIN:
            return value
        self._plainer = self._plainer or isinstance(value, (Device, Global, Ordered, Size))
        if isinstance(value, (str, bytes)):
            self._spend(_LETTER * len(value), depth)
            return str(value) if isinstance(value, Device) else value
        if isinstance(value, dict):
            self._spend(2 * _VALUE * len(value), depth)
            return {self.plain(key, depth): self.plain(item, depth + 1) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            self._spend(_VALUE * len(value), depth)
            made = [item if type(item) in _PLAIN else self.plain(item, depth + 1) for item in value]
            return made if isinstance(value, list) else tuple(made)
        if not isinstance(value, Global):
            what = "a storage" if isinstance(value, Storage) else f"a {type(value).__name__}"
            self._check.fail(rules.VALUE, self._at, f"torch: {what} stands where a plain value is expected")
        return str(value)
