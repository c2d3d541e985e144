"""What commands print: tables, lines, JSON, progress. Rich is loaded only when a terminal is there to show it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import click

__all__ = ["Progress", "emit", "emit_json", "emit_json_lines", "heading", "on_terminal", "pairs", "progress"]
__all__ += ["table", "width"]

Progress = Callable[[int, int | None], None]

_RICH_ROWS = 500  # beyond this many rows a terminal gets plain columns: rich takes its time for each cell
_BATCH = 4096


def on_terminal() -> bool:
    """Whether people look at stdout."""
    return sys.stdout.isatty()


def width() -> int:
    """Columns of the terminal; a fixed number into a pipe, so that output does not depend on where it runs."""
    if not on_terminal():
        return 120
    import shutil

    return shutil.get_terminal_size((100, 24)).columns


def emit(lines: Iterable[str]) -> None:
    """Print lines, many at a time."""
    rest = iter(lines)
    while batch := list(islice(rest, _BATCH)):
        click.echo("\n".join(batch))


def emit_json(*values: Any) -> None:
    """Print JSON values, one a line, in ASCII."""
    emit_json_lines(values)


def emit_json_lines(values: Iterable[Any]) -> None:
    """Print many JSON values, one a line."""
    from json import JSONEncoder

    emit(map(JSONEncoder(separators=(",", ":"), allow_nan=False).encode, values))


def heading(text: str) -> None:
    """A line that starts a section: bold on a terminal."""
    click.echo(click.style(text, bold=True))


def pairs(rows: Iterable[tuple[str, str]], indent: str = "  ") -> None:
    """Names and values below each other."""
    listed = list(rows)
    wide = min(32, max((len(name) for name, _ in listed), default=0))
    emit(f"{indent}{click.style(name.ljust(wide), fg='cyan')}  {value}".rstrip() for name, value in listed)


def table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = (), indent: str = ""
) -> None:
    """Rows below headers; those named in ``right`` are flush right. The cells are cleaned already."""
    listed = [list(row) for row in rows]
    if on_terminal() and len(listed) <= _RICH_ROWS:
        _rich_table(headers, listed, right, indent)
        return
    widths = [max(map(len, column)) for column in zip(headers, *listed, strict=True)]
    flush = [header in right for header in headers]

    def line(cells: Sequence[str]) -> str:
        fitted = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, flush, strict=True))
        return (indent + "  ".join(fitted)).rstrip()

    emit(map(line, [headers, *listed]))


def _rich_table(headers: Sequence[str], rows: list[list[str]], right: Sequence[str], indent: str) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for number, header in enumerate(headers):
        # What a file calls its tensors must stay whole; numbers must stay on one line.
        justify = "right" if header in right else "left"
        shown.add_column(header, justify=justify, no_wrap=header in right, overflow="fold",  # type: ignore[arg-type]
                         style="cyan" if number == 0 else None)  # fmt: skip
    for row in rows:
        shown.add_row(*(Text(cell) for cell in row))  # Text: a name like "[red]" is not markup
    Console(highlight=False).print(Padding(shown, (0, 0, 0, len(indent)), expand=False))


@contextmanager
def progress(label: str, *, of: str = "bytes") -> Iterator[Progress | None]:
    """A bar on stderr while something long runs, counting bytes or things; None when nobody looks at stderr."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bar
    from rich.text import Text

    columns: list[ProgressColumn] = [TextColumn("{task.description}", markup=False), BarColumn()]
    columns += [DownloadColumn(), TransferSpeedColumn()] if of == "bytes" else [MofNCompleteColumn(), TextColumn(of)]
    with Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(str(Text(label)), total=None)

        def told(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total)

        yield told
