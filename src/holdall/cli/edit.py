"""``holdall edit``: change metadata, names and assets of a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from holdall.base.text import clean, file_text, size_text
from holdall.cli.convert import name_values
from holdall.cli.options import FILE, Trust, add_check_option, add_threads_option, add_trust_options, naming_file
from holdall.cli.output import emit, emit_json, show_progress
from holdall.cli.secrets import hide, hide_all
from holdall.cli.side_files import read_side_file

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
@click.option(
    "--requires-grad", multiple=True, metavar="GLOB[=false]", help="Mark tensors as trained, or with =false as not."
)
@click.option("--text", is_flag=True, help="Store the values of --set as text, whatever they look like or replace.")
@click.option("--dry-run", is_flag=True, help="Write nothing; say what would change.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@add_threads_option
@add_check_option
@add_trust_options
def edit(
    file: str,
    values: tuple[str, ...],
    unset: tuple[str, ...],
    rename: tuple[str, ...],
    assets: tuple[str, ...],
    requires_grad: tuple[str, ...],
    text: bool,
    check: bool,
    dry_run: bool,
    as_json: bool,
    trust: Trust,
) -> None:
    """Edit FILE. The old file is kept until the new one is complete.

    Values that look like numbers, true, false or JSON are stored as such, others as text. If the old value was text,
    or the format holds only text, the new one is text too. A value keeps the type of the old one, and is refused if
    that type cannot hold it: --unset KEY along with --set KEY=VALUE chooses a new type, also for text.
    """
    from holdall.operations.edit import edit as run

    given = name_values(values, "--set")
    names, rules = _parse_renames(rename)
    files = name_values(assets, "--asset")
    blobs = {name: read_side_file(path, trust.limits) if path else None for name, path in files.items()}
    with naming_file(file), show_progress(f"editing {file_text(file)}") as on_progress:
        report = run(
            file,
            set=given if text else _parse_values(file, given, unset, trust),
            unset=unset,
            rename=names,
            rules=rules,
            assets=blobs,
            requires_grad=_parse_marks(requires_grad),
            keep_kinds=not text,
            check=check,
            dry_run=dry_run,
            limits=trust.limits,
            allowed=trust.allowed,
            follow=trust.follow,
            progress=on_progress,
        )
    if as_json:
        emit_json(
            {
                "path": report.path,
                "format": report.format,
                "changes": hide_all(report.changes),
                "size": report.size,
                "dry_run": dry_run,
            }
        )
        return
    size = "" if report.size is None else f", {size_text(report.size)}"
    what = ("would change" if dry_run else "changed") if report.changes else "nothing to change in"
    emit(
        [
            f"{what} {file_text(report.path)} ({report.format}{size})",
            *(f"  {clean(hide(text))}" for text in report.changes),
        ]
    )


def _parse_values(file: str, given: dict[str, str], unset: tuple[str, ...], trust: Trust) -> dict[str, Any]:
    """Parse texts as JSON values, unless the old value is text and not ``unset``, or the format holds text only."""
    from holdall.format import registry
    from holdall.operations.open_save import open_model

    if not given:
        return {}
    with open_model(file, mmap=False, limits=trust.limits, allowed=trust.allowed, follow=trust.follow) as model:
        refuses = registry.find(model.format or "").holds.refuses_metadata
        old = {key: model.metadata.get(key) for key in given if key not in unset}
    kept = {key for key, value in old.items() if isinstance(value, str)}
    return {key: text if key in kept else _parse_value(key, text, refuses) for key, text in given.items()}


def _parse_value(key: str, text: str, refuses: Callable[[str, Any], str | None]) -> Any:
    """Parse one text as JSON. It stays text if it is not JSON, or if only text can be stored."""
    import json

    try:
        value = json.loads(text)
    except ValueError:
        return text
    except RecursionError:
        raise click.BadParameter(f"--set {key}: the JSON is nested too deeply") from None
    return text if refuses(key, value) and not refuses(key, text) else value


def _parse_marks(given: tuple[str, ...]) -> dict[str, bool]:
    """Return whether the tensors of each glob are trained. Only =true and =false are no part of a name."""
    marks = {}
    for text in given:
        glob, equals, value = text.rpartition("=")
        if equals and value in ("true", "false"):
            marks[glob] = value == "true"
        else:
            marks[text] = True
    return marks


def _parse_renames(given: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    """Return exact renames, and rules. A text that could be either is a rule, unless a name could begin with it."""
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
