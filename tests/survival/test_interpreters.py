"""A second interpreter in the process: numpy refuses it, so holdall does too, with an ImportError and no crash."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import holdall
from tests.cli.conftest import SRC

CODE = """
import sys
try:
    import _interpreters as interpreters  # from 3.13 on
    run = lambda code: interpreters.exec(interpreters.create(), code)
except ImportError:
    import _xxsubinterpreters as interpreters
    run = lambda code: interpreters.run_string(interpreters.create(), code)
import holdall

path = sys.argv[1]
model = holdall.open(path)
inside = '''
import sys
sys.path[:] = {search!r}
import holdall
try:
    print("read", float(holdall.open({path!r})["w"].numpy().sum()))
except ImportError as error:
    print("refused", type(error).__name__, bool(str(error)))
'''
for _ in range(3):
    run(inside.format(search=sys.path, path=path))
    sys.stdout.flush()
print("here", float(model["w"].numpy().sum()))
with holdall.open(path, mmap=False) as again:
    print("here", float(again["w"].numpy().sum()))
"""


def test_a_second_interpreter_gets_an_error_and_the_first_goes_on(tmp_path):
    if sys.version_info < (3, 13):
        pytest.importorskip("_xxsubinterpreters")
    holdall.save(tmp_path / "m.oinf", {"w": np.ones(1000, np.float32)})
    environment = {**os.environ, "PYTHONPATH": str(SRC), "PYTHONUNBUFFERED": "1"}
    line = [sys.executable, "-W", "ignore", "-c", CODE, str(tmp_path / "m.oinf")]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    said = done.stdout.splitlines()
    assert set(said[:3]) <= {"refused ImportError True", "read 1000.0"}
    assert said[3:] == ["here 1000.0", "here 1000.0"]
