"""What the command-line tests share: a way to call it, and files to call it on."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import holdall
from holdall.cli import main

SRC = Path(holdall.__file__).resolve().parent.parent
LAUNCH = "from holdall.__main__ import run; run()"


@pytest.fixture
def cli(monkeypatch):
    """Call the command line in this process."""
    monkeypatch.delenv("HOLDALL_DEBUG", raising=False)

    def call(*arguments, **options) -> Result:
        return CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="holdall", **options)

    return call


@pytest.fixture
def command():
    """The command line as a process; ``run=False`` does not wait for it, ``extra`` adds to its environment."""
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    environment.pop("HOLDALL_DEBUG", None)

    def call(*arguments, run=True, extra=None, **options):
        line = [sys.executable, "-c", LAUNCH, *map(str, arguments)]
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": {**environment, **(extra or {})}}
        return subprocess.run(line, timeout=60, **options) if run else subprocess.Popen(line, **options)

    return call


@pytest.fixture
def terminal():
    """The command line on a terminal of so many columns: what it prints on both streams, and its exit code."""
    fcntl, pty, termios = map(pytest.importorskip, ("fcntl", "pty", "termios"))

    def call(columns, *arguments, **extra):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        environment = {**kept, "PYTHONPATH": str(SRC), "TERM": "xterm", **extra}
        line = [sys.executable, "-c", LAUNCH, *map(str, arguments)]
        with subprocess.Popen(line, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
            os.close(theirs)
            shown = b"".join(iter(lambda: _read(ours), b""))
        os.close(ours)
        return shown.decode().replace("\r\n", "\n"), process.returncode

    return call


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # on Linux, the end of a terminal that has no writer left
        return b""


@pytest.fixture
def model_path(tmp_path) -> Path:
    """A small file with several dtypes, metadata and dotted names."""
    path = tmp_path / "model.oinf"
    rng = np.random.default_rng(1)
    holdall.save(
        path,
        {
            "layers.0.w": rng.standard_normal((4, 6)).astype(np.float32),
            "layers.0.b": holdall.Tensor.of("b", [1.0, -2.0, 0.5], "bf16"),
            "layers.1.w": holdall.Tensor.of("w", np.arange(-8, 7).reshape(3, 5), "i4"),
            "mask": np.array([[True, False], [False, True]]),
            "wide": np.arange(3000, dtype=np.int64),
        },
        metadata={"arch": "mlp", "depth": 2},
    )
    return path


@pytest.fixture
def broken_path(model_path) -> Path:
    """The same file cut in half."""
    path = model_path.with_name("broken.oinf")
    data = model_path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    return path
