"""Tests run once more with buffers of a few bytes: what is wrong at the end of a buffer shows with small files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

CHOSEN = "zoo_model or good_files or unowned or test_changes or (test_convert and not ctrl_c)"
SAMPLE = [
    "tests/contract/test_formats.py", "tests/convert/test_convert.py", "tests/convert/test_changes.py", "-k", CHOSEN,
]  # fmt: skip
WHOLE = [
    "tests/contract", "tests/formats", "tests/documents", "tests/quant/test_quant_golden.py", "tests/kernels",
    "tests/sink/test_plans.py",
    "tests/remote/test_small.py", "tests/convert/test_convert.py", "tests/convert/test_carry.py",
    "tests/test_diff.py", "tests/test_edit.py",
    "tests/test_explain.py", "tests/test_extract.py", "tests/test_ggml.py", "tests/test_identity.py",
    "tests/convert/test_overwrite.py", "tests/test_layout.py", "tests/convert/test_skeleton.py",
    "tests/test_slicing.py",
    "tests/test_stats.py", "tests/convert/test_changes.py", "tests/test_vocab.py", "tests/test_zipfiles.py",
]  # fmt: skip
# A message with the range of a block of values, and files of many megabytes: 24 bytes at a time they take too long.
LEFT_OUT = [
    "tests/convert/test_changes.py::test_a_cast_to_integers_refuses_what_would_change",
    "tests/convert/test_convert.py::test_ctrl_c_leaves_nothing_behind",
    "tests/test_extract.py::test_memory_does_not_grow_with_the_tensor",
    "tests/formats/embd/test_embd_minilm.py",
]
TOO_LARGE = "not gigabyte and not few_chunks"


def run_tiny(*arguments: str, seconds: int) -> None:
    """Run pytest with tiny buffers; its report is shown where it fails."""
    left_out = [part for name in LEFT_OUT for part in ("--deselect", name)]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--timeout", "120", *left_out, *arguments]
    environment = {**os.environ, "HOLDALL_TINY_BUFFERS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_the_sizes_are_tiny_when_asked_for() -> None:
    show = "from holdall.source import CHUNK; from holdall.sink.ahead import SMALL; print(CHUNK, SMALL)"
    for wanted, expected in (("1", "24 24"), ("0", f"{4 << 20} {256 << 10}")):
        environment = {**os.environ, "HOLDALL_TINY_BUFFERS": wanted}
        done = subprocess.run([sys.executable, "-c", show], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.split() == expected.split()


def test_a_sample_with_tiny_buffers() -> None:
    run_tiny(*SAMPLE, seconds=120)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_everything_with_tiny_buffers() -> None:
    run_tiny(*WHOLE, "-k", TOO_LARGE, seconds=3500)
