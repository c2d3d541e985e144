"""What every benchmark here shares: fresh processes, medians, peak memory, a record in JSON."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OUT = Path(__file__).resolve().parent / "out"


@dataclass
class Row:
    """One measured case: seconds of every run, and what else is worth keeping."""

    case: str
    seconds: list[float] = field(default_factory=list)
    peak_mb: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> str:
        return f"{min(self.seconds):.3g}..{max(self.seconds):.3g}"


def in_fresh_process(code: str, *arguments: str) -> dict[str, Any]:
    """Run ``code`` in a new interpreter. It prints JSON; its peak resident memory is added as ``peak_mb``."""
    epilogue = (
        "\nimport json as _json\n"
        "_peak = next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(_json.dumps({**result, 'peak_mb': _peak / 1024}))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code + epilogue, *arguments], capture_output=True, text=True, env={**os.environ}
    )
    if ran.returncode:
        raise RuntimeError(f"a benchmark process failed:\n{ran.stderr}")
    return json.loads(ran.stdout.splitlines()[-1])


def timed(command: Sequence[str]) -> float:
    """Seconds of an external command."""
    began = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - began


def interleaved(cases: dict[str, Callable[[], float | dict[str, Any]]], rounds: int) -> dict[str, Row]:
    """Every case once a round, so that a slow spell of the machine meets all of them."""
    rows = {name: Row(name) for name in cases}
    for _ in range(rounds):
        for name, run in cases.items():
            found = run()
            if isinstance(found, dict):
                rows[name].seconds.append(found["seconds"])
                rows[name].peak_mb = max(rows[name].peak_mb or 0, found["peak_mb"])
            else:
                rows[name].seconds.append(found)
    return rows


def record(name: str, rows: list[dict[str, Any]]) -> None:
    """Keep the figures in ``bench/out`` and print them as a table."""
    OUT.mkdir(exist_ok=True)
    (OUT / f"{name}.json").write_text(json.dumps(rows, indent=1))
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = [columns, *([str(row.get(key, "")) for key in columns] for row in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(columns))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
