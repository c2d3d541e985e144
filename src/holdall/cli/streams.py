"""Standard input and output as source and target of a conversion.

A container is read and written at any place, which a pipe cannot do: a file of its own stands between.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from holdall.format import Format

__all__ = ["STREAM", "print_aside", "standard_streams"]

STREAM = "-"
_PIECE = 4 << 20  # bytes copied at a time


@contextmanager
def standard_streams(sources: Sequence[str], target: str, into: Format) -> Iterator[tuple[list[str], str]]:
    """The sources and the target with files in the place of ``-``; what was written to the target's is printed."""
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
                shutil.copyfileobj(sys.stdin.buffer, file, _PIECE)
        made = Path(folder) / "stdout"
        yield [str(given) if name == STREAM else name for name in sources], str(made) if target == STREAM else target
        if target == STREAM and made.exists():  # not in a dry run
            with made.open("rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer, _PIECE)
            sys.stdout.buffer.flush()


def print_aside(aside: bool) -> AbstractContextManager[object]:
    """Print to standard error in here, when standard output has the file."""
    return redirect_stdout(sys.stderr) if aside else nullcontext()
