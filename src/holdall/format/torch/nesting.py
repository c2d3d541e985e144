"""The dicts and lists that the tensors of a checkpoint are in, and how they are rebuilt when it is written again.

The names in a model are dotted. Only the file knows which dot is a step into a container and which is part of a key,
what was a list, and which keys were numbers. A name that was in the file returns to its place; a new one goes into
the deepest container whose name it begins with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdall.errors import ContentError
from holdall.format.torch.keys import name_items
from holdall.format.torch.numpy_objects import Array
from holdall.format.torch.pickle_objects import Ordered, TensorRef
from holdall.model.metadata import Entry

__all__ = ["ATTRIBUTE", "LONE", "METADATA", "VALUE", "Branch", "Container", "Nesting", "TensorSlot", "arrange"]

LONE = "tensor"  # the name given to the tensor of a file that is one tensor
VALUE = "value"  # the key given to the value of a file that is one value
ATTRIBUTE = "attribute"  # the kind of metadata that is an attribute of an OrderedDict
METADATA = "metadata"  # the attribute in which holdall writes metadata

_DIGITS = 18  # the most digits of an index: int() refuses thousands of them


@dataclass(frozen=True, slots=True)
class Container:
    """A container of tensors: its ``key`` in the parent, the ``prefix`` of names inside, and its ``value``."""

    parent: int
    key: Any
    prefix: str
    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Nesting:
    """The containers of a file, the outermost one first; none if the file is one tensor or one value.

    ``leading`` are the first tensors of the outermost container, which it does not hold itself. ``stored`` has, by
    key and kind of an entry, a value that metadata cannot express, and the plain form that metadata has instead.
    ``renamed`` has, by the number and key of a container, the names of items that others have as well.
    ``flat`` is the type of content that is one dict of tensors whose keys are their names: it needs no containers.
    """

    containers: Sequence[Container]
    leading: Sequence[str] = ()
    stored: Mapping[tuple[str, str], tuple[Any, Any]] = field(default_factory=dict)
    renamed: Mapping[tuple[int, Any], str] = field(default_factory=dict)
    flat: type | None = None

    def original(self, entry: Entry) -> Entry:
        """``entry`` with the value that the file had, unless the entry was changed since."""
        stored, plain = self.stored.get((entry.key, entry.kind), (None, None))
        return entry if plain is None or entry.value is not plain else Entry(entry.key, stored, entry.kind)


@dataclass(frozen=True, slots=True)
class TensorSlot:
    """Stands for the tensor of this number among those that are written."""

    number: int


@dataclass(slots=True)
class Branch:
    """A container to be written: ``items`` are tensor slots, other branches and plain values."""

    kind: type
    name: str = ""
    items: dict[Any, Any] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)


def arrange(nesting: Nesting, names: Sequence[str], entries: Sequence[Entry]) -> tuple[Any, list[str]]:
    """Return the content of a file whose tensors and ``entries`` are nested as before, and notes on what had to change.

    The content is a branch, or the one tensor or value of a file without containers.
    """
    entries = [nesting.original(entry) for entry in entries]
    if nesting.containers:
        return _Rebuilder(nesting).rebuild(names, entries)
    if list(names) == [LONE] and not entries:
        return TensorSlot(0), []
    if not names and [entry.key for entry in entries] == [VALUE]:
        return entries[0].value, []
    root = Branch(Ordered, items={name: TensorSlot(number) for number, name in enumerate(names)})
    for entry in entries:
        _put_once(root.attributes.setdefault(METADATA, {}), entry.key, entry.value, entry.key)
    return root, ["what stood alone in the file is written in a dict, under its name"]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an item goes: the number of its container, its key, and how many items come before it in the file."""

    container: int
    key: Any
    rank: int


