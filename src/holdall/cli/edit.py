"""``holdall edit``: metadata, names and assets of a file that exists."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from holdall.cli.convert import name_values
from holdall.cli.options import FILE, Trust, about, checking, trusting
from holdall.cli.output import emit, emit_json, progress
from holdall.cli.text import clean, size_text

__all__ = ["edit"]


@click.command(epilog="Example: holdall edit model.oinf --set mode=slow --rename w1=layer.1.weight --dry-run")
@click.argument("file", type=FILE)
@click.option("--set", "values", multiple=True, metavar="KEY=VALUE", help="Add or replace a metadata entry.")
@click.option("--unset", multiple=True, metavar="KEY", help="Remove a metadata entry.")
@click.option(
    "--rename", multiple=True, metavar="OLD=NEW", help="Rename a tensor; or s/OLD/NEW/, by regular expression."
)
@click.option(
    "--asset", "assets", multiple=True, metavar="NAME=FILE", help="Add or replace an asset; NAME= removes it."
)
@click.option("--text", is_flag=True, help="Values of --set are text, whatever they look like and replace.")
@click.option("--dry-run", is_flag=True, help="Write nothing; say what would change.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@checking
@trusting
def edit(
    file: str,
    values: tuple[str, ...],
    unset: tuple[str, ...],
    rename: tuple[str, ...],
    assets: tuple[str, ...],
    text: bool,
    check: bool,
    dry_run: bool,
    as_json: bool,
    trust: Trust,
) -> None:
    """Change FILE: the old one stands until the new one is whole.

    Values are numbers, true, false or JSON where they look like it, else text; where the old value was text, or the
    format holds nothing else, the new one is text too. A value is stored as the old one was, and refused where that
    does not hold it: --unset KEY along with --set KEY=VALUE stores it anew.
    """
    from holdall.edit import edit as run

    given = name_values(values, "--set")
    names, rules = _renames(rename)
    blobs = {name: Path(path).read_bytes() if path else None for name, path in name_values(assets, "--asset").items()}
    with about(file), progress(f"editing {clean(file)}") as told:
        report = run(
            file,
            set=given if text else _values(file, given, trust),
            unset=unset,
            rename=names,
            rules=rules,
            assets=blobs,
            keep_kinds=not text,
            check=check,
            dry_run=dry_run,
            limits=trust.limits,
            allowed=trust.allowed,
            progress=told,
        )
    if as_json:
        emit_json(
            {
                "path": report.path,
                "format": report.format,
                "changes": report.changes,
                "size": report.size,
                "dry_run": dry_run,
            }
        )
        return
    size = "" if report.size is None else f", {size_text(report.size)}"
    what = ("would change" if dry_run else "changed") if report.changes else "nothing to change in"
    emit([f"{what} {clean(report.path)} ({report.format}{size})", *(f"  {clean(text)}" for text in report.changes)])


def _values(file: str, given: dict[str, str], trust: Trust) -> dict[str, Any]:
    """The values that the texts stand for: JSON where they are, and the old value and the format allow it."""
    from holdall import registry
    from holdall.api import open_model

    if not given:
        return {}
    with open_model(file, mmap=False, limits=trust.limits, allowed=trust.allowed) as model:
        refuses = registry.find(model.format or "").holds.refuses_metadata
        old = {key: model.metadata.get(key) for key in given}
    return {key: text if isinstance(old[key], str) else _value(key, text, refuses) for key, text in given.items()}


def _value(key: str, text: str, refuses: Callable[[str, Any], str | None]) -> Any:
    """What ``text`` is as JSON; text where it is none, or where that is all that can be stored."""
    import json

    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if refuses(key, value) and not refuses(key, text) else value


def _renames(given: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    """Exact renames, and rules. What is both a rule and OLD=NEW is a rule, unless a name could begin so."""
    from holdall.errors import UnsupportedError
    from holdall.operations.convert.changes import parse_rename

    names, rules = dict[str, str](), list[str]()
    for text in given:
        old, equals, new = text.partition("=")
        try:
            parse_rename([text])
            is_rule, why = not (equals and (text[1].isalnum() or text[1] in "._-")), ""
        except UnsupportedError as error:
            is_rule, why = False, str(error)
        if is_rule:
            rules.append(text)
        elif old and equals:
            names[old] = new
        else:
            raise click.BadParameter(f"--rename takes OLD=NEW or s/OLD/NEW/: {why}")
    return names, rules
