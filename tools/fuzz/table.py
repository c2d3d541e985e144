"""Prints the records of a campaign as a Markdown table, for docs/security.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.fuzz.campaign import LINES_AT, ORDER

__all__ = ["table"]

_HEAD = """\
| format | inputs | a CPU second | kept | edges at 80 % | at the end | lines at 80 % | at the end | findings |
|---|--:|--:|--:|--:|--:|--:|--:|--:|"""


def table(folder: Path) -> str:
    """One row a format; lines are those of function bodies of its reader that the kept inputs reach."""
    records = [json.loads(place.read_text()) for name in ORDER if (place := folder / f"{name}.json").exists()]
    return "\n".join([_HEAD, *(_row(record) for record in records if record["marks"])])


def _row(record: dict[str, Any]) -> str:
    marks, inputs = record["marks"], record["inputs"]
    before = next((mark for mark in reversed(marks) if mark["inputs"] <= 0.81 * inputs), marks[0])
    timed = [mark for mark in marks if "cpu_seconds" in mark]
    rate = sum(mark["in_turn"] for mark in timed) / max(1, sum(mark["cpu_seconds"] for mark in timed))
    cells = [
        record["format"], f"{inputs:,}", f"{rate:,.0f}", marks[-1]["corpus"], before["edges"], marks[-1]["edges"],
        *(_lines(record["lines"].get(str(share))) for share in LINES_AT), len(record["findings"]),
    ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def _lines(measure: dict[str, Any] | None) -> str:
    if not measure or "reached" not in measure:
        return ""
    return f"{measure['reached']} of {measure['lines']} ({measure['reached'] / measure['lines']:.1%})"
