"""Standard input and output as source and target of a conversion.

Containers are read and written at any offset, which a pipe does not allow, so a temporary file takes its place.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from holdall.cli.output import emit_bytes
from holdall.errors import UnsupportedError

if TYPE_CHECKING:
    from holdall.format.base import Format

__all__ = ["STREAM", "print_aside", "standard_input", "standard_streams"]

STREAM = "-"
_PIECE = 4 << 20  # bytes copied at a time


def standard_input() -> TextIO:
    """Return standard input, which a shell may have closed."""
    if sys.stdin is None:
        raise UnsupportedError("standard input is closed")
    return sys.stdin


@contextmanager
def standard_streams(sources: Sequence[str], target: str, into: Format) -> Iterator[tuple[list[str], str]]:
    """Yield the sources and the target with temporary files for ``-``; afterwards print the target's file."""
    if STREAM not in sources and target != STREAM:
        yield list(sources), target
        return
    if list(sources).count(STREAM) > 1:
        raise click.UsageError("standard input can be one source only")
    if target == STREAM and into.folder:
        raise click.UsageError(f"{into.name} is a folder, which standard output cannot be")
    with tempfile.TemporaryDirectory(prefix="holdall-") as folder:
        given = Path(folder) / "stdin"
        if STREAM in sources:
            with given.open("wb") as file:
                shutil.copyfileobj(standard_input().buffer, file, _PIECE)
        made = Path(folder) / "stdout"
        yield [str(given) if name == STREAM else name for name in sources], str(made) if target == STREAM else target
        if target == STREAM and made.exists():  # not in a dry run
            with made.open("rb") as file:
                emit_bytes(iter(lambda: file.read(_PIECE), b""))


def print_aside(aside: bool) -> AbstractContextManager[object]:
    """If ``aside``, print on standard error inside, since the file goes to standard output."""
    return redirect_stdout(sys.stderr) if aside else nullcontext()
