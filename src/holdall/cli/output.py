"""What commands print: tables, lines, JSON, progress. Rich is loaded only when a terminal is there to show progress."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from operator import le
from typing import Any

import click

from holdall.sizes import tuned

__all__ = ["Progress", "emit", "emit_json", "emit_json_lines", "heading", "on_terminal", "pairs", "progress"]
__all__ += ["table", "width"]

Progress = Callable[[int, int | None], None]

_NARROWEST = 16  # letters that a column of words keeps, however narrow the terminal
_HANG = "    "  # before the further lines of a row
_BATCH = tuned(4096)


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
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    prose: Sequence[str] = (),
    indent: str = "",
) -> None:
    """Rows below headers; those named in ``right`` are flush right. The cells are cleaned already.

    Nothing is ever cut. Where the terminal is too narrow, the columns named in ``prose`` are folded between words;
    where that is not enough, every row takes several lines, broken between columns.
    """
    columns = [[header, *cells] for header, *cells in zip(headers, *rows, strict=True)]
    widths = [max(map(_cells, column)) for column in columns]
    groups = [range(len(columns))]
    looked_at = on_terminal()
    if looked_at:
        least = {at: _least(columns[at]) for at, header in enumerate(headers) if header in prose}
        widths, groups = _fitting(widths, least, width() - len(indent))
    flush = [header in right for header in headers]

    def lines() -> Iterator[str]:
        for number, row in enumerate(zip(*columns, strict=True)):
            for group in groups:
                margin = indent + (_HANG if group.start else "")
                for cells in _folded(row[group.start : group.stop], widths[group.start : group.stop]):
                    fitted = [_padded(cell, widths[at], flush[at]) for cell, at in zip(cells, group, strict=True)]
                    fitted[-1] = fitted[-1].rstrip()
                    if looked_at:
                        fitted = _styled(fitted, heads=number == 0, first=group.start == 0)
                    yield (margin + "  ".join(fitted)).rstrip()

    emit(lines())


def _cells(text: str) -> int:
    """Columns that a terminal needs for ``text``: wide letters take two."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _least(column: Sequence[str]) -> int:
    """How narrow a column of words may become."""
    longest = max((len(word) for text in column for word in text.split()), default=0)
    return max(longest, min(_NARROWEST, max(map(len, column))))


def _fitting(widths: list[int], least: dict[int, int], room: int) -> tuple[list[int], list[range]]:
    """Widths that fit into ``room``, and which columns share a line. Those in ``least`` may shrink as far as that."""
    fitted = list(widths)
    excess = sum(widths) + 2 * (len(widths) - 1) - room
    for at in sorted(least, key=lambda at: -widths[at]):
        given = max(0, min(excess, widths[at] - least[at]))
        fitted[at] -= given
        excess -= given
    if excess <= 0:
        return fitted, [range(len(widths))]
    for at, narrow in least.items():  # on a line of its own a text has more room
        fitted[at] = max(narrow, min(widths[at], room - len(_HANG)))
    groups, start, used = [], 0, fitted[0]
    for at in range(1, len(fitted)):
        if used + 2 + fitted[at] > room:
            groups.append(range(start, at))
            start, used = at, len(_HANG) + fitted[at]
        else:
            used += 2 + fitted[at]
    return fitted, [*groups, range(start, len(fitted))]


def _folded(row: Sequence[str], widths: Sequence[int]) -> Iterator[Sequence[str]]:
    """The lines of a row: one, unless a column became narrower than its cell."""
    if all(map(le, map(len, row), widths)):
        yield row
        return
    from itertools import zip_longest
    from textwrap import wrap

    parts = [
        wrap(cell, wide, break_long_words=False, break_on_hyphens=False) if len(cell) > wide else [cell]
        for cell, wide in zip(row, widths, strict=True)
    ]
    yield from zip_longest(*parts, fillvalue="")


def _padded(cell: str, wide: int, right: bool) -> str:
    if not cell.isascii():
        wide -= _cells(cell) - len(cell)
    return cell.rjust(wide) if right else cell.ljust(wide)


def _styled(cells: list[str], *, heads: bool, first: bool) -> list[str]:
    """Headers are bold, and what a row is about is coloured."""
    if heads:
        return [click.style(cell, bold=True) for cell in cells]
    return [click.style(cells[0], fg="cyan"), *cells[1:]] if first else cells


@contextmanager
def progress(label: str, *, of: str = "bytes") -> Iterator[Progress | None]:
    """A bar on stderr while something long runs, counting bytes or things; None when stderr is no terminal.

    It appears with the first progress: what a command prints before that stands on lines of its own.
    """
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
    bar = Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
    task = bar.add_task(str(Text(label)), total=None)

    def told(done: int, total: int | None) -> None:
        bar.start()  # does nothing where it runs already
        bar.update(task, completed=done, total=total)

    try:
        yield told
    finally:
        with suppress(OSError):  # the terminal may be gone, and with it what is to be wiped off
            bar.stop()
