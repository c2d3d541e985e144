"""Traces: the order of execution, the first step beyond a tolerance, and the reports."""

import json
import random
import struct
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from holdall.operations.trace_order import order_steps

# The steps in the order in which gpt-rs records them in its two vision models.
RESNET = ["input.nhwc", "stem.conv1", "stem.relu", "stem.maxpool"]
for stage, count in enumerate((3, 4, 6, 3), 1):
    for block in range(count):
        down = ["downsample"] if stage > 1 and block == 0 else []
        RESNET += [f"layer{stage}.{block}.{s}" for s in (*down, "conv1", "relu1", "conv2", "add", "relu2")]
RESNET += ["avgpool", "flatten", "logits"]
MOBILENET = ["input.nhwc", "stem.conv", "stem.relu6"]
for block in range(17):
    wide = ["expand", "expand.relu6"] if block else []
    MOBILENET += [f"blocks.{block}.{s}" for s in (*wide, "depthwise", "depthwise.relu6", "project", "add")]
MOBILENET += ["head.conv", "head.relu6", "avgpool", "flatten", "logits"]


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def build_archive(tensors):
    """A tensor archive of f32 tensors in the given order, by struct alone."""
    index, data = struct.pack("<I", len(tensors)), b""
    size = 4 + sum(29 + len(name.encode()) + 8 * values.ndim for name, values in tensors.items())
    for name, values in tensors.items():
        index += struct.pack("<I", len(name.encode())) + name.encode() + struct.pack("<I", values.ndim)
        index += struct.pack(f"<{values.ndim}Q", *values.shape)
        index += struct.pack("<IBQQ", 0, 0, 16 + size + len(data), values.nbytes)
        data += values.tobytes()
    return b"GPTRSTEN" + struct.pack("<II", 2, size) + index + data


def make_trace(names, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal((3, 5), np.float32) for name in names}


@pytest.mark.parametrize("steps", [RESNET, MOBILENET], ids=["resnet34", "mobilenet_v2"])
def test_sorted_names_come_back_in_execution_order(steps):
    assert sorted(steps) != steps
    assert order_steps(sorted(steps), sorted(steps)) == (steps, "names")


def test_names_of_a_transformer():
    steps = ["tok_embeddings", "pos_embeddings", "blocks.2.ln_1", "blocks.2.attention.out", "blocks.2.ln_2"]
    steps += ["blocks.2.feed_forward", "blocks.10.ln_1", "final_ln", "lm_head", "logits"]
    assert order_steps(sorted(steps), sorted(steps)) == (steps, "names")


def test_a_file_that_is_not_sorted_states_the_order():
    assert order_steps(["z", "a", "m"], ["a", "m", "z"]) == (["z", "a", "m"], "file")
    assert order_steps(["a", "m", "z"], ["z", "q", "a", "m"]) == (["z", "q", "a", "m"], "file")
    assert order_steps(["b", "a"], ["0", "a", "c", "z"]) == (["0", "b", "a", "c", "z"], "file")


def test_listed_names_come_first():
    assert order_steps(["a", "b", "c"], ["a", "d"], ["c", "none", "a", "c"]) == (["c", "a", "b", "d"], "listed")


def test_the_first_step_beyond_the_tolerance_is_named(tmp_path):
    a = make_trace(RESNET)
    b = {name: values.copy() for name, values in a.items()}
    rng, first = random.Random(3), RESNET.index("layer3.4.conv2")
    for name in RESNET[:first]:  # noise below the tolerance, from the start
        b[name].flat[rng.randrange(15)] += np.float32(4e-6)
    for number, name in enumerate(RESNET[first:]):
        b[name] += np.float32(1e-4 * 1.2**number)
    holdall.save(tmp_path / "a.gptrsten", a)
    holdall.save(tmp_path / "b.gptrsten", b)
    found = holdall.diff_trace(tmp_path / "a.gptrsten", tmp_path / "b.gptrsten", tolerance=1e-5)
    assert (found.first.name, found.first.number) == ("layer3.4.conv2", first + 1) and found
    assert [step.name for step in found.steps] == RESNET
    for step in found.steps:
        error = np.abs(a[step.name].astype(np.float64) - b[step.name]).max()
        assert step.error == pytest.approx(error, rel=1e-12)
        assert step.verdict == ("within" if error <= 1e-5 else "beyond")
    assert not holdall.diff_trace(tmp_path / "a.gptrsten", tmp_path / "b.gptrsten", tolerance=10)
    assert holdall.diff_trace(tmp_path / "a.gptrsten", tmp_path / "a.gptrsten", tolerance=0).first is None


def test_a_file_in_execution_order_is_walked_as_it_is():
    a = make_trace(["zeta", "beta", "alpha"])
    b = {name: values + np.float32(name != "zeta") for name, values in a.items()}
    found = holdall.diff_trace(build_archive(a), build_archive(b))
    assert (found.order, [step.name for step in found.steps], found.first.name) == ("file", list(a), "beta")
    found = holdall.diff_trace(build_archive(a), build_archive(b), order=["alpha"])
    assert (found.order, found.first.name) == ("listed", "alpha")


