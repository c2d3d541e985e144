"""The dicts and lists that the tensors of a checkpoint are in, and how what is written finds its way back into them.

A model has dotted names. The file that it came from knows which dot is a step into a container and which is part of
a key, what was a list, and which keys were numbers. A name that the file had goes where it was; any other one into
the deepest container whose name it begins with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdall.errors import ContentError
from holdall.formats.torch.content import Ordered, TensorRef
from holdall.metadata import Entry

__all__ = ["ATTRIBUTE", "LONE", "METADATA", "VALUE", "Branch", "Container", "Nesting", "Row", "arrange"]

LONE = "tensor"  # what the one tensor of a file without containers is called
VALUE = "value"  # and its one value
ATTRIBUTE = "attribute"  # of metadata that is an attribute of an OrderedDict
METADATA = "metadata"  # the attribute in which holdall writes metadata

_DIGITS = 18  # of a name that can be a place in a list: Python refuses numbers of thousands


@dataclass(frozen=True, slots=True)
class Container:
    """A dict, list or tuple that tensors are in, under ``key`` of its parent; ``prefix`` begins all names inside."""

    parent: int
    key: Any
    prefix: str
    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Nesting:
    """The containers of a file, the outermost one first: none where a tensor or a value stands alone.

    ``ahead`` are tensors that come first in the outermost one and are not in it any more. ``stored`` has, by key and
    kind of the entry, values of which metadata has a plainer form, and that form.
    """

    containers: Sequence[Container]
    ahead: Sequence[str] = ()
    stored: Mapping[tuple[str, str], tuple[Any, Any]] = field(default_factory=dict)

    def original(self, entry: Entry) -> Entry:
        """``entry`` with the value that the file had, if it is still the one that was read."""
        stored, plain = self.stored.get((entry.key, entry.kind), (None, None))
        return entry if plain is None or entry.value is not plain else Entry(entry.key, stored, entry.kind)


@dataclass(frozen=True, slots=True)
class Row:
    """A tensor by its place among those that are written."""

    number: int


@dataclass(slots=True)
class Branch:
    """A container that is written: ``items`` are rows, other branches and plain values."""

    kind: type
    name: str = ""
    items: dict[Any, Any] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)


def arrange(nesting: Nesting, names: Sequence[str], entries: Sequence[Entry]) -> tuple[Any, list[str]]:
    """What a file holds in which tensors of such names, as rows, and ``entries`` are nested as in the one that they
    came from: a branch, or what stood alone. And what could not stay as it was."""
    entries = [nesting.original(entry) for entry in entries]
    if nesting.containers:
        return _Arrangement(nesting).of(names, entries)
    if list(names) == [LONE] and not entries:
        return Row(0), []
    if not names and [entry.key for entry in entries] == [VALUE]:
        return entries[0].value, []
    root = Branch(Ordered, items={name: Row(number) for number, name in enumerate(names)})
    for entry in entries:
        _put(root.attributes.setdefault(METADATA, {}), entry.key, entry.value, entry.key)
    return root, ["what stood alone in the file is written in a dict, under its name"]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where something goes: the number of the container, the key, and how many things come before it."""

    container: int
    key: Any
    rank: int


