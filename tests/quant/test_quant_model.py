"""Whole models: which tensors are quantized, their payloads and records, and the report."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import holdall
from holdall.model.model import model_of
from holdall.model.tensor import Tensor
from holdall.operations.convert.convert import convert
from holdall.quant import (
    METHODS,
    MethodRule,
    Policy,
    Quantization,
    dequantize_model,
    payloads,
    quantize,
    quantize_model,
)
from holdall.quant.model import quantize_tensor
from holdall.quant.policy import parse_rule
from holdall.quant.record import QuantRecord
from holdall.quant.report import compare
from holdall.report.file import write_report
from holdall.report.quant_page import RENDERERS


def weights(rows=96, cols=130, seed=0):
    return np.random.default_rng(seed).normal(0, 0.02, (rows, cols)).astype(np.float32)


def content():
    return {
        "embed.weight": weights(seed=1).astype(np.float16),
        "layer.0.weight": weights(seed=2),
        "layer.0.norm.weight": np.ones((4, 64), np.float32),
        "layer.0.bias": np.zeros((2, 64), np.float32),
        "layer.0.scale": np.ones(8, np.float32),
        "layer.0.index": np.arange(256, dtype=np.int32).reshape(2, 128),
        "layer.0.narrow": weights(100, 1),
        "conv": np.ones((2, 3, 4), np.float32),
    }


def methods(policy):
    chosen = {t.name: policy.choose(t).method for t in model_of(content()).tensors}
    return {name: method.name for name, method in chosen.items() if method is not None}


def test_default_policy():
    assert methods(Policy()) == {"embed.weight": "k4", "layer.0.weight": "k4"}


def test_policies():
    rules = (parse_rule("embed*=q8"), parse_rule("*.bias=none"), MethodRule("conv", "int8"))
    assert methods(Policy("k6", rules)) == {"embed.weight": "q8", "layer.0.weight": "k6", "conv": "int8"}
    assert methods(Policy(include=("layer.0.*",))) == dict.fromkeys(
        ("layer.0.weight", "layer.0.norm.weight", "layer.0.bias"), "k4"
    )
    assert methods(Policy(exclude=("embed*",))) == {"layer.0.weight": "k4"}
    assert methods(Policy(min_size=100_000)) == {}
    everything = {"embed.weight", "layer.0.weight", "layer.0.norm.weight", "layer.0.bias", "layer.0.narrow"}
    assert set(methods(Policy(every=True))) == everything


@pytest.mark.parametrize("bad", ["embed", "=q8", "x=k9", ""])
def test_wrong_rules(bad):
    with pytest.raises(holdall.UnsupportedError):
        parse_rule(bad)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("held", [True, False], ids=["held", "two passes"])
@pytest.mark.parametrize("mode", ["reference", "ieee", "best"])
def test_payloads_are_those_of_arrays(name, held, mode, monkeypatch):
    if METHODS[name].family == "int" and mode == "reference":
        return
    if not held:
        monkeypatch.setattr(payloads, "_HELD", 0)
    for size in ("_SEARCHED", "_QUICK"):
        monkeypatch.setattr(payloads, size, 16 * 300)  # so that a small tensor has many jobs
    v = weights(203, 300)
    for array in (v, v.astype(np.float16)):
        tensor = quantize_tensor(Tensor.of("w", array), METHODS[name], mode=mode)
        wanted = quantize(array, name, mode=mode)
        assert bytes(tensor.raw()) == bytes(wanted.payload)
        assert tensor.native == QuantRecord(name, "weights", *wanted.clip)


def test_importance_clip_and_progress(tmp_path):
    v, columns = weights(seed=2), np.arange(130, dtype=np.float32)
    seen = []
    small = quantize_model(
        model_of(content()), "k3", clip=(-0.03, 0.03), importance={"layer.0.weight": columns},
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    wanted = quantize(v, "k3", clip=(-0.03, 0.03), importance=columns)
    assert bytes(small["layer.0.weight"].raw()) == bytes(wanted.payload)
    assert seen[-1][0] == seen[-1][1] == 96 * 130 * 6


def test_not_finite_is_refused_before_anything_is_written(tmp_path):
    v = weights()
    v[17, 4] = np.nan
    holdall.save(tmp_path / "in.safetensors", {"a": weights(), "w": v})
    with pytest.raises(holdall.ContentError, match=r"tensor 'w'.*\[17, 4\]"):
        convert(tmp_path / "in.safetensors", tmp_path / "out.mcf", quantize="k4")
    assert [path.name for path in tmp_path.iterdir()] == ["in.safetensors"]


def test_a_conversion_reports_its_plan_and_a_dry_run_reads_no_values(tmp_path, capsys):
    spoiled = weights()
    spoiled[3, 5] = np.inf
    holdall.save(tmp_path / "in.safetensors", {"a": weights(), "b.bias": np.ones(4, np.float32), "w": spoiled})
    request = Quantization("k4", mode="ieee", rules=["w=q8"], exclude=["nothing*"])
    seen = []
    done = convert(tmp_path / "in.safetensors", tmp_path / "out.mcf", quantize=request, dry_run=True,
                   progress=lambda done, total: seen.append((done, total)))  # fmt: skip
    plan = done.quantization
    assert [(t.name, t.method, t.reason, t.nbytes) for t in plan.tensors] == [
        ("a", "k4", "matrix", 96 * 130 * 4),
        ("b.bias", None, "rank 1", 16),
        ("w", "q8", "rule w", 96 * 130 * 4),
    ]
    assert [t.planned_nbytes for t in plan.tensors] == [
        quantize(weights(), m).nbytes if m else 16 for m in ("k4", None, "q8")
    ]
    assert plan.methods == {"a": "k4", "w": "q8"}
    assert plan.unmatched == (("exclude", "nothing*"),)
    assert seen == []
    with pytest.raises(holdall.ContentError, match=r"tensor 'w'.*\[3, 5\] is inf"):
        convert(tmp_path / "in.safetensors", tmp_path / "out.mcf", quantize=request, progress=lambda *a: seen.append(a))
    assert seen[-1] == (96 * 130 * 4, 2 * 96 * 130 * 4)  # the survey, up to the tensor that it refuses
    assert [path.name for path in tmp_path.iterdir()] == ["in.safetensors"]
    assert capsys.readouterr() == ("", "")


def test_a_target_without_a_place_is_refused_before_values_are_read(tmp_path):
    holdall.save(tmp_path / "in.safetensors", {"w": np.full((8, 64), np.nan, np.float32)})
    with pytest.raises(holdall.UnsupportedError, match=r"npz cannot hold mcf\.q8; these can: mcf"):
        convert(tmp_path / "in.safetensors", tmp_path / "out.npz", quantize="q8")


@pytest.mark.shows("M46")
def test_there_and_back(tmp_path):
    holdall.save(tmp_path / "in.safetensors", content())
    convert(tmp_path / "in.safetensors", tmp_path / "out.mcf", quantize="q8")
    assert holdall.verify(tmp_path / "out.mcf", level="strict").ok
    with holdall.open(tmp_path / "out.mcf") as small:
        assert str(small["layer.0.weight"].dtype) == "mcf.q8"
        assert str(small["layer.0.bias"].dtype) == "f32"
        q = quantize(weights(seed=2), "q8")
        assert bytes(small["layer.0.weight"].raw()) == bytes(q.payload)
        assert small["layer.0.weight"].native == QuantRecord("q8", "weights", *q.clip)
        plain = dequantize_model(small, "bf16")
        assert str(plain["layer.0.weight"].dtype) == "bf16"
        assert np.allclose(plain["layer.0.weight"].numpy().astype(np.float32), q.numpy(), rtol=2**-8)
    convert(tmp_path / "out.mcf", tmp_path / "back.safetensors", dequantize=True)
    with holdall.open(tmp_path / "back.safetensors") as back:
        assert np.array_equal(back["layer.0.weight"].numpy(), q.numpy())


@pytest.fixture
def report(tmp_path):
    source = model_of({**content(), "<b>&": weights(seed=5)})
    return compare(source, quantize_model(source, "k2", rules=["embed*=q8"]), names=("in <x>", "out"), mode="best")


def test_report_figures(report):
    by_name = {each.name: each for each in report.tensors}
    assert set(by_name) == {"embed.weight", "layer.0.weight", "<b>&"}
    assert by_name["embed.weight"].measures.snr_db > 40
    assert by_name["layer.0.weight"].measures.snr_db < 10
    assert report.worst[-1] == "embed.weight"
    bins = by_name["layer.0.weight"].errors
    assert sum(bins.counts) == 96 * 130
    assert report.total.count == 3 * 96 * 130


def test_report_pages(report, tmp_path):
    for suffix in (".html", ".json", ".md"):
        write_report(tmp_path / f"report{suffix}", report, RENDERERS)
    facts = json.loads((tmp_path / "report.json").read_text())
    assert len(facts["tensors"]) == 3
    assert facts["total"]["bits_per_weight"] > 2
    page = (tmp_path / "report.html").read_text()
    assert "<b>&" not in page
    assert "&lt;b&gt;&amp;" in page
    assert page.count("<svg") == 1 + len(report.worst)
    assert not re.search(r"<script|https?://|<link|src=", page)
    assert "| `layer.0.weight` | k2 |" in (tmp_path / "report.md").read_text()
    with pytest.raises(holdall.UnsupportedError, match=r"report\.pdf: the name of a report ends in \.html, "):
        write_report(tmp_path / "report.pdf", report, RENDERERS)
    assert not (tmp_path / "report.pdf").exists()


def test_nothing_to_report():
    plain = model_of({"w": weights()})
    with pytest.raises(holdall.MissingError):
        compare(plain, plain)
