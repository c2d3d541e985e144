"""The figures of the last full run as a page: docs/benchmarks.md."""

from __future__ import annotations

import ast
import json
import os
import platform
from pathlib import Path
from typing import Any

from bench.measure import OUT

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmarks.md"

METHOD = """# Benchmarks

`make bench` measures holdall beside what a user could pick instead, in one run on one machine. Cases are interleaved,
so that a slow spell meets all of them; where memory or start-up matters each runs in a fresh process, whose peak
resident memory (VmHWM) is kept. Figures are medians, with the fastest and slowest run beside them. Ratios travel
between machines, seconds do not. `make bench QUICK=1` measures less of everything, to see that nothing has gone wrong;
it does not write this page.

The figures below are from full runs on one machine that did nothing else: {machine}.
"""


def _machine() -> str:
    cores = os.cpu_count()
    return f"{cores} cores, {platform.machine()}, {platform.system()}, Python {platform.python_version()}"


def _table(rows: list[dict[str, Any]]) -> list[str]:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for row in rows:
        cells = (str(row.get(key, "")).replace("|", "\\|") for key in columns)
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def write(names: list[str]) -> None:
    """Write the page from what each benchmark in ``names`` left in ``bench/out``."""
    lines = [METHOD.format(machine=_machine())]
    for name in names:
        doc = ast.get_docstring(ast.parse((HERE / f"{name}.py").read_text())) or name
        for record in sorted(OUT.glob("*.json")):
            if record.stem.replace("-", "_").split(".")[0] in _records(name):
                lines += [f"## {doc.splitlines()[0].rstrip('.')}", "", f"`python -m bench.{name}`", ""]
                lines += [*_table(json.loads(record.read_text())), ""]
    PAGE.write_text("\n".join(lines))


def _records(name: str) -> tuple[str, ...]:
    """The records that a benchmark keeps: its own name, and for one that keeps two, the other."""
    return (name, "gguf_open") if name == "ggml" else (name,)
