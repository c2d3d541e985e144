"""What commands print: lines, tables, JSON, progress. Rich is imported only to show progress on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import islice
from operator import le
from typing import Any, TypeVar

import click

from holdall.base.buffer_sizes import buffer_size
from holdall.base.progress import Progress
from holdall.cli import stdout_errors
from holdall.cli.secrets import hide, hide_in_data

__all__ = ["echo", "emit", "emit_bytes", "emit_heading", "emit_json", "emit_json_lines"]
__all__ += ["emit_json_list", "encode_json", "hold_back"]
__all__ += ["emit_pairs", "emit_table", "on_terminal", "show_progress", "warn", "width"]

T = TypeVar("T")

_NARROWEST = 16  # letters that a column of words keeps, however narrow the terminal
_HANG = "    "  # indents the further lines of a row
_BATCH = buffer_size(4096)


def echo(line: str = "") -> None:
    """Print one line on standard output."""
    _print(hide_in_data(line))


def _print(text: str, end: str = "\n") -> None:
    with stdout_errors():
        click.echo(text + end, nl=False)


def warn(text: str) -> None:
    """Print one line on standard error, for what a command does not fail over."""
    click.echo(f"holdall: {hide(text)}", err=True)


def emit_bytes(pieces: Iterable[bytes | memoryview]) -> None:
    """Write a file to standard output, unless that is a terminal."""
    if on_terminal():
        raise click.UsageError("stdout is a terminal: give -o PATH, or a pipe.")
    for piece in pieces:
        with stdout_errors():
            sys.stdout.buffer.write(piece)
    with stdout_errors():
        sys.stdout.buffer.flush()


def on_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def width() -> int:
    """Return the columns of the terminal. Into a pipe it is a fixed number, so that output is the same everywhere."""
    if not on_terminal():
        return 120
    import shutil

    return shutil.get_terminal_size((100, 24)).columns


def emit(lines: Iterable[str]) -> None:
    """Print lines, many at a time."""
    _print_batches(map(hide_in_data, lines))


def _print_batches(lines: Iterable[str]) -> None:
    rest = iter(lines)
    while batch := list(islice(rest, _BATCH)):
        _print("\n".join(batch))


def emit_json(*values: Any) -> None:
    """Print JSON values, one a line, in ASCII."""
    emit_json_lines(values)


def emit_json_lines(values: Iterable[Any]) -> None:
    """Print many JSON values, one a line."""
    _print_batches(map(encode_json, values))  # a line of JSON has more than texts in it


def emit_json_list(head: Mapping[str, Any], key: str, items: Iterable[str]) -> None:
    """Print the JSON object ``head`` with one more value, a list of items that are encoded already, many at a time."""
    before, rest = encode_json({**head, key: []})[:-2], iter(items)
    while batch := list(islice(rest, _BATCH)):
        _print(before + ",".join(batch), end="")
        before = ","
    _print(f"{'' if before == ',' else before}]}}")


@cache
def _find_encoder() -> Callable[[Any], str]:
    from json import JSONEncoder

    return JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def encode_json(value: Any) -> str:
    """Return the JSON text of a value, in ASCII."""
    return _find_encoder()(hide_in_data(value))


def emit_heading(text: str) -> None:
    """Print the line that starts a section, bold on a terminal."""
    echo(click.style(text, bold=True))


def emit_pairs(rows: Iterable[tuple[str, str]], indent: str = "  ") -> None:
    """Print names and values in two columns."""
    listed = list(rows)
    wide = min(32, max((len(name) for name, _ in listed), default=0))
    emit(f"{indent}{click.style(name.ljust(wide), fg='cyan')}  {value}".rstrip() for name, value in listed)


def emit_table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    prose: Sequence[str] = (),
    indent: str = "",
) -> None:
    """Print rows below headers, the columns named in ``right`` flush right. The caller has cleaned the cells.

    No cell is ever shortened. If the terminal is too narrow, the columns named in ``prose`` are folded between
    words. If that is not enough, every row takes several lines, broken between columns.
    """
    columns = [[header, *cells] for header, *cells in zip(headers, *rows, strict=True)]
    styled, is_ascii = on_terminal(), [all(map(str.isascii, column)) for column in columns]
    widths = [
        max(map(len if simple else _display_width, column)) for column, simple in zip(columns, is_ascii, strict=True)
    ]
    if not styled and all(is_ascii):  # as most long listings are
        aligned = (">" if header in right else "<" for header in headers)
        row_text = "  ".join(f"{{:{side}{wide}}}" for side, wide in zip(aligned, widths, strict=True)).format
        emit((indent + row_text(*row)).rstrip() for row in zip(*columns, strict=True))
        return
    groups = [range(len(columns))]
    if styled:
        least = {at: _least_width(columns[at]) for at, header in enumerate(headers) if header in prose}
        widths, groups = _fit(widths, least, width() - len(indent))
    flush = [header in right for header in headers]

    def lines() -> Iterator[str]:
        for number, row in enumerate(zip(*columns, strict=True)):
            for group in groups:
                margin = indent + (_HANG if group.start else "")
                for cells in _fold(row[group.start : group.stop], widths[group.start : group.stop]):
                    fitted = [_pad(cell, widths[at], flush[at]) for cell, at in zip(cells, group, strict=True)]
                    fitted[-1] = fitted[-1].rstrip()
                    if styled:
                        fitted = _style(fitted, heads=number == 0, first=group.start == 0)
                    yield (margin + "  ".join(fitted)).rstrip()

    emit(lines())


def _display_width(text: str) -> int:
    """Return the columns that a terminal needs for ``text``: wide letters take two."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _least_width(column: Sequence[str]) -> int:
    """Return how narrow a column of words may become."""
    longest = max((len(word) for text in column for word in text.split()), default=0)
    return max(longest, min(_NARROWEST, max(map(len, column))))


