"""Files whose names come out of a model, and reports: no link is followed, the old file stands until the new one."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main


def run(*words, code=0):
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "m.safetensors"
    holdall.save(path, {"w": np.arange(3.0, dtype=np.float32), "b": np.zeros(2, ml_dtypes.bfloat16)})
    return path


@pytest.mark.parametrize(
    ("options", "name"), [((), "w.npy"), (("--raw",), "w.bin"), ((), "b.bin"), (("--cast", "f32"), "b.npy")]
)
def test_a_link_at_a_name_of_the_model_is_replaced_and_not_followed(model, tmp_path, options, name):
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(precious)
    run("extract", model, "--all", tmp_path / "out", *options)
    assert precious.read_bytes() == b"precious"
    assert not (tmp_path / "out" / name).is_symlink()


def test_a_link_that_the_user_names_is_followed(model, tmp_path):
    (tmp_path / "real.npy").write_bytes(b"old")
    (tmp_path / "link.npy").symlink_to("real.npy")
    run("extract", model, "w", "-o", tmp_path / "link.npy")
    assert np.load(tmp_path / "real.npy").tolist() == [0, 1, 2]
    assert (tmp_path / "link.npy").is_symlink()


def test_a_link_at_the_default_name_is_not_followed(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "w.npy").symlink_to("precious")
    run("extract", model, "w")
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert np.load(tmp_path / "w.npy").tolist() == [0, 1, 2]


def test_a_report_that_cannot_be_written_leaves_the_old_one(model, tmp_path, monkeypatch):
    report = tmp_path / "a report.html"
    report.write_text("old")

    def fail(*arguments, **named):
        raise OSError(28, "No space left on device", str(report))

    monkeypatch.setattr("holdall.sink.output.Output.finish", fail)
    run("diff", model, model, "--report", report, code=1)
    assert report.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a report.html", "m.safetensors"]


def test_no_folder_is_made_of_a_name_so_none_can_be_swapped_for_a_link(tmp_path, monkeypatch):
    """Links stand where folders of the names would be, before the first file and again before each."""
    names = ["sub/x", "sub/deep/y", "../up", "/abs/z", "a\\b", "sub"]
    path, outside, out = tmp_path / "m.safetensors", tmp_path / "outside", tmp_path / "out"
    holdall.save(path, {name: np.full(3, at, np.float32) for at, name in enumerate(names)})
    outside.mkdir()
    (outside / "deep").mkdir()
    out.mkdir()

    def set_traps():
        for name in ("sub", "abs", "..", "up", "a"):
            if not (out / name).exists():
                (out / name).symlink_to(outside)

    from holdall.sink.staging import Staging

    plain = Staging.publish

    def publish(self, *words):
        set_traps()
        plain(self, *words)

    monkeypatch.setattr(Staging, "publish", publish)
    set_traps()
    run("extract", path, "--all", out)
    assert [each.name for each in outside.rglob("*")] == ["deep"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m.safetensors", "out", "outside"]
    written = {each.name: np.load(each).tolist() for each in out.glob("*.npy")}
    assert written == {
        f"{name}.npy": [at] * 3
        for at, name in enumerate(["sub%2Fx", "sub%2Fdeep%2Fy", "%2E.%2Fup", "%2Fabs%2Fz", "a%5Cb", "sub"])
    }
