"""Without a map a file that is cut is an error in every format and for every call; few commands map a file at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from holdall.source import descriptors
from tests.cli.conftest import SRC
from tests.runtime import tiny

NAME = "layers.3.weight"
COMMANDS = (
    ("info", "{path}"),
    ("info", "{path}", "--json"),
    ("ls", "{path}", "--long"),
    ("verify", "{path}", "--level", "strict"),
    ("verify", "{path}", "--stats"),
    ("explain", "{path}"),
    ("extract", "{path}", NAME, "-o", "{out}/w.npy"),
    ("extract", "{path}", NAME, "-o", "{out}/w.bin", "--raw"),
    ("extract", "{path}", NAME, "-o", "{out}/w64.npy", "--cast", "f64"),
    ("extract", "{path}", NAME, "-o", "{out}/s.npy", "--slice", ":,0", "--untrusted"),
    ("extract", "{path}", "--all", "{out}/all"),
    ("assets", "{path}"),
    ("convert", "{path}", "{out}/c.npz"),
    ("convert", "{path}", "{out}/c.safetensors", "--cast", "f16", "--transpose", "*"),
    ("quantize", "{path}", "{out}/q.mcf", "--report", "{out}/r.html"),
    ("diff", "{path}", "{path}"),
    ("diff", "{path}", "{out}/c.npz"),
    ("diff", "{path}", "{path}", "--trace"),
    ("view", "{path}", "--export", "{out}/v.html", "--tensor", NAME),
    ("convert", "{path}", "{out}/carrier.safetensors", "--carry"),
    ("restore", "{out}/carrier.safetensors", "{out}/original"),
    ("edit", "{path}", "--rename", f"{NAME}=other"),
)
ALLOWED = (
    "is a folder; explain one of its files",
    "is not edited in its place",
    "0 tensors, 1 of metadata",
    "it writes a copy, which is the original",  # of one format into the same, so that there is no carrier
)


@pytest.fixture
def unmapped(monkeypatch):
    """A process that cannot map a file."""

    def refuse(fd, size):
        raise AssertionError("a file was mapped")

    monkeypatch.setattr(descriptors, "map_file", refuse)
    monkeypatch.setattr("holdall.source.file.map_file", refuse)


def test_commands_map_no_file(path, tmp_path, unmapped):
    (tmp_path / "out").mkdir()
    for words in COMMANDS:
        done = CliRunner().invoke(main, [word.format(path=path, out=tmp_path / "out") for word in words])
        assert "was mapped" not in done.output, words
        assert done.exit_code == 0 or any(text in done.output for text in ALLOWED), (words, done.output)


def test_repair_maps_no_file(tmp_path, unmapped):
    good, bad = tmp_path / "good.aero", tmp_path / "bad.aero"
    holdall.save(good, {NAME: np.arange(1 << 16, dtype=np.float32)}, page_hash=4096)
    data = bytearray(good.read_bytes())
    with holdall.open(good, mmap=False) as model:
        data[model[NAME].offset + 5000] ^= 255
    bad.write_bytes(data)
    done = CliRunner().invoke(main, ["repair", str(bad), "--from", str(good)])
    assert done.exit_code == 0, done.output
    assert bad.read_bytes() == good.read_bytes()


@pytest.mark.parametrize("command", ["embed", "calibrate"])
def test_encoders_of_untrusted_files_are_not_mapped(command, tmp_path, unmapped):
    holdall.save(tmp_path / "m.safetensors", tiny.tensors())
    (tmp_path / "vocab.txt").write_bytes(tiny.VOCAB.to_text())
    (tmp_path / "config.json").write_text(json.dumps(tiny.CONFIG))
    words = [command, tmp_path / "m.safetensors", "the cat", "--untrusted"]
    words += ["--vocab", tmp_path / "vocab.txt", "--config", tmp_path / "config.json"]
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output


CUT = """
import os, pickle, sys
from pathlib import Path
import numpy as np
import holdall
from tests.survival import shelf
path, size, work = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
model = holdall.open(path, mmap=False)
store = holdall.ParamStore.from_model(model)
for file in shelf.files(path):
    os.truncate(file, min(size, file.stat().st_size - 1))
tensors = list(model.tensors)
WORK = {
    "numpy": lambda: [tensor.numpy().sum() for tensor in tensors],
    "raw": lambda: [sum(tensor.raw()) for tensor in tensors],
    "blocks": lambda: [block.sum() for tensor in tensors for block in tensor.blocks(100)],
    "rows": lambda: [tensor[::5, 3:].sum() for tensor in tensors],
    "fetch": lambda: [tensor.numpy().sum() for tensor in model.fetch()],
    "store": lambda: [np.asarray(store[name]).sum() for name in model.tensors.names],
    "save": lambda: holdall.save(path.parent / "copy.npz", tensors, fsync=False),
    "quantize": lambda: [tensor.numpy() for tensor in holdall.quant.quantize_model(model).tensors],
    "pickle": lambda: [tensor.numpy().sum() for tensor in pickle.loads(pickle.dumps(model)).tensors],
}
wrong = []
for name in work.split(","):
    try:
        WORK[name]()
        wrong.append(name + " went on")
    except (holdall.FormatError, OSError) as error:
        if name != "pickle" and not any(file.name in str(error) for file in shelf.files(path)):  # that opens it anew
            wrong.append(f"{name} names no file: {error}")
wrong += [str(left) for left in path.parent.glob("*.holdall.part")]
print(wrong)
"""
EVERY = "numpy,raw,blocks,rows,fetch,store,save,quantize,pickle"


@pytest.mark.parametrize("size", [100, pytest.param(100_000, marks=pytest.mark.long)])
def test_a_file_that_is_cut_is_an_error_without_a_map(path, size):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SRC), str(Path(__file__).parents[2])])}
    line = [sys.executable, "-c", CUT, str(path), str(size), EVERY]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr[-2000:]
