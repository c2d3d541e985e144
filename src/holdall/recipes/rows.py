"""What a recipe says, as the classes that its TOML file becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdall.recipes.expressions import Call
from holdall.recipes.patterns import Pattern

__all__ = ["Line", "Recipe", "Refusal", "Side", "Value"]


@dataclass(frozen=True, slots=True)
class Side:
    """One world: its formats, and the values by which a model of it is known."""

    formats: tuple[str, ...]
    values: str  # where its values are: in the "config", which is config.json, or in the "metadata"
    match: Mapping[str, Any]  # a key, and the value or list of values that it has
    when: str = ""  # a condition beside
    nested: bool = False  # dotted keys are paths into documents
    by_name_only: bool = False  # not chosen by content, since another recipe has the same match
    types: tuple[str, ...] = ()  # of the numbers that its programs read; others are refused, if there are any


@dataclass(frozen=True, slots=True)
class Value:
    """One line of the mapping of values. ``sources`` are alternatives, of which the first is written."""

    sources: tuple[str, ...]
    target: str
    constant: str = ""  # an expression for the target's value
    back: str = ""  # an expression for the source's value on the way back
    kind: str = ""
    default: Any = None
    map: Mapping[str, Any] = field(default_factory=dict)
    optional: bool = False
    free: bool = False  # a computed value that is not compared on the way back
    null: bool = False  # without a value, null is written on the way back
    when: str = ""

    @property
    def key(self) -> str:
        """What the row is about: a recipe that is like another replaces rows by it."""
        return self.sources[0] if self.sources else self.target


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the mapping of tensors."""

    sources: tuple[Pattern, ...]
    targets: tuple[Pattern, ...]
    operations: tuple[Call, ...] = ()
    make: Call | None = None  # the tensor is computed
    found: Mapping[str, str] = field(default_factory=dict)  # what is found in a computed tensor, and its key
    when: str = ""
    optional: bool = False

    @property
    def key(self) -> str:
        """What the line is about: a recipe that is like another replaces lines by it."""
        return (self.sources or self.targets)[0].text

    @property
    def is_duplicate(self) -> bool:
        """Whether another line takes the source as well."""
        return any(name == "duplicate" for name, _ in self.operations)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A condition under which the recipe is wrong, or under which the report has a note, and why."""

    when: str
    because: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a model family is called in two worlds, and how its tensors differ."""

    name: str
    family: str
    title: str
    source: Side
    target: Side
    needs: str = ""
    by_way_of: tuple[str, ...] = ()  # recipes that lead back to the source of this one
    tokenizer: str = ""  # how tokenizers are mapped: those of folders to the entries of GGUF, or to a vocabulary
    let: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, str] = field(default_factory=dict)
    values: Sequence[Value] = ()
    tensors: Sequence[Line] = ()
    shapes: Mapping[str, str] = field(default_factory=dict)  # of the target's tensors, by their names
    refusals: Sequence[Refusal] = ()
    notes: Sequence[Refusal] = ()
    places: Mapping[str, str] = field(default_factory=dict)  # where an expression or an operation stands: file and line
