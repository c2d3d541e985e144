"""Sections of MCF that nothing of a model is read from: damaged ones and second ones are carried, or named as lost."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from holdall.format.mcf.layout import MODELINFO
from holdall.format.mcf.modelinfo import ModelInfo
from tests.format.mcf.build import Entry, with_tensors

W = Entry(b"w", 1, (4,), np.arange(4, dtype="<f4").tobytes())
CONFIG, TOKENIZER = 0x100, 0x101


def damage_info():
    data = bytearray(ModelInfo(model_name="tiny").encode())
    at = MODELINFO.offset_of("model_name_off")
    data[at : at + 8] = (9999).to_bytes(8, "little")
    return bytes(data)


def run(*words):
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def damaged(tmp_path):
    path = tmp_path / "x.mcf"
    path.write_bytes(with_tensors([W], [(1, damage_info())]))
    return path


def test_a_damaged_model_info_is_named_by_convert_and_info(damaged, tmp_path):
    report = holdall.convert(damaged, tmp_path / "y.safetensors")
    assert not report.lossless
    assert [loss.name for loss in report.losses] == ["ModelInfo"]
    with pytest.raises(holdall.ContentError, match=r"ModelInfo.*cannot be read as metadata"):
        holdall.convert(damaged, tmp_path / "z.safetensors", strict=True)
    shown = run("info", damaged)
    assert "no problems" not in shown
    assert "ModelInfo is damaged" in shown


def test_a_damaged_model_info_stays_and_is_not_replaced(damaged, tmp_path):
    holdall.convert(damaged, tmp_path / "y.mcf", options={"tensor_align": 128}, strict=True)
    holdall.edit(damaged, rename={"w": "v"})
    for path in (damaged, tmp_path / "y.mcf"):
        with holdall.open(path) as model:
            assert model.native.section("ModelInfo").data == damage_info()
    before = damaged.read_bytes()
    with pytest.raises(holdall.ContentError, match="ModelInfo cannot be read"):
        holdall.edit(damaged, set={"mode": "fast"})
    with pytest.raises(holdall.ContentError, match="ModelInfo cannot be read"):
        holdall.convert(damaged, tmp_path / "z.mcf", metadata={"mode": "fast"})
    assert damaged.read_bytes() == before


def list_sections(path):
    with holdall.open(path) as model:
        tables = ("TensorData", "TensorIndex")
        return sorted((s.name, s.version, s.data) for s in model.native.sections if s.name not in tables)


def test_second_sections_of_a_type_are_carried_and_named_elsewhere(tmp_path):
    path, edited = tmp_path / "x.mcf", tmp_path / "edited.mcf"
    info = [(1, ModelInfo(model_name=name).encode()) for name in ("first", "second")]
    extra = [*info, (CONFIG, b'{"a":1}'), (0x200, b"unknown"), (CONFIG, b'{"b":2}'), (CONFIG, b'{"c":3}')]
    path.write_bytes(with_tensors([W], extra))
    shutil.copy(path, edited)
    sections = list_sections(path)
    assert holdall.convert(path, tmp_path / "y.mcf", options={"tensor_align": 128}, strict=True).lossless
    assert holdall.edit(edited, rename={"w": "v"}).changes == ["tensor 'w' is called 'v'"]
    for copy in (tmp_path / "y.mcf", edited):
        assert list_sections(copy) == sections
        with holdall.open(copy) as model:
            assert model.assets["config.json"] == b'{"a":1}'
            assert model.metadata["mcf.model_name"] == "first"
    report = holdall.convert(path, tmp_path / "y.safetensors")
    names = [loss.name for loss in report.losses if loss.part == "native"]
    assert sorted(name.split(" at ")[0] for name in names) == ["0x0200", "ModelInfo", "config.json", "config.json"]
    assert len(set(names)) == 4
    assert [loss.name for loss in report.losses if loss.part == "asset"] == ["config.json"]


def test_an_asset_that_is_removed_is_not_followed_by_the_second(tmp_path):
    path = tmp_path / "x.mcf"
    path.write_bytes(with_tensors([W], [(CONFIG, b'{"a":1}'), (CONFIG, b'{"b":2}'), (TOKENIZER, b"{}")]))
    holdall.edit(path, assets={"config.json": None})
    with holdall.open(path) as model:
        assert "config.json" not in model.assets


def test_a_second_index_is_named(tmp_path):
    path = tmp_path / "x.mcf"
    path.write_bytes(with_tensors([W], [(4, b"more data"), (CONFIG, b"{}")]))
    report = holdall.convert(path, tmp_path / "y.mcf", options={"tensor_align": 128})
    assert not report.lossless
    before = path.read_bytes()
    with pytest.raises(holdall.ContentError, match=r"TensorData at byte .* an edit would lose it"):
        holdall.edit(path, rename={"w": "v"})
    assert path.read_bytes() == before
