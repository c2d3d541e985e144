"""Saving a model: what its format has no place for is refused, never left out in silence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.format import registry


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    holdall.save(tmp_path / "folder", {"w": np.ones((2, 3), np.float32)}, format="hf")
    (tmp_path / "folder" / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "folder" / "tokenizer.json").write_text("{}")
    return tmp_path / "folder"


@pytest.mark.parametrize("format", [name for name in registry.names() if not registry.find(name).holds.assets])
def test_files_beside_the_weights_are_refused_where_they_have_no_place(folder: Path, format: str) -> None:
    target = folder.parent / "target"
    with (
        holdall.open(folder) as model,
        pytest.raises(holdall.ContentError, match=r"no place for assets: (config\.json, )?tokenizer\.json: holdall\."),
    ):
        holdall.save(target, model, format=format)
    assert not target.exists()
    with holdall.open(folder) as model:
        holdall.save(target, {name: tensor.numpy() for name, tensor in model.items()}, format=format)
    with holdall.open(target, format=format) as written:
        assert np.array_equal(written["w"].numpy(), np.ones((2, 3)))


def test_a_vocabulary_and_a_configuration_have_places_of_their_own(folder: Path, tmp_path: Path) -> None:
    ones = holdall.Tensor.of("w", np.ones((2, 3), np.float32))
    holdall.save(tmp_path / "m.weights", holdall.Model([ones], assets={"vocab.txt": b"a\nb\n"}), format="embd")
    with holdall.open(tmp_path / "m.weights") as model:
        assert list(model.vocab) == ["a", "b"]
    (folder / "tokenizer.json").unlink()
    with holdall.open(folder) as model:
        holdall.save(tmp_path / "m", model, format="gptrs-checkpoint")
    with holdall.open(tmp_path / "m") as model:
        assert model.config["config"] == {"model_type": "llama"}


@pytest.mark.parametrize("format", ["hf", "mcf"])
def test_files_beside_the_weights_are_kept_where_they_have_a_place(folder: Path, format: str) -> None:
    target = folder.parent / "target"
    with holdall.open(folder) as model:
        holdall.save(target, model, format=format)
    with holdall.open(target) as written:
        assert {"config.json", "tokenizer.json"} <= set(written.assets)
