"""Ranges of activations: against the forward pass of the books, from the command line, and as bounds for quantizing."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from holdall.errors import ContentError
from holdall.model.model import model_of
from holdall.runtime import Embedder, WordPiece
from tests.runtime.tiny import CONFIG, TEXTS, VOCAB, folder_model, forward, tensors


def activations(prefix=""):
    """What each module gives for all texts, in float64."""
    seen: dict[str, list] = {}
    for text in TEXTS:
        forward(tensors(), WordPiece(VOCAB, max_length=12).encode(text), seen)
    return {prefix + name: np.concatenate(parts) for name, parts in seen.items()}


@pytest.mark.parametrize("prefix", ["", "bert."])
@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_ranges_agree_with_the_books(prefix, batch_size):
    embedder = Embedder(model_of(tensors(prefix)), vocab=VOCAB, config=CONFIG)
    before = embedder.embed(TEXTS)
    found, want = embedder.calibrate(TEXTS, batch_size), activations(prefix)
    assert list(found) == list(want) and len(found) == 1 + 4 * 2
    for name, values in want.items():
        assert found[name] == pytest.approx((values.min(), values.max()), abs=3e-6), name
    assert np.array_equal(embedder.embed(TEXTS), before)  # nothing is recorded any more


def test_ranges_of_several_calls_are_apart():
    embedder = Embedder(model_of(tensors()), vocab=VOCAB, config=CONFIG)
    one, two = embedder.calibrate(TEXTS[:1]), embedder.calibrate(TEXTS[1:2])
    both = embedder.calibrate(TEXTS[:2])
    for name, (low, high) in both.items():
        assert low == pytest.approx(min(one[name][0], two[name][0]), abs=1e-6)
        assert high == pytest.approx(max(one[name][1], two[name][1]), abs=1e-6)


def test_what_cannot_be_recorded():
    embedder = Embedder(model_of(tensors()), vocab=VOCAB, config=CONFIG)
    with pytest.raises(ContentError, match="there is no text to calibrate with"):
        embedder.calibrate([])
    broken = tensors()
    broken["encoder.layer.1.intermediate.dense.bias"][3] = np.nan
    with pytest.raises(ContentError, match=r"activation 'encoder\.layer\.1\.intermediate' has values that are not"):
        Embedder(model_of(broken), vocab=VOCAB, config=CONFIG).calibrate(TEXTS)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    holdall.save("encoder", folder_model(), format="hf", fsync=False)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")

    def call(*arguments):
        return CliRunner().invoke(main, list(arguments))

    return call


def test_the_command_line(run, tmp_path):
    ran = run("calibrate", "encoder", "--input", "texts.txt", "-o", "ranges.json")
    assert (ran.exit_code, ran.output) == (0, "ranges.json: 9 ranges over 6 texts\n"), ran.output
    ranges = json.loads((tmp_path / "ranges.json").read_text())
    embedder = Embedder(holdall.open("encoder"))
    assert ranges == {name: list(bounds) for name, bounds in embedder.calibrate(TEXTS).items()}
    shown = run("calibrate", "encoder", "a mat").output
    assert shown.startswith("activation") and "encoder.layer.1.intermediate" in shown
    answer = json.loads(run("calibrate", "encoder", *TEXTS, "--json").output)
    assert answer == {"texts": 6, "ranges": ranges}


@pytest.mark.parametrize("method", ["int8", "int4"])
def test_activations_are_stored_in_recorded_bounds(run, tmp_path, method):
    run("calibrate", "encoder", "-i", "texts.txt", "-o", "ranges.json")
    ranges = json.loads((tmp_path / "ranges.json").read_text())
    trace = {name: np.tile(values, (20, 1)).astype(np.float32) * 2 for name, values in activations().items()}
    holdall.save("trace.safetensors", trace)  # twice as wide as recorded: values beyond the bounds are cut
    options = ("--method", method, "--domain", "activations", "--clips", "ranges.json")
    ran = run("quantize", "trace.safetensors", "trace.mcf", *options)
    assert ran.exit_code == 0, ran.output
    assert f"policy: {method}, mode best, activations" in ran.output
    bits = 8 if method == "int8" else 4
    with holdall.open("trace.mcf") as model:
        for name, values in trace.items():
            low, high = np.float32(ranges[name])
            record = model[name].native
            assert (record.method, record.domain) == (method, "activations")
            assert (record.min_clip, record.max_clip) == (low, high)
            step = (float(high) - float(low)) / (2**bits - 1)
            miss = np.abs(model[name].numpy() - np.clip(values, low, high))
            assert miss.max() <= step * 1.01  # half a step, and up to half a step because the zero point is whole


def test_bounds_that_fit_nothing(run, tmp_path):
    holdall.save("trace.safetensors", {"w": np.ones((64, 64), np.float32), "x": np.ones((64, 64), np.float32)})
    options = ("quantize", "trace.safetensors", "out.mcf", "--method", "int8", "--domain", "activations", "--clips")
    (tmp_path / "r.json").write_text('{"y": [0, 1]}')
    ran = run(*options, "r.json")
    assert ran.exit_code == 1 and "r.json: has no bounds for a tensor to be quantized, but for 'y'" in ran.output
    (tmp_path / "r.json").write_text('{"w": [0, 1], "y": [0, 1]}')
    ran = run(*options, "r.json")
    assert (
        ran.exit_code == 0
        and "r.json: has bounds for 1 other tensor than those to be quantized, such as 'y'" in ran.output
    )
    for text, message in (
        ("[1]", "is not a JSON object with two numbers, low and high, for each name"),
        ('{"w": [1]}', "is not a JSON object with two numbers, low and high, for each name"),
        ("{", "is not JSON"),
        ('{"w": [0, 1%s]}' % ("0" * 400), "clip bounds are two finite numbers, the lower one first, not 0 and inf"),
        ('{"w": [2, 1]}', "tensor 'w': clip bounds are two finite numbers, the lower one first, not 2 and 1"),
    ):
        (tmp_path / "r.json").write_text(text)
        ran = run(*options, "r.json")
        assert ran.exit_code == 1 and message in ran.output, ran.output
    ran = run("quantize", "trace.safetensors", "out.mcf", "--domain", "activations")
    assert ran.exit_code == 2 and "k4 is for weights; int8 and int4 also take activations" in ran.output