class _Rebuilder:
    """Puts tensors and entries into copies of the containers of a file."""

    def __init__(self, nesting: Nesting) -> None:
        self._containers, self._renamed = nesting.containers, nesting.renamed
        self._numbers = {(inner.parent, inner.key): number for number, inner in enumerate(nesting.containers)}
        self._prefixes = {inner.prefix: number for number, inner in enumerate(nesting.containers)}
        self._tensors: dict[str, _Place] = {}
        self._values: dict[str, _Place] = {}
        self._attributes: dict[str, _Place] = {}
        self._ranks: dict[int, int] = {}  # the place of each container in the order of the file
        self._counted: dict[int, bool] = {}  # whether all keys of a container are numbers
        self._rank = 0
        self._index(0, nesting.leading)
        self._branches = {0: Branch(type(nesting.containers[0].value))}

    def _index(self, number: int, leading: Sequence[str] = ()) -> None:
        """Record the place of every item of a container, and of those inside it."""
        container = self._containers[number]
        self._rank += 1
        self._ranks[number] = self._rank
        self._counted[number] = not leading
        for name in leading:
            self._tensors[name] = self._next_place(number, name)
        for name, key, value in name_items(container.value, leading):
            self._counted[number] &= isinstance(key, int)
            inner = self._numbers.get((number, key))
            if inner is not None:
                self._index(inner)
            else:
                home = self._tensors if isinstance(value, (Array, TensorRef)) else self._values
                home[self._renamed.get((number, key), container.prefix + name)] = self._next_place(number, key)
        for key in container.value.attributes if isinstance(container.value, Ordered) else ():
            self._attributes[container.prefix + key] = self._next_place(number, key)

    def _next_place(self, number: int, key: Any) -> _Place:
        self._rank += 1
        return _Place(number, key, self._rank)

    def rebuild(self, names: Sequence[str], entries: Sequence[Entry]) -> tuple[Branch, list[str]]:
        """Return the outermost branch, in the order of the file; a new item follows the one before it in the model."""
        placed: list[tuple[_Place, Any, bool]] = []
        before = 0
        for row, name in enumerate(names):
            place = self._tensors.get(name) or self._place_new(name, before)
            before = place.rank
            placed.append((place, TensorSlot(row), False))
        own: dict[str, Any] = {}
        root = self._branches[0]
        for entry in entries:
            homes = (self._attributes,) if entry.kind == ATTRIBUTE else (self._values, self._attributes)
            known = next((home for home in homes if entry.key in home), None)
            if known is self._attributes:
                placed.append((known[entry.key], entry.value, True))
            elif known is None and root.kind is Ordered:
                _put_once(own, entry.key, entry.value, entry.key)
            else:
                place = self._values.get(entry.key) or self._place_new(entry.key, before)
                before = place.rank
                placed.append((place, entry.value, False))
        for place, item, is_attribute in sorted(placed, key=lambda each: each[0].rank):
            branch = self._branch(place.container)
            home = branch.attributes if is_attribute else branch.items
            _put_once(home, place.key, item, f"{self._containers[place.container].prefix}{place.key}")
        if own:
            _put_once(root.attributes, METADATA, own, METADATA)
        return root, [note for branch in self._branches.values() for note in _close_list(branch)]

    def _place_new(self, name: str, before: int) -> _Place:
        """The place of an item that the file did not have."""
        number, dot = 0, name.rfind(".")
        while dot >= 0 and not number:
            number = self._prefixes.get(name[: dot + 1], 0)
            dot = name.rfind(".", 0, dot)
        rest = name[len(self._containers[number].prefix) :]
        counts = self._counted[number] and len(rest) <= _DIGITS and rest.isdecimal() and str(int(rest)) == rest
        return _Place(number, int(rest) if counts else rest, max(before, self._ranks[number]))

    def _branch(self, number: int) -> Branch:
        """The branch of a container; made when its first item is put."""
        if number not in self._branches:
            container = self._containers[number]
            branch = self._branches[number] = Branch(type(container.value), container.prefix[:-1])
            _put_once(self._branch(container.parent).items, container.key, branch, branch.name)
        return self._branches[number]


def _put_once(home: dict[Any, Any], key: Any, item: Any, name: str) -> None:
    if key in home:
        raise ContentError(f"torch: two things would be called {name!r}")
    home[key] = item


def _close_list(branch: Branch) -> list[str]:
    """Order the items of a list; if some are missing, it becomes a dict by index, which the notes say."""
    if issubclass(branch.kind, dict):
        return []
    if set(branch.items) == set(range(len(branch.items))):
        branch.items = dict(sorted(branch.items.items()))
        return []
    what = f"{branch.name!r}" if branch.name else "the file"
    note = f"{what} was a {branch.kind.__name__}, whose items no longer count from 0 on: written as a dict"
    branch.kind = dict
    return [note]
