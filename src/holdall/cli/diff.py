"""``holdall diff``: where two models differ."""

from __future__ import annotations

from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any

import click

from holdall.cli.options import FILE, NewFile, Trust, checking, trusting
from holdall.cli.output import emit, emit_json, progress, table
from holdall.cli.text import brief, clean, file_text, plain, plural, shorten, value_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdall.diff import Difference, Distance, TensorDifference

__all__ = ["diff"]

_SHOWN = 100
_NAME = 100  # letters of a name


@click.command(epilog="Example: holdall diff model.safetensors model.mcf --json")
@click.argument("a", type=FILE)
@click.argument("b", type=FILE)
@click.option("--quick", is_flag=True, help="Say only whether tensors are equal, not how far apart.")
@click.option(
    "--report", type=NewFile(".html", ".htm"), metavar="FILE.html", help="Write a page with plots of the distances."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@checking
@trusting
@click.pass_context
def diff(
    ctx: click.Context, a: str, b: str, quick: bool, report: str | None, as_json: bool, check: bool, trust: Trust
) -> None:
    """Compare A and B, whatever containers they are in. Exits 1 when they differ."""
    from holdall.diff import diff as compare

    with progress(f"comparing {file_text(a)} and {file_text(b)}") as told:
        trusted = partial(compare, limits=trust.limits, allowed=trust.allowed)
        found = trusted(a, b, measure=not quick, check=check, progress=told)
    if report is not None:
        from holdall.reports import write_difference

        write_difference(report, found)
    if as_json:
        emit_json(_facts(found))
    else:
        _show(found)
    ctx.exit(1 if found else 0)


def _show(found: Difference) -> None:
    click.echo(clean(str(found)))
    if found.tensors:
        _table(found.tensors[:_SHOWN])
    if len(found.tensors) > _SHOWN:
        click.echo(f"… and {plural(len(found.tensors) - _SHOWN, 'tensor')} more: --json lists all")
    emit(f"metadata {clean(key)}: {_value(x)} became {_value(y)}" for key, x, y in found.metadata)
    emit(f"asset {clean(name)}: {what}" for name, what in found.assets)


def _value(value: Any) -> str:
    return "nothing" if value is None else value_text(value, 60)


def _table(shown: Sequence[TensorDifference]) -> None:
    """What was measured, and no column that would be empty."""
    measured = [item.distance for item in shown if item.distance is not None]
    columns: dict[str, Callable[[Distance], str]] = {}
    if measured:
        columns = {"different": lambda d: f"{d.different:,}"}
        if any(distance.wild for distance in measured):  # not finite on one side only; they are in no other measure
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
    table(headers, [row if detailed else row[:-1] for row in rows], right=tuple(columns), prose=("detail",))


def _facts(found: Difference) -> dict[str, Any]:
    return {
        "a": found.a,
        "b": found.b,
        "different": bool(found),
        "equal_tensors": found.equal,
        "tensors": [_tensor_facts(item) for item in found.tensors],
        "metadata": [{"key": key, "a": plain(x), "b": plain(y)} for key, x, y in found.metadata],
        "assets": [{"name": name, "what": what} for name, what in found.assets],
    }


def _tensor_facts(item: TensorDifference) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": item.name, "verdict": item.verdict, "detail": item.detail}
    if item.distance is not None:
        names = ("count", "different", "wild", "max", "rmse", "snr_db", "cosine")
        values = ((name, getattr(item.distance, name)) for name in names)
        # JSON has no infinity: equal tensors have an infinite signal to noise
        facts["distance"] = {name: value if isfinite(value) else str(value) for name, value in values}
    return facts
