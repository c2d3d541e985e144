"""The name that a model gets in containers that have a place for one: from its configuration, else from its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdall
from holdall.model.model import Model
from holdall.model.tensor import Tensor

SIZES = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 4}
PLACES = {"weights": "model_name", "mcf": "mcf.model_name", "aero": "model_name"}


def make_folder(path: Path, config: bytes) -> None:
    model = Model([Tensor.of("w", np.ones((2, 4), np.float32))], assets={"config.json": config})
    holdall.save(path, model, format="hf")


def convert_name(source: Any, target: Path) -> Any:
    holdall.convert(source, target, **({"fill": "all"} if target.suffix == ".weights" else {}))
    with holdall.open(target) as model:
        if target.suffix != ".aero":
            return model.metadata.get(PLACES[target.suffix[1:]])
        return model.native.manifest["model"]["name"]


@pytest.mark.parametrize("suffix", PLACES)
@pytest.mark.parametrize("spelled", ["{}", "{}/", "{}/../tiny-bert", "."])
def test_the_folder_names_the_model(suffix, spelled, tmp_path, monkeypatch):
    folder = tmp_path / "tiny-bert"
    make_folder(folder, json.dumps(SIZES).encode())
    monkeypatch.chdir(folder)
    assert convert_name(spelled.format(folder), tmp_path / f"m.{suffix}") == "tiny-bert"


@pytest.mark.parametrize("suffix", ["weights", "aero"])
@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("org/all-MiniLM-L6-v2", "all-MiniLM-L6-v2"),
        ("C:\\models\\mine\\", "mine"),
        ("", "tiny-bert"),
        ("./", "tiny-bert"),
        (7, "tiny-bert"),
    ],
)
def test_the_configuration_comes_first(suffix, stated, expected, tmp_path):
    make_folder(tmp_path / "tiny-bert", json.dumps(SIZES | {"_name_or_path": stated}).encode())
    assert convert_name(tmp_path / "tiny-bert", tmp_path / f"m.{suffix}") == expected


def test_a_broken_configuration_does_not_matter_to_a_name(tmp_path):
    make_folder(tmp_path / "tiny-bert", b"{")
    assert convert_name(tmp_path / "tiny-bert", tmp_path / "m.aero") == "tiny-bert"


def test_a_single_file_has_no_name(tmp_path):
    holdall.save(tmp_path / "m.safetensors", {"w": np.ones(2, np.float32)})
    assert convert_name(tmp_path / "m.safetensors", tmp_path / "m.aero") == "unknown"
    with holdall.open(tmp_path / "m.aero") as model:
        holdall.save(tmp_path / "again.aero", model)
    assert (tmp_path / "again.aero").read_bytes() == (tmp_path / "m.aero").read_bytes()


def test_a_set_in_a_folder_keeps_its_name(tmp_path):
    holdall.save(tmp_path / "m.aero", {"w": np.ones(2, np.float32)})
    holdall.convert(tmp_path / "m.aero", tmp_path / "set", format="aeroset")
    assert convert_name(tmp_path / "set", tmp_path / "back.aero") == "unknown"
