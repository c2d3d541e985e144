"""``holdall quantize``: it prints the policy first, then does the work, then reports it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from holdall.quant import quantize
from tests.golden import golden


def weights(seed, rows=64, cols=300):
    return np.random.default_rng(seed).normal(0, 0.02, (rows, cols)).astype(np.float32)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.safetensors"
    holdall.save(path, {"embed.weight": weights(1), "fc.weight": weights(2), "fc.bias": np.ones(64, np.float32)})
    return path


def run(*arguments):
    return CliRunner().invoke(main, ["quantize", *map(str, arguments)])


def test_policy_is_printed_and_followed(source, tmp_path):
    ran = run(source, tmp_path / "out.mcf", "--method", "k3", "--rule", "embed*=q8", "--report", tmp_path / "r.html")
    assert ran.exit_code == 0, ran.output
    assert ran.output.index("policy: k3, mode best") < ran.output.index("predicted:") < ran.output.index("wrote ")
    assert "rule embed*" in ran.output
    assert "signal to noise" in ran.output
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    with holdall.open(tmp_path / "out.mcf") as model:
        assert {t.name: str(t.dtype) for t in model.tensors} == {
            "embed.weight": "mcf.q8",
            "fc.weight": "mcf.k3",
            "fc.bias": "f32",
        }
        assert bytes(model["fc.weight"].raw()) == bytes(quantize(weights(2), "k3").payload)


def test_the_plan_is_shown_before_any_value_is_read(tmp_path):
    values = weights(2)
    values[3, 4] = np.nan
    holdall.save(tmp_path / "nan.safetensors", {"fc.weight": values})
    (tmp_path / "out.mcf").write_bytes(b"old")
    ran = run(tmp_path / "nan.safetensors", tmp_path / "out.mcf")
    assert ran.exit_code == 1 and "predicted:" in ran.output and "'fc.weight'" in ran.output
    assert (tmp_path / "out.mcf").read_bytes() == b"old"


def test_a_dry_run_in_python_has_the_plan_and_reads_no_value(tmp_path):
    values = weights(2)
    values[3, 4] = np.nan
    holdall.save(tmp_path / "nan.safetensors", {"fc.weight": values, "norm": np.ones(4, np.float32)})
    planned = holdall.convert(tmp_path / "nan.safetensors", tmp_path / "out.mcf", quantize="k4", dry_run=True)
    assert planned.quantization.methods == {"fc.weight": "k4"} and not (tmp_path / "out.mcf").exists()


def test_dry_run_predicts_the_size_and_writes_nothing(source, tmp_path):
    dry = run(source, tmp_path / "out.mcf", "--dry-run", "--json")
    assert dry.exit_code == 0, dry.output
    assert not (tmp_path / "out.mcf").exists()
    assert run(source, tmp_path / "out.mcf", "--json").exit_code == 0
    assert json.loads(dry.output)["size"] == (tmp_path / "out.mcf").stat().st_size
    assert "would write" in run(source, tmp_path / "new.mcf", "--dry-run").output
    assert "would replace" in run(source, tmp_path / "out.mcf", "--dry-run").output


def test_json_says_what_convert_says(source, tmp_path):
    ran = run(source, tmp_path / "out.mcf", "--json")
    converted = CliRunner().invoke(main, ["convert", str(source), str(tmp_path / "copy.mcf"), "--json"])
    facts, others = json.loads(ran.output), json.loads(converted.output)
    assert list(facts) == [*others, "methods", "idle", "total"]
    assert (facts["source"], facts["source_format"]) == ([str(source)], ["safetensors"])
    assert (facts["lossless"], others["lossless"]) == (False, True)
    assert facts["size"] == (tmp_path / "out.mcf").stat().st_size


def test_importance_and_clip(source, tmp_path):
    columns = np.arange(300, dtype=np.float32)
    np.savez(tmp_path / "w.npz", **{"fc.weight": columns})
    options = ("--importance", tmp_path / "w.npz", "--clip", "-0.03", "0.03", "--exclude", "embed*")
    ran = run(source, tmp_path / "out.mcf", *options)
    assert ran.exit_code == 0, ran.output
    with holdall.open(tmp_path / "out.mcf") as model:
        wanted = quantize(weights(2), "k4", importance=columns, clip=(-0.03, 0.03))
        assert bytes(model["fc.weight"].raw()) == bytes(wanted.payload)
    np.savez(tmp_path / "w.npz", other=columns)
    message = f"{tmp_path / 'w.npz'}: has weights for 'other', which is no tensor to be quantized"
    assert message in run(source, tmp_path / "out.mcf", *options).output


@pytest.mark.parametrize(
    "options",
    [
        ("--method", "k9"),
        ("--rule", "x"),
        ("--min-size", "big"),
        ("--report", "r.pdf"),
        ("--clip", "1", "-1"),
        ("--method", "int8", "--mode", "reference"),
        ("--rule", "*=int4", "--mode", "reference"),
    ],
)
def test_wrong_usage_is_one_sentence(source, tmp_path, options):
    ran = run(source, tmp_path / "out.mcf", *options)
    assert ran.exit_code == 2
    assert ran.stdout == ""
    assert "Traceback" not in ran.output
    assert not (tmp_path / "out.mcf").exists()


def test_a_container_without_a_place_for_it_is_refused(source, tmp_path):
    ran = run(source, tmp_path / "out.oinf")
    assert ran.exit_code == 1
    assert "oinf cannot hold mcf.k4; these can: mcf" in ran.output
    assert not (tmp_path / "out.oinf").exists()


@pytest.mark.parametrize(
    ("options", "reasons"),
    [
        (("--include", "nomatch"), "2 tensors: not included; 1 tensor: rank 1"),
        (("--exclude", "*"), "3 tensors: excluded by *"),
        (("--min-size", "1M"), "2 tensors: 19200 elements; 1 tensor: rank 1"),
    ],
)
@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--json",)], ids=str)
def test_a_mere_copy_is_refused(source, tmp_path, options, reasons, more):
    ran = run(source, tmp_path / "out.mcf", *options, *more)
    assert ran.exit_code == 1
    assert f"no tensor is chosen ({reasons}); holdall convert makes a copy" in ran.stderr
    assert ran.stdout == ""
    assert not (tmp_path / "out.mcf").exists()


def test_what_is_quantized_already_is_refused(source, tmp_path):
    assert run(source, tmp_path / "out.mcf").exit_code == 0
    ran = run(tmp_path / "out.mcf", tmp_path / "again.mcf")
    assert ran.exit_code == 1
    assert "2 tensors: is mcf.k4 already; 1 tensor: rank 1" in ran.stderr


def test_a_rule_can_say_that_nothing_is_quantized(source, tmp_path):
    ran = run(source, tmp_path / "out.mcf", "--rule", "*.weight=none", "--report", tmp_path / "r.md")
    assert ran.exit_code == 0, ran.output
    assert "nothing to report" in ran.output


def test_help_says_what_it_writes():
    assert "TARGET is an MCF file" in run("--help").output


@pytest.mark.parametrize("name", ["quant_k4", "quant_none_k4", "quant_q4_clip_asym", "edge_q8"])
def test_reference_files(name, tmp_path):
    folder = golden("mcf")
    asked = json.loads((folder / f"{name}.expected.json").read_text())["quantize"]
    clip = asked["clip"] or []
    clip = list(clip.values()) if isinstance(clip, dict) else clip
    options = ["--clip", *clip] if clip else []
    ran = run(folder / asked["input"], tmp_path / "o.mcf", "--method", asked["method"], "--mode", "reference", *options)
    assert ran.exit_code == 0, ran.output
    assert (tmp_path / "o.mcf").read_bytes() == (folder / f"{name}.mcf").read_bytes()


def test_an_interrupt_leaves_nothing_behind(tmp_path):
    wide = np.random.default_rng(0).normal(size=(8192, 4096)).astype(np.float32)
    holdall.save(tmp_path / "in.safetensors", {f"w{n}": wide for n in range(2)}, fsync=False)
    command = [sys.executable, "-m", "holdall", "quantize", "in.safetensors", "out.mcf", "--threads", "1"]
    where = {**os.environ, "PYTHONPATH": str(Path(holdall.__file__).parent.parent)}
    running = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=where)
    try:
        for _ in range(400):
            if any(path.suffix == ".part" for path in tmp_path.iterdir()) or running.poll() is not None:
                break
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=30)
    finally:
        running.kill()
    assert running.returncode == 130
    assert errors.decode().strip() == "holdall: interrupted"
    assert [path.name for path in tmp_path.iterdir()] == ["in.safetensors"]


def test_bits_per_weight_are_of_the_whole_model(source, tmp_path):
    ran = run(source, tmp_path / "out.mcf", "--method", "k4", "--report", tmp_path / "r.json")
    with holdall.open(tmp_path / "out.mcf") as model:
        stored = sum(tensor.nbytes for tensor in model.tensors)
        elements = sum(int(np.prod(tensor.shape)) for tensor in model.tensors)
    assert elements == 2 * 64 * 300 + 64
    assert f"  {8 * stored / elements:.3f} bits per weight of the whole model" in ran.output
    facts = json.loads((tmp_path / "r.json").read_text())
    assert facts["elements"] == elements
    assert facts["total"]["bits_per_weight"] == 8 * stored / elements
    assert facts["total"]["bits_per_weight"] > max(each["bits_per_weight"] for each in facts["tensors"])  # the bias
    run(source, tmp_path / "out.mcf", "--method", "k4", "--report", tmp_path / "r.md")
    assert f"{8 * stored / elements:.3f}, of the whole model" in (tmp_path / "r.md").read_text()


@pytest.mark.parametrize("mode", ["best", "reference"])
def test_a_model_without_tensors_is_not_quantized(tmp_path, mode):
    holdall.save(tmp_path / "empty.safetensors", {})
    ran = run(tmp_path / "empty.safetensors", tmp_path / "out.mcf", "--mode", mode)
    assert ran.exit_code == 1
    assert "the source has no tensors: there is nothing to quantize" in ran.output
    assert not (tmp_path / "out.mcf").exists()


@pytest.mark.parametrize("method", ["int8", "int4"])
def test_flat_methods_take_any_rank(tmp_path, method):
    shapes = {"conv": (16, 8, 3, 3), "cube": (4, 8, 16), "matrix": (32, 32), "gain": (512,), "many": (2, 2, 2, 2, 64)}
    arrays = {name: weights(n, 1, int(np.prod(s))).reshape(s) for n, (name, s) in enumerate(shapes.items())}
    holdall.save(tmp_path / "in.safetensors", arrays)
    assert run(tmp_path / "in.safetensors", tmp_path / "out.mcf", "--method", method).exit_code == 0
    with holdall.open(tmp_path / "out.mcf") as model:
        assert {t.name for t in model.tensors if str(t.dtype) == f"mcf.{method}"} == {"conv", "cube", "matrix", "many"}
        for name in ("conv", "many"):
            step = np.abs(arrays[name]).max() / (127 if method == "int8" else 7)
            assert model[name].shape == shapes[name]
            assert np.sqrt(np.mean((model[name].numpy() - arrays[name]) ** 2)) < step
    assert run(tmp_path / "in.safetensors", tmp_path / "v.mcf", "--method", method, "--include", "gain").exit_code == 0
    with holdall.open(tmp_path / "v.mcf") as model:
        assert {t.name for t in model.tensors if str(t.dtype) == f"mcf.{method}"} == {"gain"}


def test_block_methods_leave_other_ranks(tmp_path):
    holdall.save(tmp_path / "in.safetensors", {"conv": weights(1).reshape(64, 3, 10, 10), "w": weights(2)})
    assert "rank 4" in run(tmp_path / "in.safetensors", tmp_path / "out.mcf", "--method", "k4").output
    with holdall.open(tmp_path / "out.mcf") as model:
        assert {t.name: str(t.dtype) for t in model.tensors} == {"conv": "f32", "w": "mcf.k4"}
