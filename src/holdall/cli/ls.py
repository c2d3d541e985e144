"""``holdall ls``: list the tensors of a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import click

from holdall.base.check import figure
from holdall.base.text import (
    count_text,
    file_text,
    json_count,
    plain,
    plural,
    shape_text,
    shorten,
    size_text,
    value_text,
)
from holdall.cli.options import FILE, Reading, add_reading_options, add_threads_option, for_each_file
from holdall.cli.output import emit, emit_json_lines, emit_table, hold_back, show_progress
from holdall.errors import MissingError

if TYPE_CHECKING:
    from holdall.model.forms import Form
    from holdall.model.model import Model
    from holdall.model.table import TensorTable
    from holdall.model.tensor import Tensor
    from holdall.operations.stats import Measured, TensorStats

__all__ = ["ls"]

_NAME = 120  # letters of a name; --json has all of them
_VALUE = 2000  # letters of what the format states of a tensor, so that no file floods the screen
_DEEPEST = 32  # levels of a tree; the last one has the rest of names with more dots


_COUNTS = ("zeros", "nan")
_FIGURES = ("min", "max", "mean", "std")
_NO_STATS = ("-",) * (len(_FIGURES) + len(_COUNTS))


@click.command(epilog="Examples: holdall ls model.oinf 'layers.0.*' --sort size; holdall ls model.oinf --stats")
@click.argument("file", type=FILE)
@click.argument("globs", nargs=-1, metavar="[GLOB]...")
@click.option("--sort", type=click.Choice(["file", "name", "size", "offset", "dtype"]), default="file",
              help="The order; by size the largest come first.")  # fmt: skip
@click.option("--tree", is_flag=True, help="Group by dotted name, with totals.")
@click.option("--long", "long", is_flag=True,
              help="Exact bytes, elements, the byte after the last, and what the format states: hash, shard, flags, "
              "quantization.")  # fmt: skip
@click.option("--stats", is_flag=True, help="Read the tensors; show extremes, mean, standard deviation, zeros and NaN.")
@click.option("--logical/--stored", default=False,
              help="Show weights that are made of several tensors as one, or what is stored (default).")  # fmt: skip
@add_threads_option
@add_reading_options
def ls(
    file: str, globs: tuple[str, ...], sort: str, tree: bool, long: bool, stats: bool, logical: bool, reading: Reading
) -> None:
    """List the tensors of FILE, or those whose names match a GLOB. Reads no payload but for --stats."""

    if tree and (long or reading.json or stats):
        raise click.UsageError("--tree goes with none of --long, --json and --stats.")
    if long and stats:
        raise click.UsageError("--stats and --long do not go together; --json --stats has all.")

    def act(path: str, number: int) -> None:
        with reading.open(path) as stored:
            model = _join_weights(stored) if logical else stored
            rows = _match(model.tensors.names, globs)
            if globs and not rows:
                plain = next((glob for glob in globs if not set("*?[") & set(glob)), "")
                raise MissingError(f"no tensor matches {' '.join(map(repr, globs))}", plain, model.tensors.names)
            rows = _sort(model.tensors, rows, sort)
            if tree:
                emit(_draw_tree(model.tensors, rows))
            elif stats:
                _show_stats(path, model, rows, reading.json)
            elif reading.json:
                emit_json_lines(_to_json(tensor, model) for tensor in map(model.tensors.tensor, rows))
            else:
                _show_table(list(map(model.tensors.tensor, rows)), model, long)

    for_each_file([file], act)


def _join_weights(model: Model) -> Model:
    from holdall.packed import join_weights

    return join_weights(model)


def _match(names: Sequence[str], globs: Sequence[str]) -> Sequence[int]:
    """The rows of the names that match."""
    from fnmatch import fnmatchcase

    if not globs:
        return range(len(names))
    return [row for row, name in enumerate(names) if any(fnmatchcase(name, glob) for glob in globs)]


def _sort(table: TensorTable, rows: Sequence[int], order: str) -> Sequence[int]:
    """The rows in another order than that of the file."""
    forms = table.forms() if order in ("size", "dtype") else None

    def find_key(row: int) -> Any:
        if order == "name":
            return table.names[row]
        if forms is None:
            offset = table.tensor(row).offset
            return -1 if offset is None else offset
        return -(forms[row].size or 0) if order == "size" else str(forms[row].dtype)

    return rows if order == "file" else sorted(rows, key=find_key)


def _describe(tensor: Tensor, model: Model) -> dict[str, Any]:
    """Return what the format of ``model`` states of the tensor, as JSON can hold it."""
    from holdall.format import registry

    format = registry.find(model.format or "")
    described: dict[str, Any] = plain(format.describe_tensor(tensor))
    return {"requires_grad": tensor.requires_grad, **described} if format.holds.requires_grad else described


def _to_json(tensor: Tensor, model: Model) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": tensor.name,
        "dtype": str(tensor.dtype),
        "shape": list(tensor.shape),
        "nbytes": json_count(tensor.nbytes),
        "offset": tensor.offset,
        "elements": json_count(tensor.count),
        "has_data": tensor.has_data,
    }
    if len(model.sources) > 1:
        facts["file"] = getattr(getattr(tensor.payload, "source", None), "name", None)
    return {**facts, **_describe(tensor, model), **facts}  # in this order, and a format replaces none of the first


def _show_stats(path: str, model: Model, rows: Sequence[int], as_json: bool) -> None:
    """Print the tensors with their statistics. Only what is printed is kept of them."""
    from holdall.operations.stats import TensorStats, measure_rows

    table = model.tensors
    forms = [(str(form.dtype), shape_text(form.shape), form.size is not None) for form in table.forms().kinds]
    codes = table.forms().codes.tolist()
    wanted = None if isinstance(rows, range) else rows  # a range has all

    def measure() -> Iterator[Measured]:
        with show_progress(f"statistics of {file_text(path)}") as on_progress:
            yield from measure_rows(model, wanted, bins=0, progress=on_progress)

    def describe(found: Measured) -> tuple[str, ...]:
        dtype, shape, has_data = forms[codes[found.row]]
        shown = _format_stats(found.stats) if has_data and isinstance(found.stats, TensorStats) else _NO_STATS
        return shorten(table.names[found.row], _NAME), dtype, shape, *shown

    if as_json:
        emit_json_lines(hold_back(_stats_to_json(table.tensor(row), model, stats) for row, stats, _ in measure()))
    else:
        columns = ("name", "dtype", "shape", *_FIGURES, *_COUNTS)
        emit_table(columns, map(describe, measure()), right=(*_FIGURES, *_COUNTS))


def _stats_to_json(tensor: Tensor, model: Model, stats: TensorStats | Exception) -> dict[str, Any]:
    facts = _to_json(tensor, model)
    if isinstance(stats, Exception) or not tensor.has_data:
        return {**facts, "skipped": str(stats) if isinstance(stats, Exception) else "no data"}
    return {**facts, **{name: plain(getattr(stats, name)) for name in (*_FIGURES, "zeros", "nan", "inf")}}


def _format_stats(stats: TensorStats) -> Iterable[str]:
    figures = (stats.min, stats.max, stats.mean, stats.std)
    counts = (figure(stats.zeros), figure(stats.nan))
    return (*["-" if value is None else f"{value:.6g}" for value in figures], *counts)


def _show_table(tensors: list[Tensor], model: Model, long: bool) -> None:
    if not long:
        rows = (
            (shorten(t.name, _NAME), str(t.dtype), shape_text(t.shape),
             size_text(t.nbytes) if t.has_data else "no data", "-" if t.offset is None else f"{t.offset:#x}")
            for t in tensors
        )  # fmt: skip
        emit_table(("name", "dtype", "shape", "bytes", "offset"), rows, right=("bytes", "offset"))
        return
    stated = [_describe(tensor, model) for tensor in tensors]
    columns = list(dict.fromkeys(name for facts in stated for name in facts))
    rows_long = (
        (shorten(t.name, _NAME), str(t.dtype), shape_text(t.shape), figure(t.count),
         figure(t.nbytes) if t.has_data else "no data", "-" if t.offset is None else str(t.offset),
         "-" if t.offset is None else str(t.offset + t.nbytes),
         *(value_text(facts[name], _VALUE) if name in facts else "-" for name in columns))
        for t, facts in zip(tensors, stated, strict=True)
    )  # fmt: skip
    emit_table(("name", "dtype", "shape", "elements", "bytes", "offset", "end", *columns), rows_long,
          right=("elements", "bytes", "offset", "end"))  # fmt: skip


@dataclass(slots=True)
class _Node:
    """A dotted prefix: what is below it, added up. ``leaf`` describes the tensor of that name, if there is one."""

    tensors: int = 0
    elements: int = 0
    nbytes: int = 0
    leaf: str = ""
    below: dict[str, _Node] = field(default_factory=dict)


def _draw_tree(table: TensorTable, rows: Sequence[int]) -> Iterator[str]:
    forms, root = table.forms(), _Node()
    kinds = [(prod(form.shape), form.size or 0, _describe_leaf(form)) for form in forms.kinds]
    codes = forms.codes.tolist()
    for row in rows:
        elements, size, leaf = kinds[codes[row]]
        node = root
        for part in (None, *table.names[row].split(".", _DEEPEST)):
            if part is not None:
                parent, node = node, node.below.get(part) or _Node()
                parent.below[part] = node
            node.tensors += 1
            node.elements += elements
            node.nbytes += size
        node.leaf = leaf
    yield f"{plural(root.tensors, 'tensor')}, {count_text(root.elements)} elements, {size_text(root.nbytes)}"
    yield from _draw_branches(root, "")


def _describe_leaf(form: Form) -> str:
    size = "no data" if form.size is None else size_text(form.size)
    return f"  {form.dtype}{shape_text(form.shape)}  {size}"


def _draw_branches(node: _Node, indent: str) -> Iterator[str]:
    for number, (part, child) in enumerate(node.below.items()):
        last = number == len(node.below) - 1
        while not child.leaf and len(child.below) == 1:  # a single child continues the line
            ((tail, child),) = child.below.items()
            part = f"{part}.{tail}"
        text = f"{indent}{'└── ' if last else '├── '}{shorten(part, _NAME)}{child.leaf}"
        if child.below:
            text += f"  ({plural(child.tensors, 'tensor')}, {count_text(child.elements)}, {size_text(child.nbytes)})"
        yield text
        if child.below:
            yield from _draw_branches(child, indent + ("    " if last else "│   "))
