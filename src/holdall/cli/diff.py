"""``holdall diff``: show where two models differ."""

from __future__ import annotations

from functools import partial
from math import inf, isfinite, log10
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdall.base.text import brief, clean, file_text, plain, plural, shorten, value_text
from holdall.cli.options import (
    FILE,
    LOCAL_FILE,
    NewFile,
    Trust,
    add_check_option,
    add_threads_option,
    add_trust_options,
)
from holdall.cli.output import echo, emit, emit_json, emit_table, show_progress
from holdall.cli.side_files import read_side_text
from holdall.errors import ContentError
from holdall.report.diff_page import RENDERERS
from holdall.report.trace_page import RENDERERS as TRACE_RENDERERS
from holdall.report.trace_page import trace_to_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdall.limits import Limits
    from holdall.operations.diff import Difference, Distance, TensorDifference
    from holdall.operations.trace import TraceDifference

__all__ = ["diff"]

T = TypeVar("T")

_SHOWN = 100
_NAME = 100  # letters of a name
_VALUE = 60  # letters of a metadata value
_BAR = 12  # letters of a bar below the tolerance: six powers of ten


@click.command(
    epilog="Examples: holdall diff model.safetensors model.mcf --json   |   "
    "holdall diff a.gptrsten b.gptrsten --trace --tolerance 1e-5 --report steps.html"
)
@click.argument("a", type=FILE)
@click.argument("b", type=FILE)
@click.option("--quick", is_flag=True, help="Say only whether tensors are equal, not how far apart.")
@click.option("--trace", is_flag=True, help="Compare traces in execution order; name the first tensor that differs.")
@click.option("--tolerance", type=click.FloatRange(min=0), metavar="NUMBER",
              help="The largest absolute difference that --trace allows; 1e-5 unless given.")  # fmt: skip
