"""``holdall info``: show what a file holds, on one screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from holdall.base.check import SEVERITIES
from holdall.base.text import (
    brief,
    clean,
    count_text,
    file_text,
    json_count,
    percent,
    plain,
    plural,
    shape_text,
    shorten,
    size_text,
    value_text,
)
from holdall.cli.options import (
    EXIT_CODES,
    FILE,
    Reading,
    add_reading_options,
    add_threads_option,
    for_each_file,
)
from holdall.cli.output import echo, emit, emit_heading, emit_json, emit_pairs, emit_table, on_terminal, width
from holdall.errors import HoldallError
from holdall.operations.overview import OTHER, count_kinds, find_duplicates, find_tied

if TYPE_CHECKING:
    from holdall.model.model import Model
    from holdall.model.table import TensorTable
    from holdall.operations.examine import Examination
    from holdall.operations.overview import KindTotals
    from holdall.operations.truncated import Truncation
    from holdall.packed.packed_weights import PackedWeights
    from holdall.source import Source

__all__ = ["info"]

_LARGEST = 5  # tensors shown
_NAME = 120  # letters of a name; --json has all of them
_ENTRIES = 20  # dtypes, metadata entries, size variables and assets shown


@click.command(epilog="Example: holdall info model.oinf")
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--duplicates", is_flag=True, help="Find tensors that are stored several times: reads payloads.")
@add_threads_option
@add_reading_options
def info(files: tuple[str, ...], duplicates: bool, reading: Reading) -> None:
    """Show format, size, tensors, kinds of layers, metadata and problems of each FILE. Reads no payload."""

    def act(path: str, number: int) -> int:
        with reading.examine(path) as seen:
            cut = None if seen.report.ok else _find_cut(seen)
            model = seen.model if cut is None or cut.model is None else cut.model
            if reading.json:
                emit_json(_to_json(seen, model, cut, duplicates))
            elif seen.format is None:
                raise seen.first_error()
            else:
                if number:
                    echo()
                _show(seen, model, cut, duplicates)
            return EXIT_CODES[seen.report.verdict]

    for_each_file(files, act)
    if on_terminal() and not reading.json:
        echo(f"\n  `holdall view {file_text(files[0])}` shows it in the browser")


def _find_cut(seen: Examination) -> Truncation | None:
    from holdall.operations.truncated import find_truncation

    return find_truncation(seen)


def _list_files(model: Model) -> list[Source]:
    """Return the files of a model. A folder is not one of them, nor are its assets, which are listed apart."""
    return [source for source in model.sources if not source.is_folder]


def _measure_size(seen: Examination, model: Model, cut: Truncation | None) -> int:
    return seen.source.size if cut is not None else sum(source.size for source in _list_files(model))


def _to_json(seen: Examination, model: Model | None, cut: Truncation | None, duplicates: bool) -> dict[str, Any]:
    counts = seen.report.counts
    facts: dict[str, Any] = {"path": seen.source.name, "format": seen.report.format}
    if model is not None:
        facts |= _content_to_json(model, _measure_size(seen, model, cut))
        native = {
            name: value if isinstance(value, str) else [dict(row) for row in value]
            for name, value in _describe(seen, model).items()
        }
        facts |= {"native": native} if native else {}
        facts |= {"duplicates": find_duplicates(model)} if duplicates and cut is None else {}
        facts["beside"] = {name: _measure_file(model, name) for name in _list_beside(seen, model)}
    else:
        facts["size"] = seen.source.size
    if cut is not None:
        facts["cut"] = {"size": cut.size, "needs": cut.needs, "whole_tensors": None if model is None else cut.whole}
    facts["problems"] = {severity: counts[severity] for severity in SEVERITIES}
    if seen.report.findings:
        from holdall.cli.verify import finding_to_json

        facts["first_problem"] = finding_to_json(seen.report.findings[0])
    return facts


def _content_to_json(model: Model, size: int) -> dict[str, Any]:
    packed, table = _find_weights(model)
    totals = table.totals()
    largest = [table[row] for row in table.largest(_LARGEST)]
    facts: dict[str, Any] = {
        "version": list(model.version),
        "size": size,
        "files": len(_list_files(model)),
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
        "assets": {name: model.assets.measure(name) for name in model.assets},
        "largest": [
            {"name": t.name, "dtype": str(t.dtype), "shape": list(t.shape), "nbytes": json_count(t.nbytes)}
            for t in largest
        ],
        "kinds": [
            {"kind": kind, "tensors": total.tensors, "parameters": json_count(total.parameters)}
            for kind, total in count_kinds(model, table).items()
        ],
        "tied": find_tied(model.tensors),
    }
    if packed is not None:
        facts["packed"] = {
            "scheme": packed.scheme.name,
            "weights": len(packed.weights),
            "bits_per_weight": round(packed.bits_per_weight, 4),
            "problems": [str(problem) for problem in packed.problems],
        }
    return facts


def _list_beside(seen: Examination, model: Model) -> list[str]:
    """List the files in the folder of a model that are no part of it."""
    return [] if seen.format is None else seen.format.unread_files(model)


def _measure_file(model: Model, name: str) -> int | None:
    """Measure a file of the folder; None where it cannot be opened, such as a link."""
    try:
        source = model.sources[0].sibling(name)
    except (HoldallError, OSError):
        return None
    with closing(source):
        return source.size


def _format_sizes(sizes: Mapping[str, int | None]) -> dict[str, str]:
    return {name: "cannot be read" if size is None else size_text(size) for name, size in sizes.items()}


def _describe(seen: Examination, model: Model) -> Mapping[str, str | Sequence[Mapping[str, Any]]]:
    return {} if seen.format is None else seen.format.describe(model)


def _show(seen: Examination, model: Model | None, cut: Truncation | None, duplicates: bool) -> None:
    emit_heading(clean(seen.source.name))
    if model is not None:
        _show_content(seen, model, cut)
        _show_groups("tied: one tensor with several names", find_tied(model.tensors))
        if duplicates and cut is None:
            _show_groups("duplicates: equal tensors that are stored several times", find_duplicates(model), "none")
        beside = _list_beside(seen, model)
        sizes = {name: _measure_file(model, name) for name in beside[:_ENTRIES]}
        _show_section("beside the weights, no part of the model", _format_sizes(sizes), len(beside))
    elif seen.format is not None:
        size = seen.source.size
        lines = [("format", f"{seen.format.name}  {seen.format.title}"), ("size", _format_size(size))]
        emit_pairs([*lines, *([] if cut is None else _cut_lines(cut))])
    _show_problems(seen)


def _cut_lines(cut: Truncation) -> list[tuple[str, str]]:
    here = f"{cut.size:,} of {cut.needs:,} bytes are here; the first missing one is at {cut.size:#x}"
    if cut.model is None or not len(cut.model.tensors):  # the index is missing or damaged too
        return [("cut short", here)]
    return [("cut short", here), ("whole", f"{cut.whole:,} of {plural(len(cut.model.tensors), 'tensor')}")]


def _show_content(seen: Examination, model: Model, cut: Truncation | None) -> None:
    packed, table = _find_weights(model)
    totals = table.totals()
    parameters = sum(total.elements for total in totals.values())
    nbytes = sum(total.nbytes for total in totals.values())
    version = ".".join(map(str, model.version))
    title = seen.format.title if seen.format is not None else ""
    emit_pairs(
        [
            ("format", f"{model.format} {version}".strip() + f"  {title}"),
            ("size", _format_size(_measure_size(seen, model, cut), len(_list_files(model)))),
            *([] if cut is None else _cut_lines(cut)),
            *((name, brief(value)) for name, value in _describe(seen, model).items() if isinstance(value, str)),
            ("tensors", f"{len(model.tensors):,} holding {size_text(nbytes)}"),
            *([] if packed is None else [("packed", clean(packed.describe()))]),
            ("parameters", count_text(parameters) + (f" ({parameters:,})" if 1000 <= parameters < 1 << 64 else "")),
        ]
    )
    if totals:
        rows = (
            (name, f"{t.tensors:,}", count_text(t.elements), size_text(t.nbytes), percent(t.nbytes, nbytes))
            for name, t in islice(totals.items(), _ENTRIES)
        )
        echo()
        emit_table(("dtype", "tensors", "parameters", "bytes", "share"), rows,
              right=("tensors", "parameters", "bytes", "share"), indent="  ")  # fmt: skip
        if len(totals) > _ENTRIES:
            emit([f"  … and {len(totals) - _ENTRIES:,} more (--json shows all)"])
    _show_kinds(count_kinds(model, table), parameters)
    room = max(20, width() - 40)
    _show_section("size variables", {name: str(value) for name, value in model.sizevars.items()})
    _show_section("metadata", *_choose_entries(model, room))
    sizes = {name: model.assets.measure(name) for name in model.assets}
    _show_section("assets", _format_sizes(sizes))
    for name, value in _describe(seen, model).items():
        if not isinstance(value, str):
            _show_rows(name, value)
    largest = [table[row] for row in table.largest(_LARGEST)]
    if any(tensor.nbytes for tensor in largest):
        echo()
        cells = ((shorten(t.name, _NAME), str(t.dtype), shape_text(t.shape, 6), size_text(t.nbytes)) for t in largest)
        emit_table(("largest tensors", "dtype", "shape", "bytes"), cells, right=("bytes",), indent="  ")


def _find_weights(model: Model) -> tuple[PackedWeights | None, TensorTable]:
    """Find packed weights, and the tensors to count: one for each weight, or all stored ones if they cannot be used."""
    from holdall.packed import find_weights

    found = find_weights(model)
    return found, model.tensors if found is None or found.problems else found.join().tensors


def _show_kinds(kinds: Mapping[str, KindTotals], parameters: int) -> None:
    """Show the kinds of layers, unless none is known."""
    if set(kinds) - {OTHER}:
        rows = (
            (kind, f"{total.tensors:,}", count_text(total.parameters), percent(total.parameters, parameters))
            for kind, total in kinds.items()
        )
        echo()
        emit_table(("layers", "tensors", "parameters", "share"), rows, right=("tensors", "parameters", "share"),
                   indent="  ")  # fmt: skip


def _show_groups(title: str, groups: list[list[str]], none: str = "") -> None:
    lines = [" = ".join(shorten(name, _NAME) for name in names[:_ENTRIES]) for names in groups[:_ENTRIES]]
    if not lines and not none:
        return
    echo()
    emit_heading(f"  {title}")
    emit(f"    {clean(line)}" for line in lines or [none])
    if len(groups) > len(lines):
        emit([f"    … and {len(groups) - len(lines):,} more (--json shows all)"])


def _choose_entries(model: Model, room: int) -> tuple[dict[str, str], int]:
    """Return the metadata entries to show, and the number of all. A carried original counts as one entry."""
    rows, keys = {}, list(model.metadata)
    if any(key.startswith("holdall.") for key in keys):
        from holdall.limits import DEFAULT_LIMITS
        from holdall.model.metadata import SKELETON, drop_carried_keys
        from holdall.operations.convert.skeleton import find_skeleton

        others = drop_carried_keys(model.metadata)
        if len(others) < len(keys):
            size = sum(len(str(model.metadata[key])) for key in set(keys) - set(others))
            try:
                found = find_skeleton(model, model.limits or DEFAULT_LIMITS)
                what = "none" if found is None else f"carries its {clean(found[0].format)} original"
            except HoldallError as error:
                what = shorten(str(error), room)
            rows[SKELETON], keys = f"{what} ({size:,} bytes)", list(others)
    total = len(rows) + len(keys)
    return rows | {key: value_text(model.metadata[key], room) for key in keys[: _ENTRIES - len(rows)]}, total


def _format_size(size: int, files: int = 1) -> str:
    exact = f" ({size:,} bytes)" if size >= 1000 else ""
    return f"{size_text(size)}{exact}" + (f" in {files} files" if files > 1 else "")


def _show_section(title: str, rows: dict[str, str], total: int | None = None) -> None:
    if not rows:
        return
    echo()
    emit_heading(f"  {title}")
    shown = list(islice(rows, _ENTRIES))
    emit_pairs(((shorten(name, 32), rows[name]) for name in shown), indent="    ")
    more = (len(rows) if total is None else total) - len(shown)
    if more:
        emit([f"    … and {more:,} more (--json shows all)"])


def _show_rows(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Show a table of what only the format states; its first column is headed by the title."""
    if not rows:
        return
    echo()
    shown = [rows[row] for row in range(min(_ENTRIES, len(rows)))]
    numbers = [key for key, value in shown[0].items() if isinstance(value, int)]
    headers = [title, *list(shown[0])[1:]]
    cells = ([_format_cell(value) for value in row.values()] for row in shown)
    emit_table(headers, cells, right=numbers, indent="  ")
    if len(rows) > len(shown):
        emit([f"  … and {len(rows) - len(shown):,} more (--json shows all)"])


def _format_cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else shorten(clean(value), _NAME)


def _show_problems(seen: Examination) -> None:
    counts, findings = seen.report.counts, seen.report.findings
    echo()
    if not counts:
        echo(f"  {click.style('no problems', fg='green')} in the structure")
        return
    text = ", ".join(plural(counts[severity], severity) for severity in SEVERITIES if counts[severity])
    first = ". The first:" if findings else ""
    echo(f"  {click.style(text, fg='red')}; `holdall verify` lists them{first}")
    emit(f"    {brief(finding.message)}" for finding in findings[:1])
