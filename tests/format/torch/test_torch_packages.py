"""Packages of torch.package: pickles are found by their content, and what is not read is said."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main

torch = pytest.importorskip("torch")
package = pytest.importorskip("torch.package")
PackageExporter, PackageImporter = package.PackageExporter, package.PackageImporter

pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage")


def export(path: Path, *steps) -> Path:
    """The package that torch writes after these steps, each the name of a method and its arguments."""
    with PackageExporter(path) as exporter:
        exporter.extern("**")
        for method, *arguments in steps:
            getattr(exporter, method)(*arguments)
    return path


@pytest.mark.parametrize("name", ["net", "weights.dat", "model.pt", "x.pickle", "x.PKL", "data.pkl"])
def test_a_pickle_of_any_name(tmp_path, name):
    path = export(tmp_path / "p.pt", ("save_pickle", "models", name, torch.nn.Linear(2, 3)))
    expected = PackageImporter(path).load_pickle("models", name).state_dict()
    lead = f"models.{name.removesuffix('.pkl')}"
    with holdall.open(path) as model:
        assert list(model) == [f"{lead}.{key}" for key in expected]
        for key, tensor in expected.items():
            np.testing.assert_array_equal(model[f"{lead}.{key}"].numpy(), tensor.numpy())
        assert model.native.opaque.what == f"a torch.package with 1 pickle (models/{name})"
    (finding,) = holdall.verify(path).findings
    assert finding.rule == "torch.pickle.opaque" and "torch.nn.modules.linear.Linear" in finding.message


def test_resources_that_are_no_pickles_are_not_read_and_said(tmp_path):
    legacy = tmp_path / "legacy.pt"
    torch.save({"w": torch.ones(1)}, legacy, _use_new_zipfile_serialization=False)
    path = export(
        tmp_path / "p.pt",
        ("save_pickle", "a", "z.pkl", {"q": torch.ones(1)}),
        ("save_binary", "a", "y.pkl", b"not a pickle"),
        ("save_text", "a", "x.pkl", "hello."),
        ("save_binary", "a", "empty", b""),
        ("save_binary", "a", "head", b"\x80\x02"),
        ("save_binary", "a", "nested.pt", legacy.read_bytes()),
        ("save_source_string", "own", "x = 1\n"),
        ("save_binary", "b", "plain", pickle.dumps({"n": 3})),
    )
    with holdall.open(path) as model:
        assert list(model) == ["a.z.q"] and dict(model.metadata) == {"b.plain": {"n": 3}}
        assert set(model.native.opaque.others) == {"a/y.pkl", "a/x.pkl", "a/empty", "a/head", "a/nested.pt"}
    report = holdall.verify(path, level="full")
    (finding,) = report.findings
    assert report.ok and (finding.rule, finding.severity) == ("torch.package.resource", "note")
    assert finding.message == (
        "torch: the file is a torch.package with 2 pickles (a/z.pkl, b/plain); resources that are no pickles of "
        "protocol 2 or later are not read: a/y.pkl, a/x.pkl, a/empty and 2 more"
    )
    shown = CliRunner().invoke(main, ["info", str(path)])
    assert "not read    5 resources, no pickles: a/y.pkl, a/x.pkl, a/empty and 2 more" in shown.output


def test_a_package_without_pickles(tmp_path):
    path = export(tmp_path / "p.pt", ("save_text", "a", "t.txt", "text"))
    with holdall.open(path) as model:
        assert not list(model) and model.native.opaque.what == "a torch.package with 0 pickles"
    assert "not read: a/t.txt" in holdall.verify(path).findings[0].message


def test_a_damaged_pickle_is_an_error(tmp_path):
    path = export(tmp_path / "p.pt", ("save_pickle", "a", "z.pkl", {"q": 1}))
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(tmp_path / "cut.pt", "w") as target:
        for name in source.namelist():
            target.writestr(name, source.read(name)[:-1] if name.endswith("z.pkl") else source.read(name))
    report = holdall.verify(tmp_path / "cut.pt")
    assert report.verdict == "not ok" and report.findings[0].rule == "torch.pickle.broken"


LOOK_ALIKES = {
    "noise": b"\x80\x02\xff\xff\xff.",
    "range": b"\x80\x04" + bytes(range(200, 250)) + b".",
    "two pickles": pickle.dumps([1]) + pickle.dumps([2]),
    "a cut pickle": pickle.dumps(["one.two"])[: pickle.dumps(["one.two"]).index(b".two") + 1],
    "too few values": b"\x80\x02s.",
    "objects before the end": pickle.dumps([Path("x"), np.arange(3.0), {(1, (2, 3)): 4}])[:-1] + b"\xff.",
}


@pytest.mark.parametrize("name", ["data.bin", "data.pkl"])
@pytest.mark.parametrize("content", LOOK_ALIKES.values(), ids=LOOK_ALIKES)
def test_a_resource_that_only_looks_like_a_pickle_is_a_resource(tmp_path, content, name):
    """It leaves nothing behind: no class, no array, no storage."""
    array = np.arange(4.0)
    path = export(
        tmp_path / "p.pt",
        ("save_pickle", "a", "one.pkl", {"w": torch.ones(2), "array": array}),
        ("save_binary", "b", name, content),
        ("save_pickle", "c", "two.pkl", {"w": torch.zeros(3), "array": array + 1}),
    )
    assert PackageImporter(path).load_binary("b", name) == content
    with holdall.open(path) as model:
        assert sorted(model) == ["a.one.array", "a.one.w", "c.two.array", "c.two.w"]
        assert model["a.one.array"].numpy().tolist() == array.tolist()
        assert model["c.two.array"].numpy().tolist() == (array + 1).tolist()
        assert model["c.two.w"].numpy().tolist() == [0, 0, 0]
        opaque = model.native.opaque
        assert (list(opaque.others), opaque.arrays, dict(opaque.classes)) == ([f"b/{name}"], 2, {})
    report = holdall.verify(path, level="full")
    assert report.ok and [finding.rule for finding in report.findings] == ["torch.package.resource"]
    assert f"not read: b/{name}" in report.findings[0].message


@pytest.mark.parametrize("level", ["structure", "full"])
def test_a_pickle_whose_bytes_changed_is_an_error_beside_others_that_are_whole(tmp_path, level):
    steps = [("save_pickle", "a", f"{name}.pkl", {"some words": 1}) for name in ("x", "y")]
    path = export(tmp_path / "p.pt", *steps)
    data = bytearray(path.read_bytes())
    data[data.rindex(b"some words") - 4] = 0xFF  # the size of the text
    path.write_bytes(data)
    report = holdall.verify(path, level=level)
    assert report.verdict == "not ok" and report.findings[0].rule == "torch.pickle.broken"


def test_a_package_of_which_no_pickle_is_whole(tmp_path):
    cut = pickle.dumps({"q": 1})[:-1]
    bare = export(tmp_path / "bare.pt", ("save_binary", "a", "data.bin", LOOK_ALIKES["noise"]))
    with holdall.open(bare) as model:
        assert model.native.opaque.what == "a torch.package with 0 pickles" and not list(model)
    named = export(tmp_path / "p.pt", ("save_binary", "a", "x.pkl", cut), ("save_text", "a", "t.txt", "text"))
    report = holdall.verify(named)
    assert report.verdict == "not ok" and "the pickle ends early" in report.findings[0].message
