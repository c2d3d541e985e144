from __future__ import annotations

import io
import json

import numpy as np
import pytest

import holdall


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_npy_by_default(cli, model_path, tmp_path):
    shown = cli("extract", model_path, "layers.0.w")
    assert (shown.exit_code, shown.output) == (0, "layers.0.w.npy: layers.0.w, 224 B\n")
    with holdall.open(model_path) as model:
        assert np.array_equal(np.load("layers.0.w.npy"), model["layers.0.w"].numpy())


@pytest.mark.parametrize("name", ["layers.0.w", "layers.1.w", "mask", "wide"])
def test_npy_holds_the_values(cli, model_path, name):
    assert cli("extract", model_path, name, "-o", "out.npy").exit_code == 0
    with holdall.open(model_path) as model:
        expected = model[name].numpy()
    found = np.load("out.npy")
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("name", ["layers.0.b", "layers.1.w", "wide"])
def test_any_other_name_gets_the_stored_bytes(cli, model_path, tmp_path, name):
    assert cli("extract", model_path, name, "-o", "out.bin").exit_code == 0
    with holdall.open(model_path) as model:
        assert (tmp_path / "out.bin").read_bytes() == model[name].raw()


def test_what_npy_cannot_express(cli, model_path, tmp_path):
    shown = cli("extract", model_path, "layers.0.b")
    assert shown.exit_code == 0
    assert "npy cannot express bf16: stored bytes as .bin instead (--cast f32 makes .npy)" in shown.stderr
    assert (tmp_path / "layers.0.b.bin").stat().st_size == 6
    refused = cli("extract", model_path, "layers.0.b", "-o", "b.npy")
    assert refused.exit_code == 1
    assert not (tmp_path / "b.npy").exists()
    assert cli("extract", model_path, "layers.0.b", "-o", "b.npy", "--cast", "f32").exit_code == 0
    assert np.load("b.npy").tolist() == [1.0, -2.0, 0.5]
    assert np.load("b.npy").dtype == np.float32


def test_a_cast_refuses_what_does_not_fit(cli, model_path, tmp_path):
    shown = cli("extract", model_path, "wide", "-o", "x.npy", "--cast", "i8")
    assert shown.exit_code == 1
    assert "do not fit i8" in shown.stderr
    assert not (tmp_path / "x.npy").exists()
    assert cli("extract", model_path, "wide", "-o", "x.npy", "--cast", "i4").exit_code == 2
    assert cli("extract", model_path, "wide", "-o", "x.bin", "--cast", "f32").exit_code == 2


@pytest.mark.parametrize("slice", [[], ["--slice", "1:"]])
def test_a_cast_says_what_is_no_longer_finite(cli, tmp_path, slice):
    holdall.save("big.oinf", {"w": np.array([1, 70000, -1e30], np.float32)})
    shown = cli("extract", "big.oinf", "w", "--cast", "f16", *slice)
    assert shown.exit_code == 0
    assert shown.stderr == "holdall: tensor 'w': 2 values are beyond f16 and now infinite or NaN\n"


def test_slices(cli, model_path, tmp_path):
    with holdall.open(model_path) as model:
        whole, packed = model["layers.0.w"].numpy().copy(), model["layers.1.w"].numpy()
    assert cli("extract", model_path, "layers.0.w", "--slice", "1:3,::2", "-o", "s.npy").exit_code == 0
    assert np.array_equal(np.load("s.npy"), whole[1:3, ::2])
    assert cli("extract", model_path, "layers.0.w", "--slice", "-1", "-o", "s.npy").exit_code == 0
    assert np.array_equal(np.load("s.npy"), whole[-1])
    assert cli("extract", model_path, "layers.1.w", "--slice", "1", "-o", "s.bin").exit_code == 0
    expected = holdall.Tensor.of("x", packed[1], "i4").raw()
    assert (tmp_path / "s.bin").read_bytes() == expected


@pytest.mark.parametrize("text", ["", "a", "1.5", "0:2:0", "0:1,", "0x3", "__import__('os')", "9", "0,0,0", "...,..."])
def test_bad_slices_are_wrong_usage(cli, model_path, text):
    shown = cli("extract", model_path, "layers.0.w", "--slice", text, "-o", "x.npy")
    assert shown.exit_code == 2
    assert "Traceback" not in shown.output


def test_stdout(cli, model_path):
    shown = cli("extract", model_path, "wide", "-o", "-")
    assert np.load(io.BytesIO(shown.stdout_bytes)).tolist() == list(range(3000))
    raw = cli("extract", model_path, "wide", "-o", "-", "--raw")
    assert raw.stdout_bytes == np.arange(3000, dtype="<i8").tobytes()


def test_a_missing_name_is_1(cli, model_path):
    shown = cli("extract", model_path, "nope")
    assert (shown.exit_code, shown.stderr) == (1, f"holdall: {model_path}: there is no tensor 'nope' among the 5\n")


def test_wrong_usage(cli, model_path):
    assert cli("extract", model_path).exit_code == 2
    assert cli("extract", model_path, "wide", "--all", "d").exit_code == 2
    assert cli("extract", model_path, "--all", "d", "-o", "x").exit_code == 2


def test_all_tensors_into_a_folder(cli, model_path, tmp_path):
    shown = cli("extract", model_path, "--all", "out", "--json")
    assert shown.exit_code == 0
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert {row["name"]: row["path"] for row in rows} == {
        "layers.0.b": "out/layers.0.b.bin",
        "layers.0.w": "out/layers.0.w.npy",
        "layers.1.w": "out/layers.1.w.npy",
        "mask": "out/mask.npy",
        "wide": "out/wide.npy",
    }
    for row in rows:
        assert (tmp_path / row["path"]).stat().st_size == row["size"]


def test_no_name_leaves_the_folder(cli, tmp_path):
    path = tmp_path / "x.oinf"
    holdall.save(path, {"..": np.zeros(1), ".": np.zeros(1), "A": np.ones(1), "a": np.zeros(1)})
    before = set(tmp_path.iterdir())
    assert cli("extract", path, "--all", "out").exit_code == 0
    assert set(tmp_path.iterdir()) - before == {tmp_path / "out"}
    assert sorted(item.name for item in (tmp_path / "out").iterdir()) == ["%2E..npy", "%2E.npy", "A.npy", "a~2.npy"]
    assert cli("extract", path, "..").exit_code == 0
    assert (tmp_path / "%2E..npy").is_file()


def test_completion_knows_the_tensors(cli, model_path):
    shown = cli(
        env={"_HOLDALL_COMPLETE": "bash_complete", "COMP_WORDS": f"holdall extract {model_path} lay", "COMP_CWORD": "3"}
    )
    assert shown.output.split() == ["plain,layers.0.b", "plain,layers.0.w", "plain,layers.1.w"]


def test_a_model_without_tensors_is_said_to_have_none(cli, tmp_path):
    holdall.save(tmp_path / "empty.safetensors", {})
    shown = cli("extract", tmp_path / "empty.safetensors", "--all", tmp_path / "out")
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert shown.stderr == f"holdall: {tmp_path / 'empty.safetensors'}: has no tensors: nothing to extract\n"
    assert list((tmp_path / "out").iterdir()) == []
    named = cli("extract", tmp_path / "empty.safetensors", "w")
    assert named.exit_code == 1
    assert "there is no tensor 'w' among the 0" in named.stderr