class _Arrangement:
    def __init__(self, nesting: Nesting) -> None:
        self._containers = nesting.containers
        self._numbers = {(inner.parent, inner.key): number for number, inner in enumerate(nesting.containers)}
        self._prefixes = {inner.prefix: number for number, inner in enumerate(nesting.containers)}
        self._tensors: dict[str, _Place] = {}
        self._values: dict[str, _Place] = {}
        self._attributes: dict[str, _Place] = {}
        self._ranks: dict[int, int] = {}  # of containers
        self._counted: dict[int, bool] = {}  # whether all keys of a container are numbers
        self._rank = 0
        self._find(0, nesting.ahead)
        self._branches = {0: Branch(type(nesting.containers[0].value))}

    def _find(self, number: int, ahead: Iterable[str] = ()) -> None:
        """Remember where everything in a container was."""
        container = self._containers[number]
        self._rank += 1
        self._ranks[number] = self._rank
        self._counted[number] = not ahead
        for name in ahead:
            self._tensors[name] = self._next(number, name)
        for key, value in _pairs(container.value):
            self._counted[number] &= isinstance(key, int)
            inner = self._numbers.get((number, key))
            if inner is not None:
                self._find(inner)
            else:
                home = self._tensors if isinstance(value, TensorRef) else self._values
                home[f"{container.prefix}{key}"] = self._next(number, key)
        for key in container.value.attributes if isinstance(container.value, Ordered) else ():
            self._attributes[container.prefix + key] = self._next(number, key)

    def _next(self, number: int, key: Any) -> _Place:
        self._rank += 1
        return _Place(number, key, self._rank)

    # -- putting things back ----------------------------------------------------------------------------------------

    def of(self, names: Sequence[str], entries: Sequence[Entry]) -> tuple[Branch, list[str]]:
        """All of it in the order of the file; what is new comes after what it follows in the model."""
        placed: list[tuple[_Place, Any, bool]] = []
        before = 0
        for row, name in enumerate(names):
            place = self._tensors.get(name) or self._new(name, before)
            before = place.rank
            placed.append((place, Row(row), False))
        own: dict[str, Any] = {}
        root = self._branches[0]
        for entry in entries:
            homes = (self._attributes,) if entry.kind == ATTRIBUTE else (self._values, self._attributes)
            known = next((home for home in homes if entry.key in home), None)
            if known is self._attributes:
                placed.append((known[entry.key], entry.value, True))
            elif known is None and root.kind is Ordered:
                _put(own, entry.key, entry.value, entry.key)
            else:
                place = self._values.get(entry.key) or self._new(entry.key, before)
                before = place.rank
                placed.append((place, entry.value, False))
        for place, item, is_attribute in sorted(placed, key=lambda each: each[0].rank):
            branch = self._branch(place.container)
            home = branch.attributes if is_attribute else branch.items
            _put(home, place.key, item, f"{self._containers[place.container].prefix}{place.key}")
        if own:
            _put(root.attributes, METADATA, own, METADATA)
        return root, [note for branch in self._branches.values() for note in _closed(branch)]

    def _new(self, name: str, before: int) -> _Place:
        """The place of something that the file did not have."""
        number, dot = 0, name.rfind(".")
        while dot >= 0 and not number:
            number = self._prefixes.get(name[: dot + 1], 0)
            dot = name.rfind(".", 0, dot)
        rest = name[len(self._containers[number].prefix) :]
        counts = self._counted[number] and len(rest) <= _DIGITS and rest.isdecimal() and str(int(rest)) == rest
        return _Place(number, int(rest) if counts else rest, max(before, self._ranks[number]))

    def _branch(self, number: int) -> Branch:
        """The branch of a container, which is there as soon as there is something in it."""
        if number not in self._branches:
            container = self._containers[number]
            branch = self._branches[number] = Branch(type(container.value), container.prefix[:-1])
            _put(self._branch(container.parent).items, container.key, branch, branch.name)
        return self._branches[number]


def _pairs(container: Any) -> Iterable[tuple[Any, Any]]:
    return container.items() if isinstance(container, dict) else enumerate(container)


def _put(home: dict[Any, Any], key: Any, item: Any, name: str) -> None:
    if key in home:
        raise ContentError(f"torch: two things would be called {name!r}")
    home[key] = item


def _closed(branch: Branch) -> list[str]:
    """A list whose places are no longer 0, 1, 2... becomes a dict, in which the others keep theirs."""
    if issubclass(branch.kind, dict):
        return []
    if set(branch.items) == set(range(len(branch.items))):
        branch.items = dict(sorted(branch.items.items()))
        return []
    what = f"{branch.name!r}" if branch.name else "the file"
    note = f"{what} was a {branch.kind.__name__}, whose items no longer count from 0 on: written as a dict"
    branch.kind = dict
    return [note]
