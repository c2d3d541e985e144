"""``holdall info``: what a file holds, on one screen."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from holdall.cli.options import FILE, Reading, each_file, first_error, reading
from holdall.cli.output import emit, emit_json, heading, pairs, table, width
from holdall.cli.text import (
    brief,
    clean,
    count_text,
    percent,
    plain,
    plural,
    shape_text,
    shorten,
    size_text,
    value_text,
)

if TYPE_CHECKING:
    from holdall.examine import Examination
    from holdall.model import Model

__all__ = ["info"]

_LARGEST = 5  # tensors shown
_ENTRIES = 20  # metadata entries, size variables and assets shown


@click.command(epilog="Example: holdall info model.oinf")
@click.argument("files", nargs=-1, required=True, type=FILE)
@reading
def info(files: tuple[str, ...], reading: Reading) -> None:
    """Show format, size, tensors, dtypes, metadata and problems of each FILE. Reads no payload."""

    def act(path: str, number: int) -> bool:
        with reading.examine(path) as seen:
            if seen.model is None:
                raise first_error(seen)
            if reading.json:
                emit_json(_facts(seen, seen.model))
            else:
                if number:
                    click.echo()
                _show(seen, seen.model)
            return seen.report.ok

    each_file(files, act)


def _size(model: Model) -> int:
    return sum(source.size for source in model.sources)


def _facts(seen: Examination, model: Model) -> dict[str, Any]:
    totals = model.tensors.totals()
    largest = [model.tensors[row] for row in model.tensors.largest(_LARGEST)]
    counts = Counter(finding.severity for finding in seen.report.findings)
    return {
        "path": seen.source.name,
        "format": model.format,
        "version": list(model.version),
        "size": _size(model),
        "files": len(model.sources),
        "tensors": len(model.tensors),
        "parameters": sum(total.elements for total in totals.values()),
        "nbytes": sum(total.nbytes for total in totals.values()),
        "dtypes": [
            {"dtype": name, "tensors": t.tensors, "parameters": t.elements, "nbytes": t.nbytes}
            for name, t in totals.items()
        ],
        "sizevars": dict(model.sizevars),
        "metadata": {key: plain(value) for key, value in model.metadata.items()},
        "assets": {name: _asset_size(model, name) for name in model.assets},
        "largest": [
            {"name": t.name, "dtype": str(t.dtype), "shape": list(t.shape), "nbytes": t.nbytes} for t in largest
        ],
        "problems": {severity: counts[severity] for severity in ("error", "warning", "note")},
    }


def _asset_size(model: Model, name: str) -> int | None:
    """Bytes of an asset; None for one that cannot be opened, such as a link that leads out of the folder."""
    from holdall.errors import HoldallError

    try:
        return model.assets.payload(name).size
    except (HoldallError, OSError):
        return None


def _show(seen: Examination, model: Model) -> None:
    totals = model.tensors.totals()
    parameters = sum(total.elements for total in totals.values())
    nbytes = sum(total.nbytes for total in totals.values())
    version = ".".join(map(str, model.version))
    title = seen.format.title if seen.format is not None else ""
    heading(clean(seen.source.name))
    pairs(
        [
            ("format", f"{model.format} {version}".strip() + f"  {title}"),
            ("size", _size_line(model)),
            ("tensors", f"{len(model.tensors):,} holding {size_text(nbytes)}"),
            ("parameters", f"{count_text(parameters)} ({parameters:,})" if parameters >= 1000 else str(parameters)),
        ]
    )
    if totals:
        rows = (
            (name, f"{t.tensors:,}", count_text(t.elements), size_text(t.nbytes), percent(t.nbytes, nbytes))
            for name, t in totals.items()
        )
        click.echo()
        table(("dtype", "tensors", "parameters", "bytes", "share"), rows,
              right=("tensors", "parameters", "bytes", "share"), indent="  ")  # fmt: skip
    room = max(20, width() - 40)
    _section("size variables", {name: str(value) for name, value in model.sizevars.items()})
    _section("metadata", {key: value_text(model.metadata[key], room) for key in _first(model.metadata)},
             len(model.metadata))  # fmt: skip
    sizes = {name: _asset_size(model, name) for name in model.assets}
    _section("assets", {n: "cannot be read" if size is None else size_text(size) for n, size in sizes.items()})
    largest = [model.tensors[row] for row in model.tensors.largest(_LARGEST)]
    if any(tensor.nbytes for tensor in largest):
        click.echo()
        cells = ((shorten(t.name, 60), str(t.dtype), shape_text(t.shape, 6), size_text(t.nbytes)) for t in largest)
        table(("largest tensors", "dtype", "shape", "bytes"), cells, right=("bytes",), indent="  ")
    _problems(seen)


def _size_line(model: Model) -> str:
    size = _size(model)
    exact = f" ({size:,} bytes)" if size >= 1000 else ""
    return f"{size_text(size)}{exact}" + (f" in {len(model.sources)} files" if len(model.sources) > 1 else "")


def _first(names: Any) -> list[str]:
    from itertools import islice

    return list(islice(names, _ENTRIES))


def _section(title: str, rows: dict[str, str], total: int | None = None) -> None:
    if not rows:
        return
    click.echo()
    heading(f"  {title}")
    shown = _first(rows)
    pairs(((shorten(name, 32), rows[name]) for name in shown), indent="    ")
    more = (len(rows) if total is None else total) - len(shown)
    if more:
        emit([f"    … and {more:,} more (--json shows all)"])


def _problems(seen: Examination) -> None:
    findings = seen.report.findings
    click.echo()
    if not findings:
        click.echo(f"  {click.style('no problems', fg='green')} in the structure")
        return
    counts = Counter(finding.severity for finding in findings)
    text = ", ".join(
        plural(counts[severity], severity) for severity in ("error", "warning", "note") if counts[severity]
    )
    click.echo(f"  {click.style(text, fg='red')}; `holdall verify` lists them. The first:")
    click.echo(f"    {brief(findings[0].message)}")
