"""``holdall ls``: the tensors of a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from holdall.check import figure
from holdall.cli.options import FILE, Reading, each_file, reading
from holdall.cli.output import emit, emit_json_lines, table
from holdall.cli.text import count_text, json_count, plural, shape_text, shorten, size_text
from holdall.errors import MissingError

if TYPE_CHECKING:
    from holdall.model import Model
    from holdall.tensor import Tensor

__all__ = ["ls"]

_NAME = 120  # letters of a name; --json has all of them
_DEEPEST = 32  # levels of a tree; names with more dots keep the rest in one piece


@click.command(epilog="Example: holdall ls model.oinf 'layers.0.*' --sort size")
@click.argument("file", type=FILE)
@click.argument("globs", nargs=-1, metavar="[GLOB]...")
@click.option("--sort", type=click.Choice(["file", "name", "size", "offset", "dtype"]), default="file",
              help="The order; by size the largest come first.")  # fmt: skip
@click.option("--tree", is_flag=True, help="Group by dotted name, with totals.")
@click.option("--long", "long", is_flag=True, help="Exact bytes, elements and the byte after the last.")
@reading
def ls(file: str, globs: tuple[str, ...], sort: str, tree: bool, long: bool, reading: Reading) -> None:
    """List the tensors of FILE, or those whose names match a GLOB. Reads no payload."""
    if tree and (long or reading.json):
        raise click.UsageError("--tree goes with neither --long nor --json.")

    def act(path: str, number: int) -> bool:
        with reading.open(path) as model:
            tensors = _sorted(list(_matching(model, globs)), sort)
            if globs and not tensors:
                plain = next((glob for glob in globs if not set("*?[") & set(glob)), "")
                raise MissingError(
                    f"{path}: no tensor matches {' '.join(map(repr, globs))}", plain, model.tensors.names
                )
            if reading.json:
                emit_json_lines(_facts(tensor, len(model.sources) > 1) for tensor in tensors)
            elif tree:
                emit(_tree(tensors))
            else:
                _table(tensors, long)
        return True

    each_file([file], act)


def _matching(model: Model, globs: Sequence[str]) -> Iterator[Tensor]:
    """Tensor objects are made for the names that match only."""
    from fnmatch import fnmatchcase

    for row, name in enumerate(model.tensors.names):
        if not globs or any(fnmatchcase(name, glob) for glob in globs):
            yield model.tensors.tensor(row)


def _sorted(tensors: list[Tensor], order: str) -> list[Tensor]:
    match order:
        case "name":
            tensors.sort(key=lambda tensor: tensor.name)
        case "size":
            tensors.sort(key=lambda tensor: -tensor.nbytes)
        case "offset":
            tensors.sort(key=lambda tensor: -1 if tensor.offset is None else tensor.offset)
        case "dtype":
            tensors.sort(key=lambda tensor: str(tensor.dtype))
    return tensors


def _facts(tensor: Tensor, several: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": tensor.name,
        "dtype": str(tensor.dtype),
        "shape": list(tensor.shape),
        "nbytes": json_count(tensor.nbytes),
        "offset": tensor.offset,
        "elements": json_count(tensor.count),
        "has_data": tensor.has_data,
    }
    if several:
        facts["file"] = getattr(getattr(tensor.payload, "source", None), "name", None)
    return facts


def _table(tensors: list[Tensor], long: bool) -> None:
    if not long:
        rows = (
            (shorten(t.name, _NAME), str(t.dtype), shape_text(t.shape),
             size_text(t.nbytes) if t.has_data else "no data", "-" if t.offset is None else f"{t.offset:#x}")
            for t in tensors
        )  # fmt: skip
        table(("name", "dtype", "shape", "bytes", "offset"), rows, right=("bytes", "offset"))
        return
    rows_long = (
        (shorten(t.name, _NAME), str(t.dtype), shape_text(t.shape), figure(t.count),
         figure(t.nbytes) if t.has_data else "no data", "-" if t.offset is None else str(t.offset),
         "-" if t.offset is None else str(t.offset + t.nbytes))
        for t in tensors
    )  # fmt: skip
    table(("name", "dtype", "shape", "elements", "bytes", "offset", "end"), rows_long,
          right=("elements", "bytes", "offset", "end"))  # fmt: skip


@dataclass(slots=True)
class _Node:
    """A dotted prefix: what is below it, added up."""

    tensors: int = 0
    elements: int = 0
    nbytes: int = 0
    leaf: Tensor | None = None
    below: dict[str, _Node] = field(default_factory=dict)


def _tree(tensors: list[Tensor]) -> Iterator[str]:
    root = _Node()
    for tensor in tensors:
        node = root
        _add(node, tensor)
        for part in tensor.name.split(".", _DEEPEST):
            node = node.below.setdefault(part, _Node())
            _add(node, tensor)
        node.leaf = tensor
    yield f"{plural(root.tensors, 'tensor')}, {count_text(root.elements)} elements, {size_text(root.nbytes)}"
    yield from _branches(root, "")


def _add(node: _Node, tensor: Tensor) -> None:
    node.tensors += 1
    node.elements += tensor.count
    node.nbytes += tensor.nbytes


def _branches(node: _Node, indent: str) -> Iterator[str]:
    for number, (part, child) in enumerate(node.below.items()):
        last = number == len(node.below) - 1
        while child.leaf is None and len(child.below) == 1:  # one way down: no line of its own
            ((tail, child),) = child.below.items()
            part = f"{part}.{tail}"
        text = f"{indent}{'└── ' if last else '├── '}{shorten(part, _NAME)}"
        if child.leaf is not None:
            text += f"  {child.leaf.dtype}{shape_text(child.leaf.shape)}  "
            text += size_text(child.leaf.nbytes) if child.leaf.has_data else "no data"
        if child.below:
            text += f"  ({plural(child.tensors, 'tensor')}, {count_text(child.elements)}, {size_text(child.nbytes)})"
        yield text
        yield from _branches(child, indent + ("    " if last else "│   "))
