"""Tests run once more with buffers of a few bytes: what is wrong at the end of a buffer shows with small files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

CHOSEN = "zoo_model or good_files or unowned or test_changes or (test_convert and not ctrl_c)"
SAMPLE = [
    "tests/contract/test_formats.py", "tests/convert/test_convert.py", "tests/convert/test_changes.py", "-k", CHOSEN,
]  # fmt: skip
# Of conversions the sample has what is quick: 24 bytes at a time the rest takes longer than all the others.
WHOLE = [
    "tests/contract", "tests/format", "tests/binary/documents", "tests/binary/kernels", "tests/binary/test_layout.py",
    "tests/model/test_ggml.py", "tests/model/test_identity.py", "tests/model/test_slicing.py",
    "tests/model/test_vocab.py",
    "tests/operations/test_diff.py", "tests/operations/test_edit.py", "tests/operations/test_explain.py",
    "tests/operations/test_extract.py", "tests/operations/test_stats.py",
    "tests/quant/test_quant_golden.py", "tests/remote/test_small.py", "tests/sink/test_plans.py",
    "tests/sink/test_resumable.py", "tests/source/test_pinned_source.py",
]  # fmt: skip
# A message with the range of a block of values, and files of many megabytes: 24 bytes at a time they take too long.
LEFT_OUT = [
    "tests/convert/test_changes.py::test_a_cast_to_integers_refuses_what_would_change",
    "tests/convert/test_convert.py::test_ctrl_c_leaves_nothing_behind",
    "tests/operations/test_extract.py::test_memory_does_not_grow_with_the_tensor",
    "tests/operations/test_stats.py::test_bins_hold_what_the_documentation_says",  # minutes in pieces of 24 bytes
    "tests/format/embd/test_embd_minilm.py",
    "tests/format/onnx/test_onnx_layer_kinds.py::test_hostile_functions_take_little",
    "tests/format/onnx/test_onnx_layer_kinds.py::test_hostile_graphs_take_little",
    "tests/format/test_proof.py",
    "tests/format/gguf/test_gguf_memory.py",
    "tests/format/aero/test_aero_document_hashes.py::test_one_tensor_at_a_time_is_in_memory_while_writing",
    "tests/format/aero/test_aero_many_tensors.py",
    "tests/format/aero/test_aero_index_in_blocks.py",
    "tests/format/aero/test_aero_one_pass.py",
    "tests/format/aero/test_aero_kinds_of_hashes.py",
    "tests/format/aero/test_aero_compressing.py",
    "tests/format/aero/test_aero_many_shards.py",
    "tests/format/npz/test_npz_opaque.py::test_they_survive_every_way_from_npz_to_npz",
]
TOO_LARGE = "not gigabyte and not few_chunks and not 1572864"


def run_tiny(*arguments: str, seconds: int) -> None:
    """Run pytest with tiny buffers; its report is shown where it fails."""
    left_out = [part for name in LEFT_OUT for part in ("--deselect", name)]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--timeout", "120", *left_out, *arguments]
    environment = {**os.environ, "HOLDALL_TINY_BUFFERS": "1", "HOLDALL_DAMAGE_CASES": "30"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


@pytest.mark.parametrize("named", [*SAMPLE[:-2], *WHOLE, *LEFT_OUT])
def test_what_is_run_and_left_out_exists(named: str) -> None:
    """pytest does not mind a test to leave out that is not there."""
    path, _, function = named.partition("::")
    assert (ROOT / path).exists()
    assert not function or f"def {function}(" in (ROOT / path).read_text()


def test_the_sizes_are_tiny_when_asked_for() -> None:
    show = "from holdall.source import CHUNK; from holdall.sink.readahead import SMALL; print(CHUNK, SMALL)"
    for wanted, expected in (("1", "24 24"), ("0", f"{4 << 20} {256 << 10}")):
        environment = {**os.environ, "HOLDALL_TINY_BUFFERS": wanted}
        done = subprocess.run([sys.executable, "-c", show], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.split() == expected.split()


@pytest.mark.long
def test_a_sample_with_tiny_buffers() -> None:
    run_tiny(*SAMPLE, seconds=900)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_everything_with_tiny_buffers() -> None:
    run_tiny(*WHOLE, "-k", TOO_LARGE, seconds=3500)
