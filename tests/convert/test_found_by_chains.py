"""Bugs found by random chains, each as its shortest conversion."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import holdall

W = {"w": np.ones((2, 2), np.float32)}


def test_a_float_that_becomes_text_is_a_loss(tmp_path: Path) -> None:
    holdall.save(tmp_path / "a.oinf", W, metadata={"scale": -2.25})
    report = holdall.convert(tmp_path / "a.oinf", tmp_path / "b.safetensors")
    assert [(loss.name, loss.fate) for loss in report.losses] == [("scale", "text")]
    assert report.lossless is False


@pytest.mark.parametrize("old", ["x", [0.5, 1.5]])
def test_metadata_that_is_given_never_leaves_the_old_value(tmp_path: Path, old: object) -> None:
    holdall.save(tmp_path / "a.oinf", W, metadata={"key": old})
    try:
        holdall.convert(tmp_path / "a.oinf", tmp_path / "b.oinf", metadata={"key": ["no", "numbers"]})
    except holdall.HoldallError:
        return
    with holdall.open(tmp_path / "b.oinf") as model:
        assert model.metadata.get("key", '["no", "numbers"]') == '["no", "numbers"]'


def test_a_complex_tensor_is_not_advised_to_become_integers(tmp_path: Path) -> None:
    holdall.save(tmp_path / "a.safetensors", {"w": np.ones(2, np.complex64)})
    with pytest.raises(holdall.ContentError) as caught:
        holdall.convert(tmp_path / "a.safetensors", tmp_path / "b.oinf")
    assert "--cast" not in str(caught.value)


def test_a_tensor_that_only_a_skeleton_has_is_not_lost_in_silence(tmp_path: Path) -> None:
    holdall.save(tmp_path / "a.safetensors", {**W, "empty": np.ones((0, 3), np.float32)})
    holdall.convert(tmp_path / "a.safetensors", tmp_path / "b.mcf", carry=True)  # mcf has no empty tensors
    report = holdall.convert(tmp_path / "b.mcf", tmp_path / "c.safetensors")
    with holdall.open(tmp_path / "c.safetensors") as model:
        assert "empty" in model or report.lossless is False
