"""Applies a recipe to a model, there or back: lazily, and with everything that does not fit refused at once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdall.base.text import list_text, plural
from holdall.errors import ContentError, FormatError, UnsupportedError
from holdall.format import registry
from holdall.format.hf_assets import find_model_name, kind_of_asset
from holdall.model.dtypes import DTYPES, DType
from holdall.model.metadata import Entry, Metadata
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from holdall.model.vocab import Vocab
from holdall.recipes.applied import Applied, Row
from holdall.recipes.expressions import describe_call
from holdall.recipes.keys import flatten_keys, is_used, list_keys, name_key, nest_keys, set_key, with_architecture
from holdall.recipes.makers import MAKERS, MOST_VALUES
from holdall.recipes.naming import Group, group_names
from holdall.recipes.rows import Line, Recipe, Side
from holdall.recipes.shapes import StatedShapes
from holdall.recipes.tensor_ops import OPERATIONS, How, Lost
from holdall.recipes.tokenizers import (
    VOCAB_FILE,
    list_stated_ids,
    tokenizer_from_gguf,
    tokenizer_from_vocab,
    tokenizer_to_gguf,
)
from holdall.recipes.values import Environment, find_contradictions, is_same, map_values, map_values_back

__all__ = ["apply_recipe", "make_environment", "prepare", "refuse_problems"]

_CONFIG = "config.json"
_TOKENIZER = ("tokenizer", "vocabulary", "chat template")
_SIZES = "sizevars."  # begins the targets of size variables
_SHOWN = 50  # problems of one refusal
_NAMED = 5  # tensors of one sentence


def refuse_problems(recipe: Recipe, problems: Sequence[str], *, back: bool = False) -> None:
    """Raise ContentError that lists the ``problems``, if there are any."""
    if problems:
        way = " backwards" if back else ""
        raise ContentError(
            f"the recipe {recipe.name}{way} does not fit, {plural(len(problems), 'thing')}: "
            f"{list_text(problems, '; ', _SHOWN)}. --recipe none converts without one"
        )


def prepare(recipe: Recipe, env: Environment) -> None:
    """Compute what the recipe defines, and collect what it refuses."""
    env.define(recipe.let)
    for refusal in recipe.refusals:
        if env.holds(refusal.when):
            env.report(refusal.because)


def values_of(side: Side, model: Model) -> Mapping[str, Any]:
    """The values of ``model`` by which it is known in the world of ``side``."""
    if side.values == "metadata":
        sizes = {"sizevars": model.sizevars} if model.sizevars else {}
        return with_architecture({**model.metadata, **sizes})
    config = model.config
    return config if isinstance(config, Mapping) else {}


def make_environment(
    side: Side, model: Model, facts: Mapping[str, Any] | None = None, places: Mapping[str, str] | None = None
) -> Environment:
    """Return what expressions see of ``model``, whose values are those of ``side``."""
    return Environment(values_of(side, model), model, facts or {}, places=places or {})


def apply_recipe(recipe: Recipe, model: Model, format: str, *, back: bool = False, name: str = "") -> Applied:
    """Return ``model`` as ``recipe`` makes it for a file of ``format``; with ``back`` on the way from target to source.

    ``name`` is what the model is called, if not as it states itself. Raises ContentError that lists everything that
    does not fit.
    """
    return (_Back if back else _There)(recipe, model, format, name).run()


class _Way:
    """What both directions do."""

    back = False

    def __init__(self, recipe: Recipe, model: Model, format: str, name: str = "") -> None:
        self.recipe, self.model, self.format = recipe, model, format
        self.given = recipe.target if self.back else recipe.source
        self.wanted = recipe.source if self.back else recipe.target
        self.main = _find_main_dtype(model)
        name = name or find_model_name(model) or "model"
        facts = {"dtype": self.main, "name": name, "tokens": _count_tokens(recipe, model)}
        self.env = make_environment(self.given, model, facts, recipe.places)
        self.rows: list[Row] = []
        self.tensors: list[Tensor] = []
        self.notes: list[str] = []
        self.lost = Lost()

    def run(self) -> Applied:
        raise NotImplementedError

    def _change_tensors(self) -> None:
        counts = {}
        for name, text in self.recipe.counts.items():
            try:
                count = self.env.evaluate(text)
            except ContentError as error:
                self.env.report(f"{name}: {error}")
                continue
            if isinstance(count, int) and not isinstance(count, bool) and count >= 0:
                counts[name] = count
            else:
                self.env.report(f"{text} is {count!r}, and should be the number of {{{name}}}")
        lines = [line for line in self.recipe.tensors if self.env.holds(line.when)]
        groups = group_names(lines, self.model.tensors.names, counts, self.env.problems, back=self.back)
        shapes = StatedShapes(self.recipe, self.env)
        for group in sorted(groups, key=lambda group: group.line.is_duplicate):  # a copy is compared with its original
            try:
                self._change_group(group, shapes)
            except ContentError as error:
                self.env.report(str(error))
        if self.wanted.types and not self.back:
            self._check_types(self.wanted.types)

    def _check_types(self, types: Sequence[str]) -> None:
        """Report tensors of plain types that the programs of the target do not read."""
        others = [each for each in self.tensors if isinstance(each.dtype, DType) and each.dtype.name not in types]
        if others:
            found = list_text(sorted({str(each.dtype) for each in others}))
            names = list_text([each.name for each in others], most=_NAMED)
            self.env.report(
                f"{plural(len(others), 'tensor')} of {found}, and the programs that read {self.format} know "
                f"{list_text(types)} (--cast f32 makes one of these): {names}"
            )

    def _change_group(self, group: Group, shapes: StatedShapes) -> None:
        line = group.line
        if line.make is not None:
            return  # its numbers were found before
        tensors = [self.model[name] for name in group.inputs]
        if not line.targets:
            self.lost.left_out += group.inputs
            self.rows.append(Row(group.inputs, (), ("drop",)))
            return
        shapes.check_types(line, tensors)
        if self.back:
            shapes.check(line, tensors)
        if self.back and line.is_duplicate:
            self._check_duplicate(group, tensors[0])
            return
        tensors = self._operate(line, tensors, self.lost)
        if not self.back:
            shapes.check(line, tensors)
        names = group.list_outputs(self.back, len(tensors))
        if len(names) != len(tensors):
            raise ContentError(f"tensor {group.inputs[0]!r} becomes {len(tensors)}, and there are {len(names)} names")
        self.tensors += [tensor.replace(name=name) for tensor, name in zip(tensors, names, strict=True)]
        words = [describe_call(call) for call in line.operations]
        words = [f"undo {word}" for word in reversed(words)] if self.back else words
        self.rows.append(Row(group.inputs, tuple(names), tuple(words)))

    def _operate(self, line: Line, tensors: list[Tensor], lost: Lost, back: bool | None = None) -> list[Tensor]:
        back = self.back if back is None else back
        how = How(self.main, len(line.sources if back else line.targets), lost)
        for name, arguments in reversed(line.operations) if back else line.operations:
            operation = OPERATIONS[name]
            change = operation.back if back else operation.forward
            with self.env.name_place(describe_call((name, arguments))):
                tensors = change(tensors, how, *map(self.env.evaluate, arguments))
        return tensors

    def _check_duplicate(self, group: Group, copy: Tensor) -> None:
        """Drop a copy that is one; the line that takes the original comes from the same names."""
        (source,) = group.list_outputs(True, 1)
        original = next((tensor for tensor in self.tensors if tensor.name == source), None)
        if original is None:
            raise ContentError(f"tensor {copy.name!r} is a copy of {source!r}, which is not there")
        expected = self._operate(group.line, [original], Lost(), back=False)
        if len(expected) != 1 or not is_same(expected[0], copy):
            raise ContentError(f"tensor {copy.name!r} should be a copy of {source!r}, and has other values")
        self.rows.append(Row(group.inputs, (), ("undo duplicate",)))

    def _make_native(self, facets: Mapping[str, Any]) -> object:
        """Make the part of the target that holds ``facets``, if there are any."""
        native = registry.find(self.format).make_native(facets) if facets else None
        if facets and native is None:
            self.env.report(f"{self.format} has no place for {' and '.join(facets)}")
        return native

    def _finish(
        self, metadata: list[Entry], assets: dict[str, Any], unplaced: list[tuple[str, str]], native: object = None
    ) -> Applied:
        refuse_problems(self.recipe, self.env.problems, back=self.back)
        model = Model(
            self.tensors,
            metadata=Metadata(metadata),
            assets=assets,
            native=native,
            format=self.format,
            sources=self.model.sources,
            origin=self.model,
        )
        model.limits, model.allowed, model.resolve_facet = (
            self.model.limits,
            self.model.allowed,
            self.model.resolve_facet,
        )
        placed = _list_carried(self.recipe) if self.back else frozenset[str]()
        notes = self.notes + self.env.notes
        return Applied(self.recipe, self.back, model, self.rows, unplaced, notes, placed, self.lost)


class _There(_Way):
    """From the source to the target."""

    def run(self) -> Applied:
        prepare(self.recipe, self.env)
        self.notes += [note.because for note in self.recipe.notes if self.env.holds(note.when)]
        entries = self._name_architecture(map_values(self.recipe, self.env))
        facets: dict[str, Any] = {}
        sizes = {entry.key.removeprefix(_SIZES): entry.value for entry in entries if entry.key.startswith(_SIZES)}
        if sizes:
            facets["sizevars"] = sizes
            entries = [entry for entry in entries if not entry.key.startswith(_SIZES)]
        if self.recipe.tokenizer == "gguf":
            entries += self._map_tokenizer(entries)
        elif self.recipe.tokenizer == "vocab" and self._has_tokenizer():
            stated = self.model.vocab
            usual = Vocab(stated.tokens).special  # files may state some of the special tokens
            facets["vocab"] = Vocab(stated.tokens, {**usual, **stated.special})
        for line in self.recipe.tensors:
            if line.make is not None and self.env.holds(line.when):
                self._make(line)
        self._change_tensors()
        native = self._make_native(facets)
        entries = nest_keys(entries) if self.wanted.nested else entries
        return self._finish(entries, self._list_assets(), self._list_unplaced(), native)

    def _name_architecture(self, entries: list[Entry]) -> list[Entry]:
        """Put the name of the architecture in the place of ``arch.`` in keys."""
        name = next((entry.value for entry in entries if entry.key == "general.architecture"), "arch")
        return [replace(entry, key=name_key(entry.key, name)) for entry in entries]

    def _has_tokenizer(self) -> bool:
        """Whether there is a tokenizer to map; without one, few programs run the model."""
        found = any(kind_of_asset(name) in _TOKENIZER for name in self.model.assets)
        if self.recipe.tokenizer == "vocab":
            found = self.model.vocab is not None
        if not found:
            what = "vocabulary" if self.recipe.tokenizer == "vocab" else "tokenizer"
            self.notes.append(f"there is no {what} in it, without which few programs run the model")
        return found

    def _map_tokenizer(self, entries: list[Entry]) -> list[Entry]:
        rows = next((entry.value for entry in entries if entry.key.endswith(".vocab_size")), None)
        try:
            if not self._has_tokenizer():
                return list_stated_ids(self.model.assets)
            made = tokenizer_to_gguf(self.model.assets, rows)
        except (ContentError, FormatError, UnsupportedError) as error:
            self.env.report(f"the tokenizer: {error}")
            return []
        self.notes += made.notes
        return list(made.entries)

    def _make(self, line: Line) -> None:
        assert line.make is not None
        name, arguments = line.make
        try:
            values = MAKERS[name].make(*map(self.env.evaluate, arguments))
        except ContentError as error:
            self.env.report(f"{line.targets[0].text}: {error}")
            return
        self.tensors.append(Tensor.of(line.targets[0].text, values))
        self.rows.append(Row((), (line.targets[0].text,), (describe_call(line.make),)))

    def _list_assets(self) -> dict[str, Any]:
        """List the assets of the source that are not mapped: the target may hold them."""
        taken = {_CONFIG} if self.given.values == "config" else set()
        if self.recipe.tokenizer == "gguf":
            taken |= {name for name in self.model.assets if kind_of_asset(name) in _TOKENIZER}
        if self.recipe.tokenizer == "vocab":
            taken.add(VOCAB_FILE)
        left = [name for name in self.model.assets if name not in taken]
        return {name: self.model.assets.payload(name) for name in left}

    def _list_unplaced(self) -> list[tuple[str, str]]:
        used = {key for value in self.recipe.values for key in value.sources} | set(self.recipe.source.match)
        part = "metadata" if self.given.values == "metadata" else _CONFIG
        return [(part, key) for key in list_keys(self.env.values) if not is_used(key, used)]


class _Back(_Way):
    """From the target to the source."""

    back = True

    def run(self) -> Applied:
        given = self.env
        config = map_values_back(self.recipe, given)
        self.env = replace(given, values=config, let={})
        for line in self.recipe.tensors:
            if line.make is not None and line.targets[0].text in self.model:
                self._find(line, config)
        prepare(self.recipe, self.env)
        find_contradictions(self.recipe, self.env, given.values)
        self._change_tensors()
        assets: dict[str, Any] = {name: self.model.assets.payload(name) for name in self.model.assets}
        entries: list[Entry] = []
        if self.wanted.values == "config":
            assets[_CONFIG] = json.dumps(config, indent=2, ensure_ascii=False).encode() + b"\n"
        else:
            entries = [
                Entry(key, value) for key, value in (config if self.wanted.nested else flatten_keys(config)).items()
            ]
        if self.recipe.tokenizer == "gguf" and "tokenizer.ggml.model" in given.values:
            assets |= self._map_tokenizer(lambda: tokenizer_from_gguf(self.model.metadata))
        if self.recipe.tokenizer == "vocab" and self.model.vocab is not None:
            assets |= self._map_tokenizer(lambda: tokenizer_from_vocab(self.model.vocab))
        return self._finish(entries, assets, self._list_unplaced(given.values))

    def _find(self, line: Line, config: dict[str, Any]) -> None:
        """Find what a computed tensor was computed from, and add it to the configuration."""
        assert line.make is not None
        name, arguments = line.make
        tensor = self.model[line.targets[0].text]
        probe = replace(self.env, let={}, problems=[], notes=[])  # what is found is not known yet
        probe.define(self.recipe.let)
        try:
            known = [probe.evaluate(argument) for argument in arguments]
            plain = tensor.ndim == 1 and tensor.dtype == DTYPES["f32"] and tensor.count <= MOST_VALUES
            found = MAKERS[name].find(tensor.numpy(), *known) if plain else None
        except ContentError as error:
            self.env.report(f"tensor {tensor.name!r}: {error}")
            return
        if found is None:
            self.env.report(f"tensor {tensor.name!r} is not one that {name} makes")
            return
        for word, key in line.found.items():
            set_key(config, key, found.get(word))
        self.rows.append(Row((tensor.name,), (), (f"undo {describe_call(line.make)}",)))

    def _map_tokenizer(self, make: Callable[[], dict[str, bytes]]) -> dict[str, bytes]:
        try:
            return make()
        except (ContentError, FormatError, UnsupportedError) as error:
            self.env.report(f"the tokenizer: {error}")
            return {}

    def _list_unplaced(self, values: Mapping[str, Any]) -> list[tuple[str, str]]:
        used = {value.target for value in self.recipe.values} | set(self.recipe.target.match)
        named = {name_key(key, str(values.get("general.architecture"))) for key in used}
        stated = [*list_keys(self.model.metadata), *(f"{_SIZES}{name}" for name in self.model.sizevars)]
        mapped = "tokenizer." if self.recipe.tokenizer == "gguf" else None
        left = [key for key in stated if not is_used(key, named)]
        return [("metadata", key) for key in left if mapped is None or not key.startswith(mapped)]


def _count_tokens(recipe: Recipe, model: Model) -> int | None:
    """Count the tokens of the vocabulary, if the recipe maps it."""
    vocab = model.vocab if recipe.tokenizer == "vocab" else None
    return None if vocab is None else len(vocab)


def _list_carried(recipe: Recipe) -> frozenset[str]:
    """The facets that ``recipe`` carries both ways."""
    sizes = ["sizevars"] if any(value.target.startswith(_SIZES) for value in recipe.values) else []
    return frozenset(sizes + (["vocab"] if recipe.tokenizer == "vocab" else []))


def _find_main_dtype(model: Model) -> str:
    """Find the dtype of most of the model's bytes."""
    sizes: Counter[str] = Counter()
    forms = model.tensors.forms()
    for form, size in zip((forms[row] for row in range(len(forms))), forms.sizes().tolist(), strict=True):
        sizes[str(form.dtype)] += size
    return sizes.most_common(1)[0][0] if sizes else ""
