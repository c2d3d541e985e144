"""What a command costs before it does anything, beside ``import numpy``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from bench.case import Case, Contender, Run, at_most
from bench.content import make, path_of
from bench.work import Command
from bench.work import run as run_once

NUMPY = 'python -c "import numpy"'


def cases(run: Run) -> Iterator[Case]:
    """With compiled bytecode on disk, as an installed package has it."""
    size = run.pick(10**9, 3 * 10**7)
    with run.folder(2 * size) as folder:
        files = {format: make(path_of(folder, "one", format), format, size) for format in ("safetensors", "oinf")}
        lines = [Contender(NUMPY, Command((sys.executable, "-c", "import numpy")))]
        for format, path in files.items():
            job = Command((*holdall(), "info", str(path)))
            lines.append(Contender(f"holdall info: {format}", job, [at_most(1.7, NUMPY)]))
        job = Command((*holdall(), "--version"))
        lines.append(Contender("holdall --version", job, [at_most(0.6, NUMPY)]))
        for one in lines:
            run_once(one.job)  # which leaves the bytecode
        yield Case(f"Start; info of {size / 1e6:,.0f} MB", lines, run.pick(9, 3), NUMPY)


def holdall() -> tuple[str, ...]:
    """The installed command, or what it consists of."""
    script = Path(sys.executable).with_name("holdall")
    return (str(script),) if script.exists() else (sys.executable, "-c", "from holdall.cli import main; main()")
