"""Recipes that are reached by way of another: a GGUF file first becomes what a folder holds, and that the target."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from holdall.model.model import Model
from holdall.recipes.applied import Applied, Row
from holdall.recipes.apply import apply_recipe, make_environment, prepare, refuse_problems
from holdall.recipes.expressions import find_key
from holdall.recipes.rows import Recipe
from holdall.recipes.tensor_ops import Lost

__all__ = ["apply_by_way"]


def apply_by_way(way: Recipe, recipe: Recipe, model: Model, format: str) -> Applied:
    """Apply ``way`` backwards and then ``recipe``; what is between exists nowhere but here.

    The conditions of ``recipe`` are asked of ``model`` too, which may state what ``way`` does not carry.
    """
    given = make_environment(way.target, model)
    prepare(recipe, given)
    refuse_problems(recipe, given.problems)
    first = apply_recipe(way, model, way.source.formats[0], back=True)
    named = (find_key(given.values, value.target) for value in way.values if value.target and value.constant == "name")
    second = apply_recipe(recipe, first.model, format, name=str(next(named, None) or ""))
    own = {name: second.model.assets.payload(name) for name in second.model.assets if name in model.assets}
    return Applied(
        recipe,
        False,
        second.model.replace(assets=own),
        _join_rows(first.rows, second.rows),
        first.unplaced,
        [*replace(first, lost=Lost()).describe(), *second.notes],
        first.placed,
        first.lost.join(second.lost),
    )


def _join_rows(first: list[Row], second: list[Row]) -> list[Row]:
    """Return the rows from the names before the first recipe to those after the second."""
    origins = {name: row for row in first for name in row.after}
    rows = [row for row in first if not row.after]
    for row in second:
        sources = [origins[name] for name in row.before if name in origins]
        before = tuple(dict.fromkeys(chain.from_iterable(source.before for source in sources)))
        operations = tuple(chain.from_iterable(source.operations for source in sources))
        rows.append(Row(before, row.after, operations + row.operations))
    return rows
