"""``holdall from-dataclass``: a Python dataclass as an OINF file."""

from __future__ import annotations

import sys
from typing import Any

import click

from holdall.cli.options import FILE, NewFile, about
from holdall.cli.output import progress
from holdall.cli.text import clean, plural
from holdall.errors import ContentError

__all__ = ["from_dataclass"]


@click.command("from-dataclass", epilog="Example: holdall from-dataclass models.mlp:Mlp mlp.oinf --json values.json")
@click.argument("target", metavar="MODULE:OBJECT")
@click.argument("out", metavar="OUT.oinf", type=NewFile(".oinf"))
@click.option("--json", "values", type=FILE, metavar="F", help="A JSON object whose keys set fields of the dataclass.")
def from_dataclass(target: str, out: str, values: str | None) -> None:
    """Write a dataclass, or an instance of one, as an OINF file. The current folder is importable.

    This imports MODULE, so it runs its code.
    """
    from holdall import oinf, save

    instance = _instance(_find(target), _read(values), target)
    with about(target if values is None else values):
        model = oinf.from_dataclass(instance)
    with progress(f"writing {clean(out)}") as told:
        save(out, model, format="oinf", progress=told)
    click.echo(f"{clean(out)}: {plural(len(model.tensors), 'tensor')}")


def _find(target: str) -> Any:
    from importlib import import_module

    module, colon, path = target.partition(":")
    if not (colon and module and path):
        raise click.UsageError(f"{target!r} is not MODULE:OBJECT.")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = import_module(module)
    except ImportError as error:
        raise click.UsageError(f"{target}: cannot import {module}: {error}.") from None
    except Exception as error:  # whatever the module's own code raises
        raise ContentError(f"{target}: importing {module} failed: {type(error).__name__}: {error}") from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise click.UsageError(f"{target}: {module} has no {path}.")
        found = getattr(found, name)
    return found


def _read(path: str | None) -> dict[str, Any]:
    """The JSON object in ``path``."""
    if path is None:
        return {}
    import json
    from pathlib import Path

    try:
        values = json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise ContentError(f"{path}: is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ContentError(f"{path}: holds {type(values).__name__}, not a JSON object")
    return values


def _instance(found: Any, values: dict[str, Any], target: str) -> Any:
    """The dataclass instance to write: made from the class, or the given one, with ``values`` set."""
    from dataclasses import fields, is_dataclass, replace

    if not is_dataclass(found):
        raise click.UsageError(f"{target}: is not a dataclass, nor an instance of one.")
    known = {field.name for field in fields(found)}
    for name in values:
        if name not in known:
            raise ContentError(f"{target}: has no field {name!r}; its fields are: {', '.join(sorted(known))}")
    try:
        return found(**values) if isinstance(found, type) else replace(found, **values)
    except Exception as error:  # whatever the dataclass's own code raises
        raise ContentError(f"{target}: cannot be made: {type(error).__name__}: {error}") from error
