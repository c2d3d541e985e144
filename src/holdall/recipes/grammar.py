"""Recipes as data: the TOML grammar, and the classes that a file of it becomes.

Every error names the file, the line and the column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from holdall.errors import ContentError, HoldallError
from holdall.model.dtypes import DTYPES
from holdall.recipes.expressions import Call, check_expression, describe_call, parse_call
from holdall.recipes.line_rules import check_line
from holdall.recipes.makers import MAKERS
from holdall.recipes.patterns import Pattern
from holdall.recipes.rows import Line, Recipe, Refusal, Side, Value
from holdall.recipes.tensor_ops import OPERATIONS
from holdall.recipes.toml_places import Document, Path, read_toml

__all__ = ["parse_recipe"]

_TOP = (
    *("family", "title", "needs", "like", "without", "by_way_of", "tokenizer", "from", "to"),
    *("let", "counts", "values", "tensors", "shapes", "refuse", "note"),
)
_SIDE = ("formats", "values", "match", "when", "nested", "by_name_only", "types")
_PLACES = ("config", "metadata")
_VALUE = ("from", "to", "is", "back", "default", "kind", "map", "optional", "free", "null", "when")
_LINE = ("from", "to", "do", "make", "found", "when", "optional")
_REFUSAL = ("when", "because")
_TOKENIZERS = ("gguf", "vocab")
_KINDS = ("", "bool", "string", "f32", "f64", "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64")
_DEEPEST_KEY = 16  # tables in each other that a dotted key leads through


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
        self.places: dict[str, str] = {}

    def read(self, name: str, load: Callable[[str], Recipe]) -> Recipe:
        top = self._table((), _TOP, () if "like" in self.document.values else ("family", "from", "to", "tensors"))
        if "like" in top:
            base = self._check(("like",), lambda: load(self._text(top, ("like",))))
            return self._check_shapes(
                self._extend(base, self._read(top, name, base, load), self._texts(top, ("without",)))
            )
        if "without" in top:
            raise self._error(("without",), "without is for a recipe that is like another")
        return self._check_shapes(self._read(top, name, None, load))

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
            places={**base.places, **own.places},
        )

    def _read(self, top: Mapping[str, Any], name: str, base: Recipe | None, load: Callable[[str], Recipe]) -> Recipe:
        tokenizer = self._text(top, ("tokenizer",), base.tokenizer if base else "")
        if tokenizer and tokenizer not in _TOKENIZERS:
            known = " or ".join(_TOKENIZERS)
            raise self._error(("tokenizer",), f"the mapping of tokenizers is {known}, not {tokenizer!r}")
        counts = self._expressions(("counts",))
        lines = [self._line(("tensors", at)) for at in range(self._count(("tensors",)))]
        by_way_of = self._texts(top, ("by_way_of",))
        for at, way in enumerate(by_way_of):
            self._check(("by_way_of", at), partial(load, way))
        return Recipe(
            name=name,
            family=self._text(top, ("family",), base.family if base else None),
            title=self._text(top, ("title",), ""),
            source=self._side("from", base.source if base else None),
            target=self._side("to", base.target if base else None),
            needs=self._text(top, ("needs",), base.needs if base else ""),
            by_way_of=by_way_of,
            tokenizer=tokenizer,
            let=self._expressions(("let",)),
            counts=counts,
            values=[self._value(("values", at)) for at in range(self._count(("values",)))],
            tensors=lines,
            shapes=self._expressions(("shapes",)),
            refusals=[self._refusal(("refuse", at)) for at in range(self._count(("refuse",)))],
            notes=[self._refusal(("note", at)) for at in range(self._count(("note",)))],
            places=self.places,
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
            self.places.setdefault(text, self.document.place(path))
        return text

    def _check(self, path: Path, parse: Callable[[], Any]) -> Any:
        try:
            return parse()
        except HoldallError as error:
            raise self._error(path, str(error)) from None

    def _expressions(self, path: Path) -> dict[str, str]:
        table = self._find(path)
        if table is None:
            return {}
        if not isinstance(table, dict):
            raise self._error(path, f"{path[-1]} is a table of expressions")
        for key, text in table.items():
            if text == "":
                raise self._error((*path, key), f"{key} has no expression")
        return {key: self._expression(table, (*path, key)) for key in table}

    def _side(self, name: str, base: Side | None) -> Side:
        if base is not None and self._find((name,)) is None:
            return base
        table = dict(self._table((name,), _SIDE, () if base else ("formats",)))
        if base is not None:
            table = {"formats": list(base.formats), "match": base.match, "values": base.values, "when": base.when,
                     "nested": base.nested, "by_name_only": base.by_name_only, "types": list(base.types),
                     **table}  # fmt: skip
        match = table.get("match", {})
        if not isinstance(match, dict) or not (match or table.get("when")):
            raise self._error((name, "match"), "match is a table of keys and their values; without it there is a when")
        for key, wanted in match.items():
            self._check_key((name, "match", key), key)
            if not _is_match(wanted):
                raise self._error((name, "match", key), f"{key} is a text, a number, true or false, or a list of these")
        values = self._text(table, (name, "values"), "config" if name == "from" else "metadata")
        if values not in _PLACES:
            raise self._error((name, "values"), f"values is one of {', '.join(_PLACES)}, not {values!r}")
        types = self._texts(table, (name, "types"))
        for each in types:
            if each not in DTYPES:
                raise self._error((name, "types"), f"there is no type {each!r}; there are: {', '.join(DTYPES)}")
        return Side(
            types=types,
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
            null=self._flag(table, (*path, "null")),
            when=self._expression(table, (*path, "when")),
        )
        if not isinstance(found.map, dict) or not all(map(_is_scalar, found.map.values())):
            raise self._error((*path, "map"), "map is a table of texts, numbers, true and false")
        if not (found.default is None or _is_scalar(found.default)):
            raise self._error((*path, "default"), "a default is a text, a number, true or false")
        if found.kind.removeprefix("array:").removeprefix("text:") not in _KINDS:
            raise self._error((*path, "kind"), f"there is no kind {found.kind!r}; there are: {', '.join(_KINDS[1:])}")
        for key in (*found.sources, found.target):
            self._check_key(path, key)
        if not (found.target or found.sources):
            raise self._error(path, "a value has a key from, a key to, or both")
        if not found.sources and not found.constant:  # nothing gives its value
            raise self._error(path, "a value without from needs the key is, an expression for it")
        return found

    def _check_key(self, path: Path, key: str) -> None:
        if key.count(".") >= _DEEPEST_KEY:
            raise self._error(path, f"a key leads through at most {_DEEPEST_KEY} tables, not {key.count('.') + 1}")

    def _line(self, path: Path) -> Line:
        table = self._table(path, _LINE)
        sources, targets = (self._patterns(table, (*path, key)) for key in ("from", "to"))
        operations = tuple(self._operation(path, at) for at in range(len(self._texts(table, (*path, "do")))))
        make = self._text(table, (*path, "make"), "")
        found = table.get("found", {})
        if not isinstance(found, dict) or not all(isinstance(key, str) for key in found.values()):
            raise self._error((*path, "found"), "found is a table of texts")
        for key in found.values():
            self._check_key((*path, "found"), key)
        line = Line(
            sources=sources,
            targets=targets,
            operations=operations,
            make=self._maker((*path, "make"), make) if make else None,
            found=found,
            when=self._expression(table, (*path, "when")),
            optional=self._flag(table, (*path, "optional")),
        )
        self._check(path, lambda: check_line(line))
        return line

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
        self._note_call(place, (name, arguments))
        return name, arguments

    def _note_call(self, path: Path, call: Call) -> None:
        """Note the place of a call and of its arguments, for mistakes that only its values show."""
        for text in (describe_call(call), *call[1]):
            self.places.setdefault(text, self.document.place(path))

    def _maker(self, path: Path, text: str) -> Call:
        name, arguments = self._check(path, lambda: parse_call(text))
        if name not in MAKERS:
            raise self._error(path, f"there is no computed tensor {name!r}; there are: {', '.join(MAKERS)}")
        wanted = MAKERS[name].arguments
        if len(arguments) != len(wanted):
            raise self._error(path, f"{name}({', '.join(wanted)}); {len(arguments)} values are given")
        self._note_call(path, (name, arguments))
        return name, arguments

    def _refusal(self, path: Path) -> Refusal:
        table = self._table(path, _REFUSAL, _REFUSAL)
        return Refusal(self._expression(table, (*path, "when")), self._text(table, (*path, "because")))


def _is_scalar(value: object) -> bool:
    """Whether a value of TOML is one of JSON, and no list or table."""
    return isinstance(value, (str, bool)) or (isinstance(value, (int, float)) and abs(value) < 1 << 64)


def _is_match(wanted: object) -> bool:
    return all(map(_is_scalar, wanted)) and bool(wanted) if isinstance(wanted, list) else _is_scalar(wanted)
