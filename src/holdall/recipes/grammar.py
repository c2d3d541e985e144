"""Recipes as data: the TOML grammar, and the classes that a file of it becomes.

Every error names the file, the line and the column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from holdall.errors import ContentError
from holdall.recipes.expressions import Call, check_expression, parse_call
from holdall.recipes.makers import MAKERS
from holdall.recipes.patterns import Pattern
from holdall.recipes.tensor_ops import OPERATIONS
from holdall.recipes.toml_places import Document, Path, read_toml

__all__ = ["Line", "Recipe", "Refusal", "Side", "Value", "parse_recipe"]

_TOP = (
    *("family", "title", "needs", "like", "without", "by_way_of", "tokenizer", "from", "to"),
    *("let", "counts", "values", "tensors", "shapes", "refuse", "note"),
)
_SIDE = ("formats", "values", "match", "when", "nested", "by_name_only")
_PLACES = ("config", "metadata")
_VALUE = ("from", "to", "is", "back", "default", "kind", "map", "optional", "free", "when")
_LINE = ("from", "to", "do", "make", "found", "when", "optional")
_REFUSAL = ("when", "because")
_TOKENIZERS = ("gguf", "vocab")


@dataclass(frozen=True, slots=True)
class Side:
    """One world: its formats, and the values by which a model of it is known."""

    formats: tuple[str, ...]
    values: str  # where its values are: in the "config", which is config.json, or in the "metadata"
    match: Mapping[str, Any]  # a key, and the value or list of values that it has
    when: str = ""  # a condition beside
    nested: bool = False  # dotted keys are paths into documents
    by_name_only: bool = False  # not chosen by content, since another recipe has the same match


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


def parse_recipe(name: str, file: str, text: str, load: Callable[[str], Recipe]) -> Recipe:
    """Parse the recipe called ``name`` from the ``text`` of ``file``; raises ContentError with line and column.

    ``load`` finds the recipe that it is like.
    """
    return _Reader(read_toml(file, text)).read(name, load)


Row = TypeVar("Row", Value, Line)


def _replace_rows(base: Sequence[Row], own: Sequence[Row], without: Sequence[str]) -> list[Row]:
    """Return the rows of ``base`` with those of ``own`` in the places of rows about the same thing, or at the end."""
    rows = {row.key: row for row in base if row.key not in without}
    rows.update((row.key, row) for row in own)
    return list(rows.values())


class _Reader:
    """Reads one document; each method takes the path of a value in it."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def read(self, name: str, load: Callable[[str], Recipe]) -> Recipe:
        top = self._table((), _TOP, () if "like" in self.document.values else ("family", "from", "to", "tensors"))
        if "like" in top:
            base = self._check(("like",), lambda: load(self._text(top, ("like",))))
            return self._check_shapes(self._extend(base, self._read(top, name, base), self._texts(top, ("without",))))
        if "without" in top:
            raise self._error(("without",), "without is for a recipe that is like another")
        return self._check_shapes(self._read(top, name, None))

    def _check_shapes(self, recipe: Recipe) -> Recipe:
        known = {pattern.text for line in recipe.tensors for pattern in line.targets}
        for key in self._find(("shapes",)) or ():
            if key not in known:
                raise self._error(("shapes", key), f"no line makes a tensor called {key!r}")
        return recipe

    def _extend(self, base: Recipe, own: Recipe, without: Sequence[str]) -> Recipe:
        """Return ``own`` with what it does not say from ``base``. Rows about the same thing are replaced."""
        known = {row.key for row in base.values} | {row.key for row in base.tensors}
        for at, key in enumerate(without):
            if key not in known:
                raise self._error(("without", at), f"the recipe {base.name} has nothing called {key!r}")
        return replace(
            own,
            let={**base.let, **own.let},
            counts={**base.counts, **own.counts},
            values=_replace_rows(base.values, own.values, without),
            tensors=_replace_rows(base.tensors, own.tensors, without),
            shapes={**base.shapes, **own.shapes},
            refusals=[*base.refusals, *own.refusals],
            notes=[*base.notes, *own.notes],
        )

    def _read(self, top: Mapping[str, Any], name: str, base: Recipe | None) -> Recipe:
        tokenizer = self._text(top, ("tokenizer",), base.tokenizer if base else "")
        if tokenizer and tokenizer not in _TOKENIZERS:
            known = " or ".join(_TOKENIZERS)
            raise self._error(("tokenizer",), f"the mapping of tokenizers is {known}, not {tokenizer!r}")
        counts = self._expressions(("counts",))
        lines = [self._line(("tensors", at)) for at in range(self._count(("tensors",)))]
        return Recipe(
            name=name,
            family=self._text(top, ("family",), base.family if base else None),
            title=self._text(top, ("title",), ""),
            source=self._side("from", base.source if base else None),
            target=self._side("to", base.target if base else None),
            needs=self._text(top, ("needs",), base.needs if base else ""),
            by_way_of=self._texts(top, ("by_way_of",)),
            tokenizer=tokenizer,
            let=self._expressions(("let",)),
            counts=counts,
            values=[self._value(("values", at)) for at in range(self._count(("values",)))],
            tensors=lines,
            shapes=self._expressions(("shapes",)),
            refusals=[self._refusal(("refuse", at)) for at in range(self._count(("refuse",)))],
            notes=[self._refusal(("note", at)) for at in range(self._count(("note",)))],
        )

    def _error(self, path: Path, message: str) -> ContentError:
        return self.document.error(path, message)

    def _find(self, path: Path) -> Any:
        value: Any = self.document.values
        for part in path:
            value = value[part] if isinstance(value, list) else value.get(part)  # type: ignore[index]
        return value

    def _table(self, path: Path, known: Sequence[str], required: Sequence[str] = ()) -> dict[str, Any]:
        table = self._find(path)
        if not isinstance(table, dict):
            raise self._error(path, f"{path[-1]} is a table")
        for key in table:
            if key not in known:
                raise self._error((*path, key), f"there is no key {key!r} here; there are: {', '.join(known)}")
        for key in required:
            if key not in table:
                raise self._error(path, f"the key {key!r} is missing")
        return table

    def _count(self, path: Path) -> int:
        rows = self._find(path)
        if rows is not None and not isinstance(rows, list):
            raise self._error(path, f"{path[-1]} is an array of tables")
        return len(rows or ())

    def _text(self, table: Mapping[str, Any], path: Path, default: str | None = None) -> str:
        value = table.get(str(path[-1]), default)
        if not isinstance(value, str):
            raise self._error(path, f"{path[-1]} is a text, not {value!r}")
        return value

    def _flag(self, table: Mapping[str, Any], path: Path) -> bool:
        value = table.get(str(path[-1]), False)
        if not isinstance(value, bool):
            raise self._error(path, f"{path[-1]} is true or false, not {value!r}")
        return value

    def _texts(self, table: Mapping[str, Any], path: Path) -> tuple[str, ...]:
        value = table.get(str(path[-1]), [])
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
            raise self._error(path, f"{path[-1]} is a text or a list of texts, not {value!r}")
        return tuple(texts)

    def _expression(self, table: Mapping[str, Any], path: Path) -> str:
        text = self._text(table, path, "")
        if text:
            self._check(path, lambda: check_expression(text))
        return text

    def _check(self, path: Path, parse: Callable[[], Any]) -> Any:
        try:
            return parse()
        except ContentError as error:
            raise self._error(path, str(error)) from None

    def _expressions(self, path: Path) -> dict[str, str]:
        table = self._find(path)
        if table is None:
            return {}
        if not isinstance(table, dict):
            raise self._error(path, f"{path[-1]} is a table of expressions")
        return {key: self._expression(table, (*path, key)) for key in table}

    def _side(self, name: str, base: Side | None) -> Side:
        if base is not None and self._find((name,)) is None:
            return base
        table = dict(self._table((name,), _SIDE, () if base else ("formats",)))
        if base is not None:
            table = {"formats": list(base.formats), "match": base.match, "values": base.values, "when": base.when,
                     "nested": base.nested, "by_name_only": base.by_name_only, **table}  # fmt: skip
        match = table.get("match", {})
        if not isinstance(match, dict) or not (match or table.get("when")):
            raise self._error((name, "match"), "match is a table of keys and their values; without it there is a when")
        values = self._text(table, (name, "values"), "config" if name == "from" else "metadata")
        if values not in _PLACES:
            raise self._error((name, "values"), f"values is one of {', '.join(_PLACES)}, not {values!r}")
        return Side(
            formats=self._texts(table, (name, "formats")),
            values=values,
            match=match,
            when=self._expression(table, (name, "when")),
            nested=self._flag(table, (name, "nested")),
            by_name_only=self._flag(table, (name, "by_name_only")),
        )

    def _value(self, path: Path) -> Value:
        table = self._table(path, _VALUE)
        found = Value(
            sources=self._texts(table, (*path, "from")),
            target=self._text(table, (*path, "to"), ""),
            constant=self._expression(table, (*path, "is")),
            back=self._expression(table, (*path, "back")),
            kind=self._text(table, (*path, "kind"), ""),
            default=table.get("default"),
            map=table.get("map", {}),
            optional=self._flag(table, (*path, "optional")),
            free=self._flag(table, (*path, "free")),
            when=self._expression(table, (*path, "when")),
        )
        if not isinstance(found.map, dict):
            raise self._error((*path, "map"), "map is a table of values")
        if not (found.target or found.sources):
            raise self._error(path, "a value has a key from, a key to, or both")
        if not found.sources and not found.constant:  # nothing gives its value
            raise self._error(path, "a value without from needs the key is, an expression for it")
        return found

    def _line(self, path: Path) -> Line:
        table = self._table(path, _LINE)
        sources, targets = (self._patterns(table, (*path, key)) for key in ("from", "to"))
        operations = tuple(self._operation(path, at) for at in range(len(self._texts(table, (*path, "do")))))
        make = self._text(table, (*path, "make"), "")
        line = Line(
            sources=sources,
            targets=targets,
            operations=operations,
            make=self._maker((*path, "make"), make) if make else None,
            found=table.get("found", {}),
            when=self._expression(table, (*path, "when")),
            optional=self._flag(table, (*path, "optional")),
        )
        self._check_line(path, line)
        return line

    def _check_line(self, path: Path, line: Line) -> None:
        """Raise for a line that is no way there and back."""
        if not line.sources and line.make is None:
            raise self._error(path, "a tensor has a key from, or a key make")
        if line.make is not None and (line.sources or len(line.targets) != 1 or line.targets[0].fields):
            raise self._error(path, "a tensor that is made has one name, and no source")
        if line.make is not None:
            return
        names = [name for name, _ in line.operations]
        if ("drop" in names) is bool(line.targets):
            raise self._error(path, "a tensor has a key to, unless it is dropped")
        if "drop" in names:
            return
        if any(pattern.is_open for side in (line.sources, line.targets) for pattern in side):
            self._check_open(path, line)
            return
        before, after = (
            {field for pattern in side for field in pattern.fields} for side in (line.sources, line.targets)
        )
        if before != after and not {"stack", "unstack"} & set(names):
            fields = ", ".join(sorted(f"{{{field}}}" for field in before ^ after))
            raise self._error(path, f"{fields} is on one side only, which needs the operation stack or unstack")
        if len(before ^ after) > 1 or ({"stack", "unstack"} & set(names) and len(line.sources) + len(line.targets) > 2):
            raise self._error(path, "stack and unstack join or part the tensors of one name and one placeholder")
        if "fold_norm" in names:
            if (len(line.sources), len(line.targets)) != (5, 2):
                why = "fold_norm makes a weight and a bias of a convolution's weight and its norm: 5 names become 2"
                raise self._error(path, why)
        elif (len(line.sources) > 1) is not ("concatenate" in names):
            raise self._error(path, "several tensors become one by the operation concatenate, and only by it")
        elif (len(line.targets) > 1) is not ("split" in names):
            raise self._error(path, "one tensor becomes several by the operation split, and only by it")
        for side in (line.sources, line.targets):
            if len({pattern.fields for pattern in side}) > 1:
                raise self._error(path, "the names of one side have the same placeholders")

    def _check_open(self, path: Path, line: Line) -> None:
        """Raise for a line of any text that makes new names."""
        names = [[pattern.text for pattern in side] for side in (line.sources, line.targets)]
        if names[0] != names[1] or len(names[0]) > 1 or line.operations:
            raise self._error(path, "{*} stands for any text, and is for tensors that are dropped or keep their names")

    def _patterns(self, table: Mapping[str, Any], path: Path) -> tuple[Pattern, ...]:
        texts = self._texts(table, path)
        return tuple(self._check((*path, at), partial(Pattern, text)) for at, text in enumerate(texts))

    def _operation(self, path: Path, at: int) -> Call:
        given = self._find((*path, "do"))
        text = given if isinstance(given, str) else given[at]
        place = (*path, "do", at)
        name, arguments = self._check(place, lambda: parse_call(text))
        if name not in OPERATIONS:
            raise self._error(place, f"there is no operation {name!r}; there are: {', '.join(OPERATIONS)}")
        least, most = OPERATIONS[name].arguments
        if not least <= len(arguments) <= most:
            raise self._error(place, f"{OPERATIONS[name].help}; {len(arguments)} values are given")
        return name, arguments

    def _maker(self, path: Path, text: str) -> Call:
        name, arguments = self._check(path, lambda: parse_call(text))
        if name not in MAKERS:
            raise self._error(path, f"there is no computed tensor {name!r}; there are: {', '.join(MAKERS)}")
        wanted = MAKERS[name].arguments
        if len(arguments) != len(wanted):
            raise self._error(path, f"{name}({', '.join(wanted)}); {len(arguments)} values are given")
        return name, arguments

    def _refusal(self, path: Path) -> Refusal:
        table = self._table(path, _REFUSAL, _REFUSAL)
        return Refusal(self._expression(table, (*path, "when")), self._text(table, (*path, "because")))
