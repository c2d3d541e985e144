"""Flattens the content of a pickle: tensors get dotted names, and all other values become metadata."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from holdall.base.check import Check
from holdall.format.torch import rules
from holdall.format.torch.keys import name_items, spell_keys
from holdall.format.torch.nesting import ATTRIBUTE, LONE, METADATA, VALUE, Container, Nesting
from holdall.format.torch.numpy_objects import Array
from holdall.format.torch.pickle_objects import Device, Global, Ordered, Refused, Size, Storage, TensorRef
from holdall.format.torch.refs import Refs
from holdall.limits import Limits
from holdall.model.metadata import Entry

__all__ = ["KIND", "Content", "Flattener", "flatten", "is_own_metadata"]

KIND = "pickle"  # the kind of metadata that is a value among the tensors, or in the attribute METADATA

# Each item weighs about the bytes of memory that it takes. All content may weigh Limits.decompression_ratio (64) for
# each byte of the pickle, plus _FLOOR: enough for every value that is written out, however short, but a value that is
# remembered and used again and again is soon refused.
_FLOOR = 1 << 24
_VALUE = 64  # the weight of a plain value, or of a dimension of a tensor
_LETTER = 4  # the weight of a letter of a text or a name
_ENTRY = 256  # the weight of an entry of metadata, or of a container with tensors
_TENSOR = 1536  # the weight of a tensor

_PLAIN = frozenset({type(None), bool, int, float})


class Content:
    """The result of :func:`flatten`: ``tensors`` by name, which come after ``leading``, and metadata ``entries``."""

    def __init__(self) -> None:
        self.leading: Refs | None = None
        self.tensors: dict[str, TensorRef] = {}
        self.entries: list[Entry] = []
        self.containers: list[Container] = []
        self.renamed: dict[tuple[int, Any], str] = {}  # see Nesting
        self.stored: dict[tuple[str, str], tuple[Any, Any]] = {}  # see Nesting
        self.flat: type | None = None  # see Nesting

    @property
    def nesting(self) -> Nesting:
        """How the tensors were nested."""
        if self.flat is not None:
            return Nesting((), (), self.stored, flat=self.flat)
        return Nesting(self.containers, () if self.leading is None else self.leading.names, self.stored, self.renamed)

    @property
    def refs(self) -> Refs:
        """All tensors, as columns."""
        rest = Refs.of(self.tensors)
        return rest if self.leading is None else Refs.join([self.leading, rest] if self.tensors else [self.leading])


def is_own_metadata(name: str, value: Any) -> bool:
    """Whether an attribute of the outermost dict is the one in which holdall writes metadata."""
    return name == METADATA and isinstance(value, dict) and all(type(key) is str for key in value)


def flatten(root: Any, size: int, at: int, check: Check, leading: Refs | None = None) -> Content:
    """Return the tensors and values of ``root``, which was read from a pickle of ``size`` bytes at byte ``at``.

    ``leading`` are the first tensors of ``root``, which were found before and are not in it.
    """
    flattener = Flattener(size, at, check, leading)
    found = flattener.content
    if isinstance(root, Array):
        root = root.value
    if isinstance(root, TensorRef):
        found.tensors[LONE] = root
    elif isinstance(root, (dict, list, tuple)):
        found.flat = type(root) if isinstance(root, dict) and all(type(key) is str for key in root) else None
        flattener.walk(Container(-1, None, "", root), 0)
    else:
        flattener.add_entry(VALUE, root, 0, KIND)
    check.limit("tensors", len(found.tensors) + len(found.leading or ()), at, "torch: tensors")
    return found


class Flattener:
    """Walks through nested containers, and fails when what it finds weighs too much for the size of the pickle."""

    def __init__(self, size: int, at: int, check: Check, leading: Refs | None) -> None:
        limits: Limits = check.limits
        self.content = Content()
        self.content.leading = leading
        self._left = limits.decompression_ratio * size + _FLOOR
        self._at = at
        self._check = check
        self._depth = limits.nesting
        self._keys: dict[str, set[str]] = {}  # of entries, by their kind
        self._numbers: dict[tuple[str, int], int] = {}  # the last number of a name that is taken
        self._plainer = False  # whether copy_plain() met a type that metadata does not have
        self._bare: dict[int, bool] = {}  # whether no tensor is inside a container, by its identity

    def _spend(self, weight: int, depth: int) -> None:
        self._left -= weight
        if depth > self._depth:
            message = f"torch: the content is nested too deeply: above {self._depth} levels"
            self._check.exceed("nesting", self._at, message)
        if self._left < 0:
            message = "torch: the content repeats remembered values too often for the size of its pickle"
            self._check.fail(rules.SIZE, self._at, message)

    def _spend_name(self, name: str, depth: int) -> None:
        self._spend(_ENTRY + _LETTER * len(name), depth)

    def _spend_items(self, count: int, depth: int) -> None:
        self._spend(_VALUE * count, depth)

    def add_tensor(self, name: str, ref: TensorRef, depth: int) -> str:
        """Add a tensor, and return its name, which has a number if another tensor is called so."""
        self._spend(_TENSOR + _VALUE * len(ref.shape) + _LETTER * len(name), depth)
        name = self._find_free(name, self.content.tensors)
        self.content.tensors[name] = ref
        return name

    def free_key(self, key: str, kind: str) -> str:
        """The key for an entry, which has a number if another entry of this kind is called so."""
        taken = self._keys.setdefault(kind, set())
        key = self._find_free(key, taken)
        taken.add(key)
        return key

    def _find_free(self, name: str, taken: Collection[str]) -> str:
        """``name``, or if that is taken, the same with a number from 2 on."""
        found, count = name, self._numbers.get((name, id(taken)), 1)
        while found in taken:
            count += 1
            found = f"{name}#{count}"
            self._numbers[name, id(taken)] = count
        return found

    def walk(self, home: Container, depth: int) -> None:
        """Collect tensors and values of a container that holds tensors at some depth, or of the outermost one."""
        container, prefix, number = home.value, home.prefix, len(self.content.containers)
        self.content.containers.append(home)
        leading = self.content.leading.names if self.content.leading is not None and not number else ()
        for label, key, value in name_items(container, leading):
            name = used = prefix + label
            if isinstance(value, Array):
                value = value.value
            if isinstance(value, TensorRef):
                used = self.add_tensor(name, value, depth)
            elif isinstance(value, (dict, list, tuple)) and not self._plain_only(value, depth + 1):
                self.content.flat = None
                self._spend_name(name, depth)
                self.walk(Container(number, key, name + ".", value), depth + 1)
            else:
                self.content.flat = None
                used = self.free_key(name, KIND)
                self.add_entry(used, value, depth + 1, KIND)
            if used != name:
                self.content.renamed[number, key] = used
        if isinstance(container, Ordered):
            self._collect_attributes(container, prefix)

    def _collect_attributes(self, container: Ordered, prefix: str) -> None:
        """Collect the attributes of an OrderedDict; METADATA of the outermost one has the entries holdall wrote."""
        for name, value in container.attributes.items():
            if not prefix and is_own_metadata(name, value):
                for key, item in value.items():
                    self.add_entry(key, item, 1, KIND)
            else:
                self.add_entry(prefix + name, value, 1, ATTRIBUTE)

    def add_entry(self, key: str, value: Any, depth: int, kind: str) -> None:
        """Add a metadata entry; if its plain form differs, the value itself is kept for writing the file again."""
        self._spend_name(key, depth)
        self._plainer = False
        plain = self.copy_plain(value, depth)
        self.content.entries.append(Entry(key, plain, kind))
        if self._plainer:
            self.content.stored[key, kind] = value, plain

    def _plain_only(self, value: Any, depth: int) -> bool:
        """Whether no tensor is inside ``value``; found once for each container, however often it is used."""
        if not isinstance(value, (dict, list, tuple)):
            return not isinstance(value, (Array, TensorRef))
        known = self._bare.get(id(value))
        if known is not None:
            return known
        self._spend(0, depth)
        self._bare[id(value)] = True  # ends the recursion if a container is inside itself; copy_plain() refuses it
        items = value.values() if isinstance(value, dict) else value
        bare = all(type(item) in _PLAIN or self._plain_only(item, depth + 1) for item in items)
        self._bare[id(value)] = bare
        return bare

    def copy_plain(self, value: Any, depth: int) -> Any:
        """Return a copy of a value without tensors; the weight of its letters and items is added here."""
        if type(value) in _PLAIN:
            return value
        self._plainer = self._plainer or isinstance(value, (Device, Global, Ordered, Size))
        if isinstance(value, (str, bytes)):
            self._spend(_LETTER * len(value), depth)
            return str(value) if isinstance(value, Device) else value
        if isinstance(value, dict):
            self._spend(2 * _VALUE * len(value), depth)
            items = [self.copy_plain(item, depth + 1) for item in value.values()]
            return dict(zip(self._copy_keys(value, depth), items, strict=True))
        if isinstance(value, (list, tuple)):
            self._spend(_VALUE * len(value), depth)
            made = [item if type(item) in _PLAIN else self.copy_plain(item, depth + 1) for item in value]
            return made if isinstance(value, list) else tuple(made)
        if not isinstance(value, Global):
            what = "storage" if isinstance(value, Storage) else "tensor"
            raise Refused(rules.OBJECT, 0, f"a {what} stands where a plain value is expected")
        return str(value)

    def _copy_keys(self, keys: dict[Any, Any], depth: int) -> list[Any]:
        """The keys of a dict of metadata: text and integers, and a text for any other key."""
        kinds = set(map(type, keys))
        if kinds <= {int}:
            return list(keys)
        names = list(keys) if kinds == {str} else spell_keys(keys)
        self._spend(_LETTER * sum(map(len, names)), depth)
        if kinds == {str}:
            return names
        # An integer stays one, unless the dict has the same digits as text: most formats cannot tell the two apart.
        made = [key if type(key) is int and name == str(key) else name for key, name in zip(keys, names, strict=True)]
        self._plainer = self._plainer or any(type(a) is not type(b) for a, b in zip(keys, made, strict=True))
        return made
