"""A model above the size of a protobuf message becomes a folder: dry run, report and messages say so."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from holdall.format.onnx import write

onnx = pytest.importorskip("onnx")

WEIGHTS = {"w": np.arange(3000, dtype=np.float32).reshape(3, 1000), "b": np.ones(3, np.float32)}


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setattr(write, "MOST", 5000)
    holdall.save(tmp_path / "a.safetensors", WEIGHTS)
    return str(tmp_path / "a.safetensors")


def convert(*arguments):
    return CliRunner().invoke(main, ["convert", *map(str, arguments)])


def test_a_folder_is_announced_and_made(source, tmp_path):
    target = tmp_path / "big.onnx"
    planned, counted = convert(source, target, "--dry-run"), convert(source, target, "--dry-run", "--json")
    assert not target.exists()
    written = convert(source, target)
    for ran, verb in ((planned, "would write"), (written, "wrote")):
        lines = ran.output.splitlines()
        assert lines[0].startswith(f"{verb} the folder {target}: onnx, 2 tensors, ")
        assert "this is a folder, in which model.onnx is the model and model.onnx.data has its data" in lines[1]
    assert json.loads(counted.output)["folder"] is True
    assert json.loads(counted.output)["size"] == sum(file.stat().st_size for file in target.iterdir())
    loaded = onnx.load(target / "model.onnx")
    onnx.checker.check_model(str(target / "model.onnx"))
    assert {tensor.name for tensor in loaded.graph.initializer} == set(WEIGHTS)
    for tensor in loaded.graph.initializer:
        assert np.array_equal(onnx.numpy_helper.to_array(tensor), WEIGHTS[tensor.name])
    assert "model.onnx.data" in {file.name for file in target.iterdir()}


def test_a_file_is_no_folder(source, tmp_path, monkeypatch):
    monkeypatch.setattr(write, "MOST", 1 << 20)
    report = holdall.convert(source, tmp_path / "small.onnx")
    assert not report.folder and (tmp_path / "small.onnx").is_file()


def test_a_dry_run_refuses_what_is_in_the_way(source, tmp_path):
    (tmp_path / "taken.onnx").write_bytes(b"mine")
    for more in (["--dry-run"], []):
        ran = convert(source, tmp_path / "taken.onnx", *more)
        assert ran.exit_code == 1
        assert "exists already: name a new folder" in ran.output
    assert (tmp_path / "taken.onnx").read_bytes() == b"mine"


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_standard_output_cannot_be_a_folder(source, more):
    ran = convert(source, "-", "--format", "onnx", *more)
    assert ran.exit_code == 1
    assert "onnx is a folder here, which standard output cannot be" in ran.output


def test_a_folder_with_safetensors_is_no_onnx(tmp_path):
    folder = tmp_path / "both"
    holdall.save(folder, {"big": np.ones(2000, np.float32)}, format="onnx", external=True)
    holdall.save(folder / "model.safetensors", WEIGHTS)
    (folder / "config.json").write_text("{}")
    report = holdall.convert(folder, tmp_path / "out", format="hf")
    assert (tmp_path / "out" / "config.json").read_text() == "{}"
    assert any(
        "left behind" in note and "model.onnx, model.onnx.data" in note for note in report.dropped + report.changes
    )
    with holdall.open(tmp_path / "out") as model:
        assert sorted(model.tensors.names) == ["b", "w"]
    with holdall.open(folder / "model.onnx") as model:
        assert model["big"].shape == (2000,)


def test_files_beside_an_onnx_model_are_named(tmp_path):
    folder = tmp_path / "net"
    holdall.save(folder, {"big": np.ones(2000, np.float32)}, format="onnx", external=True)
    (folder / "config.json").write_text("{}")
    facts = json.loads(CliRunner().invoke(main, ["info", "--json", str(folder)]).output)
    assert (facts["format"], facts["beside"]) == ("onnx", {"config.json": 2})
    ran = convert(folder, tmp_path / "out", "--format", "hf")
    assert "left behind, no part of the model: config.json" in ran.output
    with holdall.open(folder / "model.onnx") as model:
        assert holdall.formats()["onnx"].unread_files(model) == []
