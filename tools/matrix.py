"""Converts the zoo from every format into every other and back, and counts the results.

``python -m tools.matrix`` prints the page docs/conversions.md.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import holdall
from holdall.errors import ContentError, UnsupportedError
from holdall.format import registry
from holdall.format.base import Format
from holdall.operations.round_trip import round_trip
from holdall.testing.compare import restrict_to
from holdall.testing.zoo import ZOO

__all__ = ["Cell", "matrix", "page"]


@dataclass(slots=True)
class Cell:
    """The results of all trips between two formats."""

    native: int = 0
    carried: int = 0
    refused: int = 0
    inexact: int = 0

    def __str__(self) -> str:
        if self.inexact:
            return f"{self.inexact} inexact"
        parts = [f"{self.native} native", f"{self.carried} carried", f"{self.refused} refused"]
        return ", ".join(part for part in parts if not part.startswith("0 ")) or "—"


def _writable() -> list[Format]:
    return [found for name in registry.names() if (found := registry.find(name)).writes]


def matrix() -> dict[tuple[str, str], Cell]:
    """Take the zoo through every pair of formats that can be written."""
    cells: dict[tuple[str, str], Cell] = {}
    formats = _writable()
    for source in formats:
        for target in formats:
            if target.name == source.name:
                continue
            cell = cells.setdefault((source.name, target.name), Cell())
            for make in ZOO.values():
                _count_trip(make(), source, target, cell)
    return cells


def _count_trip(model: holdall.Model, source: Format, target: Format, cell: Cell) -> None:
    part = restrict_to(model, source)
    if part is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        path = scratch / f"original{source.suffixes[0] if source.suffixes else ''}"
        holdall.save(path, part, format=source.name, fsync=False)
        try:
            trip = round_trip(path, target.name, scratch)
        except (ContentError, UnsupportedError):
            cell.refused += 1
            return
    if not trip.exact:
        cell.inexact += 1
    elif trip.native:
        cell.native += 1
    else:
        cell.carried += 1


def page() -> str:
    """Return the matrix as a Markdown page."""
    cells = matrix()
    names = [found.name for found in _writable()]
    lines = [
        "# Conversions",
        "",
        "Every format into every other with `--carry` and back with `holdall restore`, over the small models of the",
        "test zoo that the source can hold. Every trip that is not refused gives the original file, byte for byte.",
        "*Native*: the target also expresses everything in its own terms, so that a conversion without `--carry` is",
        "lossless. *Carried*: something is in the skeleton alone. *Refused*: the target has no place for a skeleton.",
        "",
        "| from \\ to | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for source in names:
        row = [str(cells[source, target]) if target != source else "" for target in names]
        lines.append(f"| **{source}** | " + " | ".join(row) + " |")
    return "\n".join([*lines, "", "Made by `python -m tools.matrix`.", ""])


if __name__ == "__main__":
    sys.stdout.write(page())
