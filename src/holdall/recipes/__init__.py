"""Recipes: what a model family is called in each world, as data. One TOML file a family and target.

>>> recipe = load("llama-gguf")
>>> recipe.family, recipe.target.formats
('Llama', ('gguf',))
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from holdall.base.text import file_text, shorten
from holdall.errors import ContentError, FormatError, UnsupportedError
from holdall.recipes.applied import Applied, Row
from holdall.recipes.apply import apply_recipe as apply_one
from holdall.recipes.apply import make_environment
from holdall.recipes.by_way import apply_by_way
from holdall.recipes.expressions import find_key
from holdall.recipes.grammar import parse_recipe
from holdall.recipes.rows import Recipe, Side

if TYPE_CHECKING:
    from holdall.model.model import Model

__all__ = ["Applied", "Recipe", "Row", "apply_recipe", "choose", "direction_of", "find_unknown"]
__all__ += ["load", "names", "parse"]

_SUFFIX = ".toml"
_LARGEST = 1 << 17  # bytes of a recipe, ten times the largest of holdall

# Formats of programs that run a model by the names in it. Other formats hold any names, with a recipe to them or not.
_RUN = ("gguf", "gptrs-checkpoint", "hf")

# The keys by which transformers, diffusers and programs for GGUF name a family. The kind of a GPTRS checkpoint is not
# one of them: people train models of their own kinds with gpt.rs, and take them elsewhere by their names.
_FAMILY_KEYS = ("model_type", "_class_name", "general.architecture")


def names() -> list[str]:
    """Return the names of the recipes that :func:`load` knows."""
    from importlib.resources import files

    return sorted(each.name.removesuffix(_SUFFIX) for each in files(__name__).iterdir() if each.name.endswith(_SUFFIX))


def load(name: str) -> Recipe:
    """Load the recipe called ``name``, or the one in the file ``name``, which ends in ``.toml``.

    Raises UnsupportedError if there is none, and ContentError with line and column for a file with an error.
    """
    if not name.endswith(_SUFFIX):
        return _load_own(name)
    try:
        with Path(name).open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise UnsupportedError(f"{file_text(name)}: {error.strerror}") from None
    return parse(name, data)


def parse(name: str, data: bytes) -> Recipe:
    """Parse the content of the file ``name`` as a recipe; raises ContentError with line and column."""
    if len(data) > _LARGEST:
        raise ContentError(f"{file_text(name)}: a recipe has at most {_LARGEST} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ContentError(f"{file_text(name)}: byte {error.start} is not UTF-8") from None
    return parse_recipe(Path(name).stem, file_text(name), text, _load_own)


@lru_cache
def _load_own(name: str) -> Recipe:
    from importlib.resources import files

    if name not in names():
        known = ", ".join(names())
        raise UnsupportedError(f"there is no recipe {name!r}; a file ends in .toml, and the recipes are: {known}")
    file = f"{name}{_SUFFIX}"
    return parse_recipe(name, file, (files(__name__) / file).read_text(encoding="utf-8"), _load_own)


def choose(model: Model, format: str) -> tuple[Recipe, bool] | None:
    """Choose the recipe for a file of ``format`` by the content of ``model``, and whether it is applied backwards.

    None if no recipe knows the model, or none leads to ``format``. Raises UnsupportedError if several do.
    """
    found = [
        (recipe, back)
        for recipe, given, back in _list_ways(model, format)
        if not given.by_name_only and (_is_known(given, model) or (not back and _find_way(recipe, model) is not None))
    ]
    if len(found) > 1:
        fitting = ", ".join(recipe.name for recipe, _ in found)
        raise UnsupportedError(f"several recipes fit the model: {fitting}; choose one by --recipe")
    return found[0] if found else None


def apply_recipe(recipe: Recipe, model: Model, format: str, *, back: bool = False) -> Applied:
    """Return ``model`` as ``recipe`` makes it for a file of ``format``; with ``back`` on the way from target to source.

    Raises ContentError that lists everything that does not fit.
    """
    way = None if back else _find_way(recipe, model)
    if way is not None:
        return apply_by_way(way, recipe, model, format)
    return apply_one(recipe, model, format, back=back)


def _find_way(recipe: Recipe, model: Model) -> Recipe | None:
    """Find the recipe by way of which ``recipe`` is reached from ``model``; None if that is not needed."""
    ways = [load(name) for name in recipe.by_way_of]
    return next((way for way in ways if model.format in way.target.formats and _is_known(way.target, model)), None)


def find_unknown(model: Model, format: str) -> str | None:
    """Say in a sentence which family ``model`` states that no recipe to a file of ``format`` fits.

    None for a model that states no family, and where no recipe leads from its world to ``format`` or no program runs
    what is written: names and values are moved there and back.

    >>> from holdall.model.metadata import Metadata
    >>> from holdall.model.model import Model
    >>> find_unknown(Model([], metadata=Metadata({"general.architecture": "opt"}), format="gguf"), "hf")[:58]
    "general.architecture is 'opt', and no recipe to hf fits it"
    """
    known: dict[str, set[str]] = {}
    stated: dict[str, str] = {}
    for _, given, _ in _list_ways(model, format) if format in _RUN else ():
        for key in [key for key in _FAMILY_KEYS if key in given.match]:
            wanted = given.match[key]
            known.setdefault(key, set()).update(wanted if isinstance(wanted, list) else [wanted])
            try:
                value = find_key(make_environment(given, model).values, key)
            except FormatError as error:  # a document that names a family, perhaps, and cannot be parsed
                return f"what it states of the model cannot be read: {error}; --recipe none moves names and values"
            if isinstance(value, str) and value:
                stated[key] = value
    if not stated:
        return None
    key, value = next(iter(stated.items()))
    families = ", ".join(sorted(known[key]))
    return (
        f"{key} is {shorten(repr(value), 60)}, and no recipe to {format} fits it: there are those for {families}; "
        "--recipe none moves names and values without one"
    )


def direction_of(recipe: Recipe, model: Model, format: str) -> bool:
    """Whether ``recipe`` is applied backwards to make a file of ``format``.

    Raises UnsupportedError if neither way leads there.
    """
    if format in recipe.target.formats and model.format not in recipe.target.formats:
        return False
    if model.format in recipe.target.formats and format not in recipe.target.formats:
        return True
    there, here = " or ".join(recipe.target.formats), " or ".join(recipe.source.formats)
    raise UnsupportedError(
        f"the recipe {recipe.name} leads to {there}, or back to {here}, not from {model.format} to {format}"
    )


def _list_ways(model: Model, format: str) -> Iterator[tuple[Recipe, Side, bool]]:
    """List the recipes that may lead from ``model`` to ``format``, with the side of the model, and whether it is back.

    On the way there the source may be any container.
    """
    for name in names():
        recipe = load(name)
        if format in recipe.target.formats:
            yield recipe, recipe.source, False
        if format in recipe.source.formats and model.format in recipe.target.formats:
            yield recipe, recipe.target, True


def _is_known(side: Side, model: Model) -> bool:
    """Whether the content of ``model`` is that of ``side``."""
    try:
        env = make_environment(side, model)
    except FormatError:  # a configuration that cannot be parsed names no family
        return False
    for key, wanted in side.match.items():
        stated = find_key(env.values, key)
        if not isinstance(stated, (str, bool, int, float)):  # an array or a table names no family
            return False
        if stated not in (wanted if isinstance(wanted, list) else [wanted]):
            return False
    return env.holds(side.when)
