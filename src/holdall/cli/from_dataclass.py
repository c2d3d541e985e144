"""``holdall from-dataclass``: write a Python dataclass as an OINF file."""

from __future__ import annotations

import sys
from typing import Any

import click

from holdall.base.text import file_text, plural
from holdall.cli.options import LOCAL_FILE, NewFile, naming_file
from holdall.cli.output import echo, show_progress
from holdall.cli.side_files import read_side_json
from holdall.errors import ContentError

__all__ = ["from_dataclass"]


@click.command("from-dataclass", epilog="Example: holdall from-dataclass models.mlp:Mlp mlp.oinf --json values.json")
@click.argument("target", metavar="MODULE:OBJECT")
@click.argument("out", metavar="OUT.oinf", type=NewFile(".oinf"))
@click.option(
    "--json", "values", type=LOCAL_FILE, metavar="F", help="A JSON object whose keys set fields of the dataclass."
)
def from_dataclass(target: str, out: str, values: str | None) -> None:
    """Write a dataclass, or an instance of one, as an OINF file. The current folder is importable.

    This imports MODULE, so it runs its code.
    """
    from holdall import oinf, save

    instance = _make_instance(_find(target), _read(values), target)
    with naming_file(target if values is None else values):
        model = oinf.from_dataclass(instance)
    with show_progress(f"writing {file_text(out)}") as on_progress:
        save(out, model, format="oinf", progress=on_progress)
    echo(f"{file_text(out)}: {plural(len(model.tensors), 'tensor')}")


def _find(target: str) -> Any:
    from importlib import import_module

    module, colon, path = target.partition(":")
    if not (colon and module and path) or path.startswith("//"):
        raise click.UsageError(f"{target!r} is not MODULE:OBJECT.")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = import_module(module)
    except ImportError as error:
        raise click.UsageError(f"{target}: cannot import {module}: {error}.") from None
    except Exception as error:  # the module's own code may raise anything
        raise ContentError(f"{target}: importing {module} failed: {type(error).__name__}: {error}") from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise click.UsageError(f"{target}: {module} has no {path}.")
        found = getattr(found, name)
    return found


def _read(path: str | None) -> dict[str, Any]:
    """Read the JSON object in ``path``."""
    if path is None:
        return {}
    values = read_side_json(path, None)
    if not isinstance(values, dict):
        raise ContentError(f"{file_text(path)}: holds {type(values).__name__}, not a JSON object")
    return values


def _make_instance(found: Any, values: dict[str, Any], target: str) -> Any:
    """Return the instance to write: a new one of the class, or the given one, with ``values`` set."""
    from dataclasses import fields, is_dataclass, replace

    if not is_dataclass(found):
        raise click.UsageError(f"{target}: is not a dataclass, nor an instance of one.")
    known = {field.name for field in fields(found)}
    for name in values:
        if name not in known:
            raise ContentError(f"{target}: has no field {name!r}; its fields are: {', '.join(sorted(known))}")
    try:
        return found(**values) if isinstance(found, type) else replace(found, **values)
    except Exception as error:  # the dataclass's own code may raise anything
        raise ContentError(f"{target}: cannot be made: {type(error).__name__}: {error}") from error
