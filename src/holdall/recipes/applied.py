"""What a recipe made of a model, for the conversion and its report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from holdall.base.text import plural
from holdall.model.model import Model
from holdall.recipes.rows import Recipe
from holdall.recipes.tensor_ops import Lost

__all__ = ["Applied", "Row"]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of what a recipe does: names before, names after, and the operations between."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    operations: tuple[str, ...] = ()


@dataclass(slots=True)
class Applied:
    """A model as a recipe makes it, what was done for it, and the parts of the source without a place in it."""

    recipe: Recipe
    back: bool
    model: Model
    rows: list[Row] = field(default_factory=list)
    unplaced: list[tuple[str, str]] = field(default_factory=list)  # (metadata or asset, name)
    notes: list[str] = field(default_factory=list)
    placed: frozenset[str] = frozenset()  # what only the format of the source has and the recipe carries on
    lost: Lost = field(default_factory=Lost)

    def describe(self) -> list[str]:
        """Say what was done, in a few lines."""
        words = Counter(word for row in self.rows for word in row.operations if row.after or self.back)
        before, after = sum(len(row.before) for row in self.rows), sum(len(row.after) for row in self.rows)
        direction = ", applied backwards" if self.back else ""
        lines = [
            f"recipe {self.recipe.name} ({self.recipe.family}){direction}: {plural(before, 'tensor')} become {after}"
        ]
        lines += [f"{word}: {plural(count, 'tensor')}" for word, count in words.items()]
        return [*lines, *self.notes, *self.lost.describe()]