@click.option("--order", type=LOCAL_FILE, help="A file of names, one a line, in the execution order of --trace.")
@click.option("--report", type=NewFile(*TRACE_RENDERERS), metavar="FILE.html",
              help="Write a page with plots of the distances; with --trace also .svg or .json.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@add_threads_option
@add_check_option
@add_trust_options
@click.pass_context
def diff(
    ctx: click.Context,
    a: str,
    b: str,
    quick: bool,
    trace: bool,
    tolerance: float | None,
    order: str | None,
    report: str | None,
    as_json: bool,
    check: bool,
    trust: Trust,
) -> None:
    """Compare A and B, whatever containers they are in. Exits 1 when they differ.

    With --trace they are traces of one program, compared step by step in execution order: that of --order, or of a file
    that is not sorted by name, or by the names (input, stem, blocks by number, head, logits).
    """
    if trace:
        if quick:
            raise click.UsageError("--trace measures distances, so that --quick does not go with it.")
        allowed = {"limits": trust.limits, "allowed": trust.allowed, "check": check}
        ctx.exit(
            1 if _diff_trace(a, b, 1e-5 if tolerance is None else tolerance, order, report, as_json, allowed) else 0
        )
    if tolerance is not None or order is not None:
        raise click.UsageError("--tolerance and --order go with --trace.")
    from holdall.operations.diff import diff as compare

    with show_progress(f"comparing {file_text(a)} and {file_text(b)}") as on_progress:
        trusted = partial(compare, limits=trust.limits, allowed=trust.allowed, follow=trust.follow)
        found = trusted(a, b, measure=not quick, check=check, progress=on_progress)
    _present(found, report, RENDERERS, as_json, _to_json, _show)
    ctx.exit(1 if found else 0)


def _present(
    found: T,
    report: str | None,
    renderers: Mapping[str, Callable[[T], str]],
    as_json: bool,
    to_json: Callable[[T], Any],
    show: Callable[[T], None],
) -> None:
    """Write the report that was asked for, and print what was found."""
    if report is not None:
        from holdall.report.file import write_report

        write_report(report, found, renderers)
    if as_json:
        emit_json(to_json(found))
    else:
        show(found)


def _diff_trace(
    a: str, b: str, tolerance: float, order: str | None, report: str | None, as_json: bool, opening: dict[str, Any]
) -> bool:
    """Compare two traces and show the steps. Return whether they differ."""
    from holdall.operations.trace import diff_trace

    names = None if order is None else _read_order(order, opening["limits"])
    with show_progress(f"comparing {file_text(a)} and {file_text(b)}") as on_progress:
        found = diff_trace(a, b, tolerance=tolerance, order=names, progress=on_progress, **opening)
    _present(found, report, TRACE_RENDERERS, as_json, trace_to_dict, _show_trace)
    return bool(found)


def _read_order(path: str, limits: Limits | None) -> list[str]:
    try:
        return read_side_text(path, limits).splitlines()
    except ContentError as error:
        raise click.BadParameter(str(error)) from None


def _show_trace(found: TraceDifference) -> None:
    """Print where the traces part, and the steps around it with a bar for each."""
    echo(clean(str(found)))
    first = found.first
    middle = 0 if first is None else max(0, first.number - 1 - _SHOWN // 2)
    shown = found.steps[middle : middle + _SHOWN]
    rows = [
        (str(step.number), shorten(step.name, _NAME), step.verdict, "" if step.error is None else f"{step.error:.3g}",
         _draw_bar(step.error, found.tolerance))
        for step in shown
    ]  # fmt: skip
    emit_table(("step", "tensor", "verdict", "error", "error over tolerance"), rows, right=("step", "error"))
    if len(shown) < len(found.steps):
        echo(f"… {plural(len(found.steps) - len(shown), 'step')} more: --json and --report have all")
    if found.order == "names":
        echo("the order is that of the names: these files are sorted, and --order FILE states another")


def _draw_bar(error: float | None, tolerance: float) -> str:
    """Draw an error on a scale of powers of ten: the tolerance lies in the middle, which is marked."""
    if not error:
        return "." * _BAR + "|"
    times = error / tolerance if tolerance else inf
    steps = round(2 * log10(times)) if isfinite(times) else _BAR
    length = max(1, min(2 * _BAR, _BAR + steps))
    bar = "#" * length
    return (bar + "." * _BAR)[:_BAR] + "|" + bar[_BAR:]


def _show(found: Difference) -> None:
    echo(clean(str(found)))
    if found.tensors:
        _show_table(found.tensors[:_SHOWN])
    if len(found.tensors) > _SHOWN:
        echo(f"… and {plural(len(found.tensors) - _SHOWN, 'tensor')} more: --json lists all")
    emit(f"metadata {clean(key)}: {_format_change(x, y)}" for key, x, y in found.metadata)
    emit(f"asset {clean(name)}: {what}" for name, what in found.assets)
    emit(
        f"tensor {shorten(name, _NAME)}: requires_grad {str(x).lower()} became {str(y).lower()}"
        for name, x, y in found.requires_grad[:_SHOWN]
    )
    if len(found.requires_grad) > _SHOWN:
        echo(f"… and {plural(len(found.requires_grad) - _SHOWN, 'mark')} more: --json lists all")
    emit(f"{clean(name)}: {clean(what)}" for name, what in found.native)


def _format_change(x: Any, y: Any) -> str:
    """Show what a value was and is; where both would read the same, what sets them apart."""
    old, new = _format_value(x), _format_value(y)
    if old != new:
        return f"{old} became {new}"
    if _name_kind(x) != _name_kind(y):
        return " became ".join(f"{repr(old) if isinstance(z, str) else old} ({_name_kind(z)})" for z in (x, y))
    if isinstance(x, str):
        same = next((at for at, (a, b) in enumerate(zip(x, y, strict=False)) if a != b), min(len(x), len(y)))
        return f"{old} became another text, which differs from letter {same + 1:,} on"
    old, new = shorten(repr(x), _VALUE), shorten(repr(y), _VALUE)
    return f"{old} became {new}" if old != new else f"{old} became another value, which begins alike"


def _name_kind(value: Any) -> str:
    """The kind of a value, as people call it."""
    if value is None:
        return "missing"
    if hasattr(value, "dtype"):
        return str(value.dtype)
    return {"str": "text", "dict": "mapping"}.get(type(value).__name__, type(value).__name__)


def _format_value(value: Any) -> str:
    return "nothing" if value is None else value_text(value, _VALUE)


def _show_table(shown: Sequence[TensorDifference]) -> None:
    """Print the measures, without columns that would be empty."""
    measured = [item.distance for item in shown if item.distance is not None]
    columns: dict[str, Callable[[Distance], str]] = {}
    if measured:
        columns = {"different": lambda d: f"{d.different:,}"}
        # Values that are finite on one side only are in no other measure.
        if any(distance.wild for distance in measured):
            columns["wild"] = lambda d: f"{d.wild:,}"
        columns |= {
            "max": lambda d: f"{d.max:.3g}",
            "rmse": lambda d: f"{d.rmse:.3g}",
            "snr dB": lambda d: f"{d.snr_db:.2f}",
            "cosine": lambda d: f"{d.cosine:.6f}",
        }
    rows = []
    for item in shown:
        distance = item.distance
        numbers = ["" if distance is None else text(distance) for text in columns.values()]
        rows.append([shorten(item.name, _NAME), item.verdict, *numbers, brief(item.detail)])
    detailed = any(item.detail for item in shown)
    headers = ["tensor", "verdict", *columns, *(["detail"] if detailed else [])]
    emit_table(headers, [row if detailed else row[:-1] for row in rows], right=tuple(columns), prose=("detail",))


def _to_json(found: Difference) -> dict[str, Any]:
    return {
        "a": found.a,
        "b": found.b,
        "different": bool(found),
        "equal_tensors": found.equal,
        "tensors": [_tensor_to_json(item) for item in found.tensors],
        "metadata": [{"key": key, "a": plain(x), "b": plain(y)} for key, x, y in found.metadata],
        "assets": [{"name": name, "what": what} for name, what in found.assets],
        "requires_grad": [{"name": name, "a": x, "b": y} for name, x, y in found.requires_grad],
        "native": [{"name": name, "what": what} for name, what in found.native],
    }


def _tensor_to_json(item: TensorDifference) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": item.name, "verdict": item.verdict, "detail": item.detail}
    if item.distance is not None:
        names = ("count", "different", "wild", "max", "rmse", "snr_db", "cosine")
        values = ((name, getattr(item.distance, name)) for name in names)
        # JSON has no infinity, which is the signal to noise ratio of equal tensors.
        facts["distance"] = {name: value if isfinite(value) else str(value) for name, value in values}
    return facts
