"""Damage is named, with the tensors it hits, and repaired from a good copy: the damaged ranges and nothing else."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from holdall.operations.repair import _approve, repair

PAGE = 4096


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(1)
    content = {f"layer.{n}": rng.random((100, 50), np.float32) for n in range(8)}
    holdall.save(tmp_path / "good.aero", content, page_hash=PAGE, control_hash=True, max_shard_bytes=90_000)
    (tmp_path / "bad.aero").write_bytes((tmp_path / "good.aero").read_bytes())
    return tmp_path


def flip(path, *places):
    data = bytearray(path.read_bytes())
    for place in places:
        data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.shows("A37")
def test_pages_and_tensors_are_named(files):
    with holdall.open(files / "good.aero") as model:
        places = [model["layer.3"].offset + 10, model["layer.6"].offset + 9000]
    flip(files / "bad.aero", *places)
    pages = [f for f in holdall.verify(files / "bad.aero").findings if f.rule == "aero.page.blake3"]
    assert len(pages) == 2
    assert "'layer.3'" in pages[0].message
    assert "'layer.6'" in pages[1].message
    assert all(page.offset <= place < page.offset + PAGE for page, place in zip(pages, places, strict=True))


@pytest.mark.shows("A37")
def test_only_damaged_pages_are_replaced(files):
    with holdall.open(files / "good.aero") as model:
        places = [model[f"layer.{n}"].offset + 5000 for n in range(8)]
    flip(files / "bad.aero", *places)
    report = repair(files / "bad.aero", files / "good.aero")
    assert [patch.payload.size for patch in report.patches] == [PAGE] * 8
    assert (files / "bad.aero").read_bytes() == (files / "good.aero").read_bytes()
    assert repair(files / "bad.aero", files / "good.aero").patches == []


@pytest.mark.parametrize("fourcc", ["MJSN", "MMSG", "TIDX", "PHSH"])
def test_damaged_documents_are_replaced_whole(files, fourcc):
    with holdall.open(files / "good.aero") as model:
        chunk = next(chunk for chunk in model.native.chunks if chunk.fourcc == fourcc)
        weights = model["layer.7"].offset
    flip(files / "bad.aero", chunk.offset + chunk.length // 2, weights + 1)
    report = repair(files / "bad.aero", files / "good.aero")
    assert {patch.payload.size for patch in report.patches} == {chunk.length, PAGE}
    assert (files / "bad.aero").read_bytes() == (files / "good.aero").read_bytes()


def test_tensors_or_shards_where_there_are_no_pages(tmp_path):
    content = {"a": np.ones(1000), "b": np.zeros(1000)}
    for options, size in (({"tensor_hash": True}, 8000), ({}, 8000 + 8000)):
        holdall.save(tmp_path / "good.aero", content, **options)
        (tmp_path / "bad.aero").write_bytes((tmp_path / "good.aero").read_bytes())
        with holdall.open(tmp_path / "good.aero") as model:
            flip(tmp_path / "bad.aero", model["b"].offset + 7)
        report = repair(tmp_path / "bad.aero", tmp_path / "good.aero")
        assert [patch.payload.size for patch in report.patches] == [size]
        assert holdall.verify(tmp_path / "bad.aero").ok


def test_a_copy_that_cannot_help_changes_nothing(files):
    with holdall.open(files / "good.aero") as model:
        place = model["layer.2"].offset
    flip(files / "bad.aero", place)
    flip(files / "good.aero", place)
    before = (files / "bad.aero").read_bytes()
    with pytest.raises(holdall.FormatError, match="the copy does not have the right bytes"):
        repair(files / "bad.aero", files / "good.aero")
    holdall.save(files / "other.aero", {"x": np.ones(3)})
    with pytest.raises(holdall.FormatError):
        repair(files / "bad.aero", files / "other.aero")
    assert (files / "bad.aero").read_bytes() == before
    assert sorted(path.name for path in files.iterdir()) == ["bad.aero", "good.aero", "other.aero"]


@pytest.mark.parametrize("cap", [0, 1])
def test_a_result_that_is_not_whole_is_refused_whatever_is_listed(files, cap):
    with holdall.open(files / "good.aero") as model:
        flip(files / "bad.aero", model["layer.2"].offset)
    approve = _approve(holdall.Limits(findings_per_rule=cap))
    approve(files / "good.aero", {})
    reason = "aero: " if cap else "it leaves"
    with pytest.raises(holdall.FormatError, match=f"the copy does not make the file whole: {reason}"):
        approve(files / "bad.aero", {})


def test_a_damaged_control_region_is_not_guessed_at(files):
    flip(files / "bad.aero", 60)  # the uuid
    with pytest.raises(holdall.FormatError, match="header, TOC or string table"):
        repair(files / "bad.aero", files / "good.aero")


def test_the_command(files):
    with holdall.open(files / "good.aero") as model:
        flip(files / "bad.aero", model["layer.1"].offset)
    arguments = ["repair", str(files / "bad.aero"), "--from", str(files / "good.aero")]
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["bytes"] == PAGE
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, "nothing is damaged" in done.stdout) == (0, True)
    done = CliRunner().invoke(main, ["repair", str(files / "bad.aero"), "--from", str(files / "missing.aero")])
    assert done.exit_code == 1
