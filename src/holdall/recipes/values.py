"""The mapping of values between two worlds: configuration, metadata, and numbers that are computed of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from math import isfinite
from typing import Any

from holdall.base.moments import state_time
from holdall.base.text import shorten
from holdall.errors import ContentError
from holdall.format.hf_assets import parse_asset
from holdall.model.casts import transpose
from holdall.model.dtypes import DType
from holdall.model.equal_tensors import same_bytes
from holdall.model.metadata import Entry, same_value
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from holdall.recipes.expressions import Misuse, evaluate, find_key, require_text
from holdall.recipes.keys import set_key
from holdall.recipes.patterns import Pattern
from holdall.recipes.rows import Recipe, Value

__all__ = ["Environment", "is_same", "map_values", "map_values_back"]

_TEXT = "text:"  # begins a kind that is stored as text, such as a number in decimal
_MOST = 1 << 12  # items that are repeated: more layers than any model has
_DIGITS = 20  # of a number in decimal: more than 64 bits need is none
_WHOLE = ("u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64")


@dataclass(slots=True)
class Environment:
    """What the expressions of a recipe see: the values of a model, what ``let`` computes, and its tensors.

    ``problems`` collects everything that does not fit, so that all of it is refused at once.
    """

    values: Mapping[str, Any]
    model: Model
    facts: Mapping[str, Any] = field(default_factory=dict)  # dtype and name of the model
    let: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    places: Mapping[str, str] = field(default_factory=dict)  # of expressions, in the file of the recipe

    def evaluate(self, text: str) -> Any:
        """Return the value of an expression; raises ContentError if it has none."""
        with self.name_place(text):
            return evaluate(text, {**self.values, **self.facts, **self.let}, self._functions())

    @contextmanager
    def name_place(self, text: str) -> Iterator[None]:
        """Say of a Misuse where the expression or the operation ``text`` stands."""
        try:
            yield
        except Misuse as error:
            place = self.places.get(text)
            raise ContentError(f"{place}: {error}" if place else str(error)) from None

    def _functions(self) -> dict[str, Callable[..., Any]]:
        functions: dict[str, Callable[..., Any]] = {
            "has": self._has,
            "shape": self._shape,
            "count": self._count,
            "is_copy": self._is_copy,
            "file": self._file,
            "created_at": state_time,
            "cycle": _cycle,
            "join_ids": _join_ids,
            "len": len,
        }
        return functions

    def _has(self, name: Any) -> bool:
        return require_text(name, "the name of a tensor") in self.model

    def _shape(self, name: Any) -> list[int]:
        if not self._has(name):
            raise ContentError(f"there is no tensor {name!r} to ask for its shape")
        return list(self.model[name].shape)

    def _file(self, name: Any, key: Any) -> Any:
        document = parse_asset(self.model.assets, require_text(name, "the name of a file"))
        return find_key(document, require_text(key, "the key")) if isinstance(document, Mapping) else None

    def _count(self, pattern: Any) -> int:
        """Count the tensors whose names have the ``pattern``."""
        wanted = Pattern(require_text(pattern, "the pattern"))
        return sum(wanted.match(name) is not None for name in self.model)

    def _is_copy(self, name: Any, other: Any) -> bool:
        """Whether a tensor has the values of another, or those of another turned. It reads both."""
        if not all([self._has(name), self._has(other)]):
            return False
        first, second = self.model[name], self.model[other]
        forms = [second, transpose(second)] if isinstance(second.dtype, DType) else [second]
        return any(is_same(first, form) for form in forms)

    def holds(self, condition: str) -> bool:
        """Whether a condition holds; the empty one does."""
        try:
            return not condition or bool(self.evaluate(condition))
        except ContentError as error:
            self.report(f"the condition {error}")
            return False

    def define(self, definitions: Mapping[str, str]) -> None:
        """Compute the values of ``let``, each of which may use those before."""
        for name, text in definitions.items():
            try:
                self.let[name] = self.evaluate(text)
            except ContentError as error:
                self.report(f"{name} = {error}")
                self.let[name] = None

    def report(self, problem: str) -> None:
        """Note something that does not fit, once."""
        if problem not in self.problems:
            self.problems.append(problem)


def _cycle(items: Any, count: Any) -> list[Any]:
    """Repeat the ``items`` of a list until there are ``count``."""
    if not isinstance(items, list) or isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _MOST:
        raise Misuse(f"cycle takes a list and a number up to {_MOST}, not {items!r} and {count!r}")
    return list(islice(cycle(items), count))


def _join_ids(*ids: Any) -> int | list[int] | None:
    """Return those of the ``ids`` that are stated, each once: one alone, or a list of several.

    >>> _join_ids(2, None, 2), _join_ids(2, 7), _join_ids(None)
    (2, [2, 7], None)
    """
    found = [_fit(id, "u32") for id in dict.fromkeys(ids) if id is not None]
    return (found[0] if len(found) == 1 else found) if found else None


def map_values(recipe: Recipe, env: Environment) -> list[Entry]:
    """Return the values of the target."""
    entries = [Entry(key, _first(wanted), "string") for key, wanted in recipe.target.match.items()]
    for value in recipe.values:
        if not value.target or not env.holds(value.when):
            continue
        try:
            found = _map_value(value, env)
        except ContentError as error:
            env.report(f"{value.target}: {error}")
            continue
        if found is not None:
            kind = "string" if value.kind.startswith(_TEXT) else value.kind
            entries.append(Entry(value.target, found, kind))
        elif not value.optional:
            env.report(f"the configuration lacks {' or '.join(value.sources) or value.constant}")
    return entries


def _map_value(value: Value, env: Environment) -> Any:
    if value.constant:
        found = env.evaluate(value.constant)
    else:
        found = next((each for each in (find_key(env.values, key) for key in value.sources) if each is not None), None)
        if found is None and not any(key in env.values for key in value.sources):  # null says that there is none
            found = value.default
    if found is None:
        return None
    if value.map:
        word = _word(found)
        if word not in value.map:
            if value.optional:
                return None
            raise ContentError(f"{found!r} has no counterpart; known are {', '.join(value.map)}")
        found = value.map[word]
    return _fit(found, value.kind)


def map_values_back(recipe: Recipe, given: Environment) -> dict[str, Any]:
    """Return the values of the source, nested. ``given`` has those of the target."""
    config: dict[str, Any] = {}
    for key, wanted in recipe.source.match.items():
        set_key(config, key, _first(wanted))
    for value in recipe.values:
        if not value.sources:
            continue
        try:
            found = _map_value_back(value, given)
            if found is not None or value.null:
                set_key(config, value.sources[0], found)
                continue
        except ContentError as error:
            given.report(f"{value.sources[0]}: {error}")
            continue
        if value.target and not value.optional and not value.when and not value.back:
            given.report(f"the metadata lacks {value.target}")
    return config


def _map_value_back(value: Value, given: Environment) -> Any:
    found = _read_target(value, given)
    if value.back:
        found = given.evaluate(value.back)
        if not value.target:
            found = None if found is None else _fit(found, value.kind)
    if found is None:
        return None if value.null else value.default
    _check_storable(found)
    if value.map:
        back = {_word(new): old for old, new in reversed([*value.map.items()])}
        if _word(found) not in back and not value.optional:
            raise ContentError(f"{found!r} has no counterpart; known are {', '.join(back)}")
        word = back.get(_word(found), "")
        return {"true": True, "false": False, "": None}.get(word, word)
    return _shorten_f32(found) if value.kind.removeprefix("array:") == "f32" else found


def _read_target(value: Value, given: Environment) -> Any:
    """Return what the target states of a value, of the kind that the recipe stores; None if it states nothing."""
    stated = find_key(given.values, value.target) if value.target else None
    if stated is None:
        return None
    stated = stated.tolist() if hasattr(stated, "tolist") else stated
    try:
        return _fit(_parse_number(stated) if value.kind.startswith(_TEXT) else stated, value.kind.removeprefix(_TEXT))
    except ContentError as error:
        raise ContentError(f"{value.target} is of another kind: {error}") from None


def _check_storable(value: Any) -> None:
    """Raise ContentError for a value that JSON does not hold."""
    if isinstance(value, list):
        for item in value:
            _check_storable(item)
    elif isinstance(value, str):
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise ContentError(f"{value!r} is no text in Unicode")
    elif isinstance(value, float):
        if not isfinite(value):
            raise ContentError(f"{value!r} is no number")
    elif not (value is None or isinstance(value, (bool, int, Mapping))):
        raise ContentError(f"{value!r} is neither a text nor a number")


def find_contradictions(recipe: Recipe, env: Environment, given: Mapping[str, Any]) -> None:
    """Report the computed values of the target that are ``given`` otherwise: another model than the recipe knows."""
    for value in recipe.values:
        stated = find_key(given, value.target) if value.target else None
        if stated is None or value.free or not value.constant or not env.holds(value.when):
            continue
        try:
            expected = _map_value(value, env)
        except ContentError as error:
            env.report(f"{value.target}: {error}")
            continue
        stated = stated.tolist() if hasattr(stated, "tolist") else stated
        if value.kind == "f32":
            stated, expected = _shorten_f32(stated), expected if expected is None else _shorten_f32(expected)
        if expected is not None and not same_value(stated, expected):
            env.report(f"{value.target} is {_show(stated)}, and {value.constant} would make {expected!r} of it")


def is_same(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors have the same dtype, shape and bytes. It reads both, unless they differ before."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    one, other = first.payload, second.payload
    return one is not None and other is not None and same_bytes(one, other)


def _first(wanted: Any) -> Any:
    return wanted[0] if isinstance(wanted, list) and wanted else wanted


def _show(value: Any) -> str:
    """Spell a value that a file states, cut where it is long."""
    return shorten(repr(value), 80)


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fit(value: Any, kind: str) -> Any:
    """Return ``value`` as ``kind`` holds it; raises ContentError if it is something else."""
    if kind.startswith(_TEXT):
        return str(_fit(value, kind.removeprefix(_TEXT)))
    if kind.startswith("array:"):
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise ContentError(f"{_show(value)} is no list")
        return [_fit(item, kind.removeprefix("array:")) for item in value]
    if kind in _WHOLE:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ContentError(f"{_show(value)} is no whole number")
        low, high = (0, 1 << int(kind[1:])) if kind[0] == "u" else (-(1 << int(kind[1:]) - 1), 1 << int(kind[1:]) - 1)
        if not low <= value < high:
            raise ContentError(f"{_show(value)} is no number that {kind} holds")
    elif kind in ("f32", "f64"):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ContentError(f"{_show(value)} is no number")
        number = _round_f32(float(value)) if kind == "f32" else float(value)
        if not isfinite(number):
            raise ContentError(f"{value!r} is no number that {kind} holds")
        return number
    elif kind == "bool" and not isinstance(value, bool):
        raise ContentError(f"{_show(value)} is neither true nor false")
    elif kind == "string" and not isinstance(value, str):
        raise ContentError(f"{_show(value)} is no text")
    return value


def _parse_number(text: Any) -> int:
    """Return the whole number that ``text`` writes in decimal."""
    if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < _DIGITS:
        return int(text)
    raise ContentError(f"{text!r} is no whole number in decimal")


def _round_f32(value: float) -> float:
    """Return the number that an f32 holds of ``value``."""
    import numpy as np

    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _shorten_f32(value: Any) -> Any:
    """Return the shortest decimal number that is the same f32: 1e-05 rather than 9.999999747378752e-06."""
    import numpy as np

    if isinstance(value, list):
        return [_shorten_f32(item) for item in value]
    return float(str(np.float32(value))) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
