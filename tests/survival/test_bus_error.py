"""A map of a file that is cut kills the process, which is documented; without a map the read raises."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import holdall
from tests.cli.conftest import LAUNCH, SRC

CUT = """
import os, sys, holdall
path, mapped = sys.argv[1], sys.argv[2] == "map"
model = holdall.open(path, mmap=mapped)
array = model["w"].numpy()
os.truncate(path, 4096)
print(float(array.sum()))
"""


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "model.oinf"
    holdall.save(made, {"w": np.ones(1 << 20, np.float32)})
    return made


def child(path, how):
    line = [sys.executable, "-c", CUT, str(path), how]
    return subprocess.run(line, env={**os.environ, "PYTHONPATH": str(SRC)}, capture_output=True, timeout=60)


def test_a_map_of_a_file_that_is_cut_ends_the_process(path):
    assert child(path, "map").returncode == -signal.SIGBUS


def test_without_a_map_the_numbers_stay(path):
    done = child(path, "read")
    assert (done.returncode, done.stdout) == (0, b"1048576.0\n"), done.stderr


def test_untrusted_commands_have_no_map(path, tmp_path):
    """A process that cannot map a file reads one all the same."""
    code = "import mmap\ndef refuse(*a, **k): raise SystemExit('mapped')\nmmap.mmap = refuse\n" + LAUNCH
    for arguments in (["info"], ["ls"], ["verify", "--stats"], ["explain"], ["extract", "w", "-o", tmp_path / "w.npy"]):
        name, *rest = map(str, arguments)
        line = [sys.executable, "-c", code, name, str(path), *rest, "--untrusted"]
        done = subprocess.run(line, env={**os.environ, "PYTHONPATH": str(SRC)}, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