def _fit(widths: list[int], least: dict[int, int], room: int) -> tuple[list[int], list[range]]:
    """Return widths that fit into ``room``, and which columns share a line. ``least`` says how far some may shrink."""
    fitted = list(widths)
    excess = sum(widths) + 2 * (len(widths) - 1) - room
    for at in sorted(least, key=lambda at: -widths[at]):
        given = max(0, min(excess, widths[at] - least[at]))
        fitted[at] -= given
        excess -= given
    if excess <= 0:
        return fitted, [range(len(widths))]
    # The columns do not fit on one line: a text that gets a line to itself has more room.
    for at, narrow in least.items():
        fitted[at] = max(narrow, min(widths[at], room - len(_HANG)))
    groups, start, used = [], 0, fitted[0]
    for at in range(1, len(fitted)):
        if used + 2 + fitted[at] > room:
            groups.append(range(start, at))
            start, used = at, len(_HANG) + fitted[at]
        else:
            used += 2 + fitted[at]
    return fitted, [*groups, range(start, len(fitted))]


def _fold(row: Sequence[str], widths: Sequence[int]) -> Iterator[Sequence[str]]:
    """Yield the lines of a row: one, unless a column became narrower than its cell."""
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


def _pad(cell: str, wide: int, right: bool) -> str:
    if not cell.isascii():
        wide -= _display_width(cell) - len(cell)
    return cell.rjust(wide) if right else cell.ljust(wide)


def _style(cells: list[str], *, heads: bool, first: bool) -> list[str]:
    """Make headers bold, and colour the first cell of a row."""
    if heads:
        return [click.style(cell, bold=True) for cell in cells]
    return [click.style(cells[0], fg="cyan"), *cells[1:]] if first else cells


def hold_back(lines: Iterable[T]) -> Iterable[T]:
    """All ``lines`` at once, so that none breaks the bar of :func:`show_progress`, or one by one if there is none."""
    return list(lines) if on_terminal() and sys.stderr.isatty() else lines


@contextmanager
def show_progress(label: str, *, of: str = "bytes") -> Iterator[Progress]:
    """Show a bar on standard error, if that is a terminal, while the work inside calls the function it is given.

    The bar counts ``of``. It appears with the first call, so that lines printed before it are not overwritten.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    import rich.progress
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

    columns: list[ProgressColumn] = [TextColumn("{task.description}", markup=False), BarColumn()]
    columns += [DownloadColumn(), TransferSpeedColumn()] if of == "bytes" else [MofNCompleteColumn(), TextColumn(of)]
    bar = rich.progress.Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
    task = bar.add_task(hide(label), total=None)

    def show(done: int, total: int | None) -> None:
        bar.start()  # has no effect on one that runs
        bar.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        with suppress(OSError):  # the terminal may be closed already
            bar.stop()
