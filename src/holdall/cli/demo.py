"""``holdall demo``: take a small model through every format."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from holdall.base.text import clean, file_text, list_text, plural, size_text
from holdall.cli.options import LOCAL_FILE
from holdall.cli.output import echo, emit, emit_json_lines, emit_table

if TYPE_CHECKING:
    from holdall.operations.demo import FormatResult

__all__ = ["demo"]


@click.command(epilog="Example: holdall demo /tmp/holdall-demo")
@click.argument("out", required=False, type=LOCAL_FILE, metavar="[DIR]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
def demo(out: str | None, as_json: bool) -> None:
    """Write a small model in every format, read it back, verify it, compare it; convert each into each and back.

    The files stay in DIR; without DIR they are removed. Exits 1 when something is not identical.
    """
    import tempfile

    from holdall.operations.demo import convert_all, run

    with tempfile.TemporaryDirectory(prefix="holdall-demo-") as scratch:
        rows = run(out or scratch, _show_step)
        _show_step("converting each into each")
        pairs = convert_all(rows, scratch)
    if as_json:
        emit_json_lines([*map(_to_json, rows), {"conversions": asdict(pairs)}])
    else:
        _show(rows)
        echo(
            f"\nEach carried in each other and restored: {plural(pairs.exact, 'pair')} byte for byte, {pairs.refused} "
            f"refused since the target has no place for it, {len(pairs.wrong)} wrong."
        )
        emit(f"  {clean(text)}" for text in pairs.wrong)
        if out is not None:
            echo(f"\nThe files are in {file_text(out)}.")
    if pairs.wrong or not all(row.fine for row in rows):
        click.get_current_context().exit(1)


def _show_step(name: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[2K{name} …", err=True, nl=False)


def _to_json(row: FormatResult) -> dict[str, Any]:
    return {
        "format": row.format,
        "path": str(row.path),
        "size": row.size,
        "write_ms": round(row.write_ms, 3),
        "read_ms": round(row.read_ms, 3),
        "verified": row.verified,
        "identical": row.identical,
        "left_out": [{"what": what, "why": why} for what, why in row.left_out],
        "refused": row.refused,
        "wrong": row.wrong,
    }


def _show(rows: list[FormatResult]) -> None:
    if sys.stderr.isatty():
        click.echo("\r\x1b[2K", err=True, nl=False)
    cells = (
        (row.format, *(("-",) * 5), "this model")
        if row.refused is not None
        else (
            row.format, size_text(row.size), f"{row.write_ms:.1f}", f"{row.read_ms:.1f}",
            "ok" if row.verified else "NOT OK", "yes" if row.identical else "NO",
            plural(len(row.left_out), "item") if row.left_out else "-",
        )
        for row in rows
    )  # fmt: skip
    headers = ("format", "size", "write ms", "read ms", "verify", "identical", "could not hold")
    emit_table(headers, cells, right=("size", "write ms", "read ms"), prose=("could not hold",))
    for row in rows:
        emit(_format_details(row))


def _format_details(row: FormatResult) -> Iterator[str]:
    """Yield what was left out, by reason, then what went wrong."""
    by_reason: dict[str, list[str]] = {}
    for what, why in row.left_out:
        by_reason.setdefault(why, []).append(what)
    lines = [clean(f"{list_text(whats, most=3)}: {why}") for why, whats in by_reason.items()]
    if row.refused is not None:
        lines.append(f"the rest: {clean(row.refused)}")
    if lines:
        yield ""
        yield click.style(f"{row.format} could not hold", bold=True)
        yield from (f"  {line}" for line in lines)
    if row.wrong is not None:
        yield click.style(f"{row.format}: WRONG: {clean(row.wrong)}", fg="red")
