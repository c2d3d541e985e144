"""The recipe of a conversion: chosen by content or by name, and applied between the changes and the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdall.errors import UnsupportedError
from holdall.model.model import Model
from holdall.operations.convert.options import ConvertOptions
from holdall.operations.convert.overwrite import list_narrowing
from holdall.operations.convert.refusals import refuse_packed
from holdall.operations.convert.report import Loss

if TYPE_CHECKING:
    from holdall.format.base import Format
    from holdall.recipes import Applied

__all__ = ["follow_recipe", "list_lost_values", "list_unplaced"]

_NONE = "none"
_AUTO = "auto"


def follow_recipe(model: Model, target: Format, options: ConvertOptions, *, several: bool) -> Applied | None:
    """Apply the recipe that was asked for, or the one that fits the content; None if there is none.

    Files that are merged, and an original that is carried, keep what they have unless a recipe is named. A family that
    no recipe to the target knows raises UnsupportedError: nothing would run what is written.
    """
    from holdall import recipes

    if options.recipe == _NONE or (options.recipe == _AUTO and (several or options.carry)):
        return None
    if options.recipe == _AUTO:
        chosen = recipes.choose(model, target.name) if model.format != target.name else None
        if chosen is None:
            _refuse_unknown(model, target)
            return None
        refuse_packed(model, model.tensors.names)
        return recipes.apply_recipe(chosen[0], model, target.name, back=chosen[1])
    recipe = recipes.load(options.recipe) if isinstance(options.recipe, str) else options.recipe
    refuse_packed(model, model.tensors.names)
    back = recipes.direction_of(recipe, model, target.name)
    return recipes.apply_recipe(recipe, model, target.name, back=back)


def _refuse_unknown(model: Model, target: Format) -> None:
    from holdall import recipes

    unknown = recipes.find_unknown(model, target.name) if model.format != target.name else None
    if unknown is not None:
        raise UnsupportedError(unknown)


def list_lost_values(applied: Applied) -> list[str]:
    """List what the operations of the recipe lose of tensors: the way back does not make it again."""
    before, after = (Model([pair[side] for pair in applied.lost.cast]).tensors for side in (0, 1))
    return [*applied.lost.describe(), *list_narrowing(before, after)]


def list_unplaced(applied: Applied | None) -> list[Loss]:
    """List what the recipe has no place for."""
    if applied is None:
        return []
    why = f"the recipe {applied.recipe.name} has no place for it"
    losses = [Loss("metadata", name, why, "left out") for part, name in applied.unplaced if part == "metadata"]
    keys = [name for part, name in applied.unplaced if part != "metadata"]
    if keys:
        losses.append(Loss("asset", "config.json", f"{why}: {', '.join(keys)}", "changed"))
    return losses
