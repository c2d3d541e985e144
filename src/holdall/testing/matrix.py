"""The round-trip matrix: every format into every other and back, over the zoo.

``python -m holdall.testing.matrix`` prints it as the page that docs/conversions.md is.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import holdall
from holdall import registry
from holdall.errors import ContentError, UnsupportedError
from holdall.format import Format
from holdall.roundtrip import round_trip
from holdall.testing.compare import held
from holdall.testing.zoo import ZOO

__all__ = ["Cell", "matrix", "page"]


@dataclass(slots=True)
class Cell:
    """All trips between two formats, counted."""

    native: int = 0
    carried: int = 0
    refused: int = 0
    lossy: int = 0
    inexact: int = 0

    def __str__(self) -> str:
        if self.inexact:
            return f"{self.inexact} inexact"
        parts = [f"{self.native} native", f"{self.carried} carried", f"{self.refused} refused", f"{self.lossy} lossy"]
        return ", ".join(part for part in parts if not part.startswith("0 ")) or "—"


def _writable() -> list[Format]:
    return [found for name in registry.names() if (found := registry.find(name)).writes]


def matrix() -> dict[tuple[str, str], Cell]:
    """The zoo through every pair of formats that can be written."""
    cells: dict[tuple[str, str], Cell] = {}
    formats = _writable()
    for source in formats:
        for target in formats:
            if target.name == source.name:
                continue
            cell = cells.setdefault((source.name, target.name), Cell())
            for make in ZOO.values():
                _through(make(), source, target, cell)
    return cells


def _through(model: holdall.Model, source: Format, target: Format, cell: Cell) -> None:
    part = held(model, source)
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
        cell.lossy += not trip.lossless
        cell.inexact += trip.lossless
    elif trip.carried:
        cell.carried += 1
    else:
        cell.native += 1


def page() -> str:
    """The matrix as a Markdown page."""
    cells = matrix()
    names = [found.name for found in _writable()]
    lines = [
        "# Conversions",
        "",
        "Every format into every other and back, over the small models of the test zoo that the source can hold.",
        "*Native*: the target expresses everything, and the way back gives the original file, byte for byte.",
        "*Carried*: the same, with the help of a skeleton of the source inside the target.",
        "*Refused*: the target cannot hold something and has no free-form place to carry it; `--no-carry` goes on",
        "without it. *Lossy*: the target's own tools drop it, so the file that matches theirs does too; the report",
        "says what.",
        "",
        "| from \\ to | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for source in names:
        row = [str(cells[source, target]) if target != source else "" for target in names]
        lines.append(f"| **{source}** | " + " | ".join(row) + " |")
    return "\n".join([*lines, "", "Made by `python -m holdall.testing.matrix`.", ""])


if __name__ == "__main__":
    sys.stdout.write(page())
