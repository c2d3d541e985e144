"""Every example runs, in an empty folder, and prints what it is there to show."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

SHOWS = {
    "mlp_regression": [
        "ok (oinf, level strict)",
        "a batch is (4, 8)",
        "w2: bf16[16, 1]",
        "hidden: f32[4, 16] (declared)",
    ],
    "worked_examples": ["'mode': 'clamp_up'", "x: 16 bytes at 200", "y: 8 bytes at 216", "i4: 9 elements take 5 bytes"],
    "lazy_reading": ["[42.0, 42.0, 42.0, 42.0]", "read-only: True", "still valid after close: 99.0"],
    "damaged_file": ["oinf.tensor.size", "oinf.header.zero", "'oinf.tensor.bool'"],
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path, tmp_path):
    search = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    ran = subprocess.run(
        [sys.executable, path], cwd=tmp_path, env={**os.environ, "PYTHONPATH": search}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert ran.stdout
    for text in SHOWS.get(path.stem, []):
        assert text in ran.stdout
