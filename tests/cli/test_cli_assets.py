"""``assets`` lists what a model holds beside its tensors, and ``extract --asset`` copies it out."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

import holdall
from holdall.cli.options import Reading
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from tests.golden import golden

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "kätze", "##n", "\x1b[31m"]
LARGE = np.random.default_rng(0).integers(0, 256, (5 << 20) + 7, np.uint8).tobytes()
FILES = {
    "config.json": b'{"model_type": "bert"}',
    "vocab.txt": "".join(f"{token}\n" for token in TOKENS).encode(),
    "1_Pooling/config.json": b"{}",
    "tokenizer.model": LARGE,
    "README.md": b"# text\r\n\x00",
    "empty.dat": b"",
}


def lines(shown: Result) -> list[dict]:
    assert shown.exit_code == 0, shown.output
    return [json.loads(line) for line in shown.output.splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    holdall.save(path, Model([Tensor.of("w", np.ones(3, np.float32))], assets=FILES), format="hf")
    return path


def test_assets_lists_name_kind_and_bytes(cli, folder):
    rows = {row["name"]: (row["kind"], row["size"]) for row in lines(cli("assets", folder, "--json"))}
    assert rows == {
        "config.json": ("configuration", 22),
        "vocab.txt": ("vocabulary", len(FILES["vocab.txt"])),
        "1_Pooling/config.json": ("configuration", 2),
        "tokenizer.model": ("tokenizer", len(LARGE)),
        "README.md": ("text", 9),
        "empty.dat": ("bytes", 0),
    }
    table = cli("assets", folder).output.splitlines()
    assert table[0].split() == ["name", "kind", "bytes"]
    assert sorted(line.split()[0] for line in table[1:]) == sorted(FILES)


def test_a_model_without_assets_says_so(cli, tmp_path):
    holdall.save(tmp_path / "m.npz", {"w": np.ones(2, np.float32)})
    shown = cli("assets", tmp_path / "m.npz")
    assert shown.exit_code == 0 and "holds no assets" in shown.stderr
    assert cli("assets", tmp_path / "m.npz", "--json").stdout == ""


@pytest.mark.parametrize("name", FILES)
def test_extracted_assets_have_the_same_bytes(cli, folder, tmp_path, name):
    out = tmp_path / "out.bin"
    assert lines(cli("extract", folder, "--asset", name, "-o", out, "--json")) == [
        {"name": name, "path": str(out), "size": len(FILES[name])}
    ]
    assert out.read_bytes() == FILES[name]


def test_assets_of_other_containers_and_stdout(cli, command, tmp_path):
    source = golden("mcf") / "all_hf_sections.mcf"
    with holdall.open(source) as model:
        stored = {name: model.assets[name] for name in model.assets}
    assert [row["name"] for row in lines(cli("assets", source, "--json"))] == list(stored)
    for name, data in stored.items():
        ran = command("extract", source, "--asset", name, "-o", "-")
        assert (ran.returncode, ran.stdout) == (0, data)


def test_no_name_leads_out_of_the_target(cli, folder, tmp_path, monkeypatch):
    target = tmp_path / "a" / "target"
    target.mkdir(parents=True)
    monkeypatch.chdir(target)
    assert cli("extract", folder, "--asset", "1_Pooling/config.json").exit_code == 0
    assert cli("extract", folder, "--asset", "1_Pooling/config.json", "-o", target.parent).exit_code == 0
    assert [path.name for path in target.iterdir()] == ["1_Pooling%2Fconfig.json"]
    hostile = Model([], assets={"../../up.txt": b"x", "/etc/x": b"y", "C:\\x": b"z"})
    monkeypatch.setattr(Reading, "open", lambda self, path, **options: hostile)
    for name in hostile.assets:
        assert cli("extract", "any", "--asset", name).exit_code == 0
        assert cli("extract", "any", "--asset", name, "-o", target).exit_code == 0
    inside = {path.name for path in target.iterdir()}
    assert inside == {"1_Pooling%2Fconfig.json", "%2E.%2F..%2Fup.txt", "%2Fetc%2Fx", "C%3A%5Cx"}
    assert sorted(path.name for path in tmp_path.rglob("*") if path.name in ("up.txt", "x")) == []


def test_a_failed_copy_leaves_the_old_file(cli, folder, tmp_path, monkeypatch):
    out = tmp_path / "tokenizer.model"
    out.write_bytes(b"old")
    from holdall.format.hf.assets import FolderFile

    def broken(self, piece=1 << 20):
        yield memoryview(LARGE[: 1 << 20])
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(FolderFile, "chunks", broken)
    shown = cli("extract", folder, "--asset", "tokenizer.model", "-o", out)
    assert shown.exit_code == 1 and "Traceback" not in shown.output
    assert out.read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["model", "tokenizer.model"]


def test_wrong_use_of_extract_asset(cli, folder):
    shown = cli("extract", folder, "--asset", "vocab.tx")
    assert shown.exit_code == 1
    assert "there is no asset 'vocab.tx' among the 6. Did you mean 'vocab.txt'?" in shown.output
    for options in (("--raw",), ("--cast", "f32"), ("--slice", "0"), ("--all", "x")):
        assert cli("extract", folder, "--asset", "vocab.txt", *options).exit_code == 2
    assert cli("extract", folder, "w", "--asset", "vocab.txt").exit_code == 2


def test_vocab_prints_the_tokens(cli, folder, tmp_path):
    printed = cli("assets", folder, "--vocab").output.splitlines()
    assert printed[:6] == TOKENS[:6] and "\x1b" not in printed[6]
    rows = lines(cli("assets", folder, "--vocab", "--json"))
    assert [row["token"] for row in rows] == TOKENS
    assert {row["special"]: row["id"] for row in rows if "special" in row} == {"pad": 0, "unk": 1, "cls": 2, "sep": 3}
    holdall.save(tmp_path / "m.weights", Model([Tensor.of("w", np.ones((7, 2), np.float32))], assets={}), vocab=TOKENS)
    assert [row["token"] for row in lines(cli("assets", tmp_path / "m.weights", "--vocab", "--json"))] == TOKENS
    holdall.save(tmp_path / "m.npz", {"w": np.ones(2, np.float32)})
    shown = cli("assets", tmp_path / "m.npz", "--vocab")
    assert shown.exit_code == 1 and "holds no vocabulary" in shown.output
