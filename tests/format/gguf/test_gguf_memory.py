"""A large vocabulary on its way into other formats and back: bounded memory, and the same values."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

import holdall

SRC = Path(holdall.__file__).resolve().parent.parent
TOKENS = 250_000
WORDS = [f"{'▁' if n % 2 else ''}w{n}" for n in range(TOKENS)]  # half of them begin a word, as in real ones
SCORES = [-n / 3 for n in range(TOKENS)]
MERGES = [f"w{n % 997} {n}" for n in range(TOKENS)]
MOST = 200  # megabytes of memory
LONGER = [pytest.param(format, marks=pytest.mark.long) for format in ("oinf", "npz", "aero", "torch")]

CONVERT = """
import json, re, sys
from pathlib import Path
import holdall
source, target, format, how = sys.argv[1:]
if how == "restore":
    report = holdall.restore(source, target, fsync=False)
else:
    report = holdall.convert(source, target, format=format, carry=how == "carry", fsync=False)
peak = re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())
print(json.dumps([int(peak[1]) * 1024 / 1e6, report.restored]))
"""  # and not ru_maxrss, in which a process also has what its parent took when it was started


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the package of llama.cpp writes it: tokens, scores, types and merges."""
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list(WORDS)
    writer.add_token_scores(SCORES)
    writer.add_token_types([n % 6 for n in range(TOKENS)])
    writer.add_token_merges(MERGES)
    writer.add_tensor("w", np.ones((64, 64), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def converted(source: Path, target: Path, format: str, how: str) -> str | None:
    """Convert in another process and check its memory; returns how far the original was restored."""
    line = [sys.executable, "-c", CONVERT, str(source), str(target), format, how]
    done = subprocess.run(line, capture_output=True, check=True, env={**os.environ, "PYTHONPATH": str(SRC)})
    megabytes, restored = json.loads(done.stdout)
    assert megabytes < MOST, f"into {format}"
    return restored


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("format", ["safetensors", "mcf", *LONGER])
def test_it_comes_back_as_it_went(vocabulary: Path, tmp_path: Path, format: str) -> None:
    converted(vocabulary, tmp_path / "there", format, "carry")
    assert converted(tmp_path / "there", tmp_path / "back.gguf", "gguf", "restore") == "bytes"
    assert digest(tmp_path / "back.gguf") == digest(vocabulary)


@pytest.mark.parametrize(
    "format", ["safetensors", "mcf", pytest.param("aero", marks=pytest.mark.long)]
)  # npz and torch have no metadata of their own
def test_values_that_a_format_holds_come_back(vocabulary: Path, tmp_path: Path, format: str) -> None:
    converted(vocabulary, tmp_path / "there", format, "alone")
    converted(tmp_path / "there", tmp_path / "back.gguf", "gguf", "alone")
    with holdall.open(tmp_path / "back.gguf") as model:
        stored = {key: model.metadata[f"tokenizer.ggml.{key}"] for key in ("tokens", "scores", "merges")}
    values = {key: json.loads(value) if isinstance(value, str) else value for key, value in stored.items()}
    assert values["tokens"] == WORDS
    assert values["merges"] == MERGES
    assert np.array(values["scores"], "<f4").tobytes() == np.array(SCORES, "<f4").tobytes()