def test_steps_that_cannot_be_measured():
    a = make_trace(["a", "b", "c", "d"])
    b = {"a": a["a"], "b": a["b"].reshape(5, 3), "c": np.where(a["c"] > 0, np.inf, a["c"]).astype(np.float32)}
    assert np.isinf(b["c"]).any()
    found = holdall.diff_trace(build_archive(a), build_archive({**b, "e": a["a"]}))
    assert [(s.name, s.verdict, s.error) for s in found.steps] == [
        ("a", "within", 0.0),
        ("b", "beyond", np.inf),
        ("c", "beyond", np.inf),
        ("d", "only a", None),
        ("e", "only b", None),
    ]
    assert found.first.detail == "[3, 5] became [5, 3]"
    assert found.steps[2].detail == f"{np.isinf(b['c']).sum()} values not finite on one side"
    only = holdall.diff_trace(build_archive({"a": a["a"]}), build_archive({"a": a["a"], "b": a["b"]}))
    assert (bool(only), only.first, [step.name for step in only.missing]) == (True, None, ["b"])
    assert str(only).endswith(": 1 step within 1e-05; 1 step in one trace only")
    apart = holdall.diff_trace(build_archive({"a": a["a"]}), build_archive({"b": a["b"]}))
    assert str(apart).endswith(": no step is in both; 2 steps in one trace only") and apart


def test_traces_in_other_containers_and_types(tmp_path):
    a = make_trace(["x", "y"])
    holdall.save(tmp_path / "a.gptrsten", a)
    np.savez(tmp_path / "b.npz", y=a["y"].astype(np.float64), x=a["x"].astype(np.float16))
    found = holdall.diff_trace(tmp_path / "a.gptrsten", tmp_path / "b.npz", tolerance=1e-6)
    assert (found.order, [step.name for step in found.steps], found.first.name) == ("file", ["y", "x"], "x")
    assert found.steps[1].error == np.abs(a["x"] - a["x"].astype(np.float16).astype(np.float64)).max()


@pytest.mark.parametrize("tolerance", [-1, float("nan"), float("inf")])
def test_a_tolerance_is_a_number(tolerance):
    with pytest.raises(holdall.ContentError, match="a tolerance is a number from 0 up"):
        holdall.diff_trace(build_archive({}), build_archive({}), tolerance=tolerance)


def test_the_command(tmp_path):
    a, b = tmp_path / "a.gptrsten", tmp_path / "b.gptrsten"
    content = make_trace(MOBILENET)
    holdall.save(a, content)
    holdall.save(
        b, {**content, "blocks.10.add": content["blocks.10.add"] + np.float32(0.25), "logits": -content["logits"]}
    )
    at = MOBILENET.index("blocks.10.add") + 1
    result = run("diff", a, b, "--trace", "--tolerance", "1e-5")
    assert result.exit_code == 1, result.output
    says = f"the first beyond 1e-05 is step {at} of {len(MOBILENET)}, 'blocks.10.add': differs by 0.25; 2 steps beyond"
    assert says in result.stdout and "--order FILE" in result.stdout
    shown = json.loads(run("diff", a, b, "--trace", "--json").stdout)
    assert (shown["first"], shown["order"], shown["different"], shown["tolerance"]) == (
        "blocks.10.add",
        "names",
        True,
        1e-5,
    )
    assert [row["name"] for row in shown["steps"]] == MOBILENET
    assert shown["steps"][at - 1] == {
        "step": at, "name": "blocks.10.add", "verdict": "beyond", "error": 0.25, "rmse": 0.25,
        "cosine": pytest.approx(shown["steps"][at - 1]["cosine"]), "wild": 0,
    }  # fmt: skip
    (tmp_path / "order.txt").write_text("logits\n")
    shown = json.loads(run("diff", a, b, "--trace", "--json", "--order", tmp_path / "order.txt").stdout)
    assert (shown["first"], shown["order"]) == ("logits", "listed")
    assert run("diff", a, a, "--trace", "--tolerance", "0").exit_code == 0
    for wrong in (["--tolerance", "1"], ["--order", a], ["--trace", "--quick"], ["--trace", "--tolerance", "-1"]):
        assert run("diff", a, b, *wrong).exit_code == 2


def test_reports_have_a_mark_for_each_step(tmp_path):
    a, b = tmp_path / "a.gptrsten", tmp_path / "b.gptrsten"
    content = make_trace([*RESNET, "<x>"])
    changed = {name: values + np.float32(1e-3 * (name > "layer4")) for name, values in content.items()}
    changed["logits"] = np.full((3, 5), np.nan, np.float32)
    holdall.save(a, content)
    holdall.save(b, changed)
    found = holdall.diff_trace(a, b)
    for suffix in ("html", "svg", "json"):
        assert run("diff", a, b, "--trace", "--report", tmp_path / f"r.{suffix}").exit_code == 1
    plot = ET.fromstring((tmp_path / "r.svg").read_text())
    circles = plot.findall("{http://www.w3.org/2000/svg}circle")
    assert len(circles) == len(found.steps) == len(RESNET) + 1
    places = [float(circle.get("cx")) for circle in circles]
    assert places == sorted(places)
    red = {circle[0].text.split(": ")[0] for circle in circles if circle.get("fill") == "#c8553d"}
    assert red == {f"step {step.number}, {step.name}" for step in found.steps if step.verdict == "beyond"}
    heights = {circle[0].text.split(", ")[1].split(":")[0]: float(circle.get("cy")) for circle in circles}
    assert heights["logits"] < heights["stem.relu"] < heights["input.nhwc"]  # infinite, 1e-3, 0: upwards is smaller
    page = (tmp_path / "r.html").read_text()
    assert f"step {found.first.number}, {found.first.name}" in page and "&lt;x&gt;" in page and "<script" not in page
    assert json.loads((tmp_path / "r.json").read_text())["first"] == found.first.name
    assert run("diff", a, b, "--report", tmp_path / "plain.svg").exit_code == 1
    assert not (tmp_path / "plain.svg").exists()
