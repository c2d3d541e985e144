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
    json_count,
    percent,
    plain,
    plural,
    shape_text,
    shorten,
    size_text,
    value_text,
)

if TYPE_CHECKING:
    from holdall.cut import Cut
    from holdall.examine import Examination
    from holdall.model import Model
    from holdall.source import Source

__all__ = ["info"]

_LARGEST = 5  # tensors shown
_NAME = 120  # letters of a name; --json has all of them
_ENTRIES = 20  # metadata entries, size variables and assets shown


@click.command(epilog="Example: holdall info model.oinf")
@click.argument("files", nargs=-1, required=True, type=FILE)
@reading
def info(files: tuple[str, ...], reading: Reading) -> None:
    """Show format, size, tensors, dtypes, metadata and problems of each FILE. Reads no payload."""

    def act(path: str, number: int) -> bool:
        with reading.examine(path) as seen:
            cut = None if seen.report.ok else _cut(seen)
            model = seen.model if cut is None or cut.model is None else cut.model
            if reading.json:
                emit_json(_facts(seen, model, cut))
            elif seen.format is None:
                raise first_error(seen)
            else:
                if number:
                    click.echo()
                _show(seen, model, cut)
            return seen.report.ok

    each_file(files, act)


def _cut(seen: Examination) -> Cut | None:
    from holdall.cut import cut_of

    return cut_of(seen)


def _files(model: Model) -> list[Source]:
    """The files that hold the model; a folder around them is none. Assets of a folder are listed on their own."""
    return [source for source in model.sources if not source.is_folder]


def _size(seen: Examination, model: Model, cut: Cut | None) -> int:
    return seen.source.size if cut is not None else sum(source.size for source in _files(model))


def _facts(seen: Examination, model: Model | None, cut: Cut | None) -> dict[str, Any]:
    counts = Counter(finding.severity for finding in seen.report.findings)
    facts: dict[str, Any] = {"path": seen.source.name, "format": seen.report.format}
    if model is not None:
        facts |= _content(model, _size(seen, model, cut))
    else:
        facts["size"] = seen.source.size
    if cut is not None:
        facts["cut"] = {"size": cut.size, "needs": cut.needs, "whole_tensors": None if model is None else cut.whole}
    facts["problems"] = {severity: counts[severity] for severity in ("error", "warning", "note")}
    if seen.report.findings:
        from holdall.cli.verify import finding_facts

        facts["first_problem"] = finding_facts(seen.report.findings[0])
    return facts


def _content(model: Model, size: int) -> dict[str, Any]:
    totals = model.tensors.totals()
    largest = [model.tensors[row] for row in model.tensors.largest(_LARGEST)]
    return {
        "version": list(model.version),
        "size": size,
        "files": len(_files(model)),
        "tensors": len(model.tensors),
        "parameters": json_count(sum(total.elements for total in totals.values())),
        "nbytes": json_count(sum(total.nbytes for total in totals.values())),
        "dtypes": [
            {
                "dtype": name,
                "tensors": t.tensors,
                "parameters": json_count(t.elements),
                "nbytes": json_count(t.nbytes),
            }
            for name, t in totals.items()
        ],
        "sizevars": dict(model.sizevars),
        "metadata": {key: plain(value) for key, value in model.metadata.items()},
        "assets": {name: _asset_size(model, name) for name in model.assets},
        "largest": [
            {"name": t.name, "dtype": str(t.dtype), "shape": list(t.shape), "nbytes": json_count(t.nbytes)}
            for t in largest
        ],
    }


def _asset_size(model: Model, name: str) -> int | None:
    """Bytes of an asset; None for one that cannot be opened, such as a link that leads out of the folder."""
    from holdall.errors import HoldallError

    try:
        return model.assets.payload(name).size
    except (HoldallError, OSError):
        return None


def _show(seen: Examination, model: Model | None, cut: Cut | None) -> None:
    heading(clean(seen.source.name))
    if model is not None:
        _show_content(seen, model, cut)
    elif seen.format is not None:
        size = seen.source.size
        lines = [("format", f"{seen.format.name}  {seen.format.title}"), ("size", _size_line(size))]
        pairs([*lines, *([] if cut is None else _cut_lines(cut))])
    _problems(seen)


def _cut_lines(cut: Cut) -> list[tuple[str, str]]:
    here = f"{cut.size:,} of {cut.needs:,} bytes are here; the first missing one is at {cut.size:#x}"
    if cut.model is None or not len(cut.model.tensors):  # the index is beyond the cut, or damaged as well
        return [("cut short", here)]
    return [("cut short", here), ("whole", f"{cut.whole:,} of {plural(len(cut.model.tensors), 'tensor')}")]


def _show_content(seen: Examination, model: Model, cut: Cut | None) -> None:
    totals = model.tensors.totals()
    parameters = sum(total.elements for total in totals.values())
    nbytes = sum(total.nbytes for total in totals.values())
    version = ".".join(map(str, model.version))
    title = seen.format.title if seen.format is not None else ""
    pairs(
        [
            ("format", f"{model.format} {version}".strip() + f"  {title}"),
            ("size", _size_line(_size(seen, model, cut), len(_files(model)))),
            *([] if cut is None else _cut_lines(cut)),
            ("tensors", f"{len(model.tensors):,} holding {size_text(nbytes)}"),
            ("parameters", count_text(parameters) + (f" ({parameters:,})" if 1000 <= parameters < 1 << 64 else "")),
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
    _section("metadata", *_entries(model, room))
    sizes = {name: _asset_size(model, name) for name in model.assets}
    _section("assets", {n: "cannot be read" if size is None else size_text(size) for n, size in sizes.items()})
    largest = [model.tensors[row] for row in model.tensors.largest(_LARGEST)]
    if any(tensor.nbytes for tensor in largest):
        click.echo()
        cells = ((shorten(t.name, _NAME), str(t.dtype), shape_text(t.shape, 6), size_text(t.nbytes)) for t in largest)
        table(("largest tensors", "dtype", "shape", "bytes"), cells, right=("bytes",), indent="  ")


def _entries(model: Model, room: int) -> tuple[dict[str, str], int]:
    """The metadata entries to show, and how many there are; an original that is carried along is one of them."""
    rows, keys = {}, list(model.metadata)
    if any(key.startswith("holdall.") for key in keys):
        from holdall.errors import HoldallError
        from holdall.limits import DEFAULT_LIMITS
        from holdall.metadata import SKELETON, without_own
        from holdall.operations.convert.skeleton import find

        others = without_own(model.metadata)
        if len(others) < len(keys):
            size = sum(len(str(model.metadata[key])) for key in set(keys) - set(others))
            try:
                found = find(model, model.limits or DEFAULT_LIMITS)
                what = "none" if found is None else f"carries its {clean(found[0].format)} original"
            except HoldallError as error:
                what = shorten(str(error), room)
            rows[SKELETON], keys = f"{what} ({size:,} bytes)", list(others)
    total = len(rows) + len(keys)
    return rows | {key: value_text(model.metadata[key], room) for key in keys[: _ENTRIES - len(rows)]}, total


def _size_line(size: int, files: int = 1) -> str:
    exact = f" ({size:,} bytes)" if size >= 1000 else ""
    return f"{size_text(size)}{exact}" + (f" in {files} files" if files > 1 else "")


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
