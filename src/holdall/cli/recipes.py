"""``holdall recipes``: list the recipes, and what each needs and does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdall.base.text import clean, file_text
from holdall.cli.output import echo, emit_heading, emit_json, emit_json_lines, emit_pairs, emit_table
from holdall.cli.side_files import read_side_file

if TYPE_CHECKING:
    from holdall.limits import Limits
    from holdall.recipes import Applied, Recipe

__all__ = ["applied_to_json", "read_recipe", "recipes", "show_rows"]


@click.command(epilog="Example: holdall recipes llama-gguf")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
def recipes(name: str | None, as_json: bool) -> None:
    """List the recipes of holdall convert; with NAME, or a file .toml, what that one does."""
    from holdall.recipes import load, names

    if name is not None:
        found = read_recipe(name, None)
        if isinstance(found, str):
            raise click.UsageError(f"{name} is no recipe")
        if as_json:
            emit_json(_to_json(found))
        else:
            _show(found)
        return
    every = [load(each) for each in names()]
    if as_json:
        emit_json_lines(map(_to_json, every))
        return
    rows = (
        (
            each.name,
            each.family,
            *(" ".join(side.formats) for side in (each.source, each.target)),
            each.needs,
            each.title,
        )
        for each in every
    )
    emit_table(("recipe", "family", "from", "to", "needs", "title"), rows, prose=("needs", "title"))


def read_recipe(name: str, limits: Limits | None) -> str | Recipe:
    """Return the recipe called ``name``, or that in a file; ``auto`` and ``none`` are returned unchanged."""
    from holdall.errors import UnsupportedError
    from holdall.recipes import load, parse

    if name in ("auto", "none"):
        return name
    try:
        return parse(name, read_side_file(name, limits)) if name.endswith(".toml") else load(name)
    except UnsupportedError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.UsageError(f"--recipe {file_text(name)}: {error.strerror}") from None


def show_rows(applied: Applied) -> None:
    """Print the table of names before and after, and the operations between."""
    rows = (
        (clean(", ".join(row.before)) or "-", clean(", ".join(row.after)) or "-", clean(", ".join(row.operations)))
        for row in applied.rows
    )
    emit_table(("before", "after", "operations"), rows, prose=("operations",), indent="  ")


def applied_to_json(applied: Applied) -> dict[str, Any]:
    """Return what a recipe did as a JSON object."""
    rows = [{"before": row.before, "after": row.after, "operations": row.operations} for row in applied.rows]
    return {"name": applied.recipe.name, "backwards": applied.back, "tensors": rows}


def _to_json(recipe: Recipe) -> dict[str, Any]:
    return {
        "name": recipe.name,
        "family": recipe.family,
        "title": recipe.title,
        "needs": recipe.needs,
        "from": {"formats": recipe.source.formats, "match": recipe.source.match, "when": recipe.source.when},
        "to": {"formats": recipe.target.formats, "match": recipe.target.match, "when": recipe.target.when},
        "tensors": len(recipe.tensors),
        "values": len(recipe.values),
    }


def _show(recipe: Recipe) -> None:
    emit_heading(f"{clean(recipe.name)}: {clean(recipe.title or recipe.family)}")
    pairs = [("needs", recipe.needs)]
    for word, side in (("from", recipe.source), ("to", recipe.target)):
        known = [f"{key} = {value}" for key, value in side.match.items()] + ([side.when] if side.when else [])
        pairs.append((word, f"{' or '.join(side.formats)}, if {' and '.join(known)}"))
    emit_pairs([(word, clean(text)) for word, text in pairs])
    echo()
    rows = []
    for line in recipe.tensors:
        calls = [*line.operations, *([line.make] if line.make else [])]
        words = [f"{name}({', '.join(arguments)})" if arguments else name for name, arguments in calls]
        words += ["if it is there"] * line.optional + ([f"if {line.when}"] if line.when else [])
        sides = (", ".join(pattern.text for pattern in side) or "-" for side in (line.sources, line.targets))
        rows.append(tuple(map(clean, (*sides, ", ".join(words)))))
    emit_table(("before", "after", "operations"), rows, prose=("operations",), indent="  ")
