"""``holdall edit``: metadata, names and assets of a file that exists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from holdall.cli.convert import name_values
from holdall.cli.options import FILE, Trust, about, trusting
from holdall.cli.output import emit, emit_json, progress
from holdall.cli.text import clean, size_text

__all__ = ["edit"]


@click.command(epilog="Example: holdall edit model.oinf --set mode=slow --rename w1=layer.1.weight --dry-run")
@click.argument("file", type=FILE)
@click.option("--set", "values", multiple=True, metavar="KEY=VALUE", help="Add or replace a metadata entry.")
@click.option("--unset", multiple=True, metavar="KEY", help="Remove a metadata entry.")
@click.option("--rename", multiple=True, metavar="OLD=NEW", help="Rename a tensor.")
@click.option(
    "--asset", "assets", multiple=True, metavar="NAME=FILE", help="Add or replace an asset; NAME= removes it."
)
@click.option("--text", is_flag=True, help="Values of --set are text, also those that look like numbers.")
@click.option("--dry-run", is_flag=True, help="Write nothing; say what would change.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@trusting
def edit(
    file: str,
    values: tuple[str, ...],
    unset: tuple[str, ...],
    rename: tuple[str, ...],
    assets: tuple[str, ...],
    text: bool,
    dry_run: bool,
    as_json: bool,
    trust: Trust,
) -> None:
    """Change FILE: the old one stands until the new one is whole.

    Values are numbers, true, false or JSON where they look like it, else text; where the old value was text, the new
    one is text too.
    """
    from holdall.edit import edit as run

    given = name_values(values, "--set")
    blobs = {name: Path(path).read_bytes() if path else None for name, path in name_values(assets, "--asset").items()}
    with about(file), progress(f"editing {clean(file)}") as told:
        report = run(
            file,
            set={key: value if text else _value(file, key, value, trust) for key, value in given.items()},
            unset=unset,
            rename=name_values(rename, "--rename"),
            assets=blobs,
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


def _value(file: str, key: str, text: str, trust: Trust) -> Any:
    """The value that ``text`` stands for: text where it replaces a text, else JSON where it is JSON."""
    import json

    from holdall.api import open_model

    with open_model(file, mmap=False, limits=trust.limits, allowed=trust.allowed) as model:
        if isinstance(model.metadata.get(key), str):
            return text
    try:
        return json.loads(text)
    except ValueError:
        return text
