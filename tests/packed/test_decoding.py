"""Where decoding was asked for, nobody gets codes: a model whose scheme is not recognized is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdall
import holdall.numpy
from tests.packed.golden import FOLDER


def copy_model(name: str, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Copy a packed model with another configuration."""
    shutil.copytree(FOLDER / name, folder)
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def name_unknown(config: dict[str, Any]) -> None:
    config["quantization_config"]["quant_method"] = "quark"


def drop_groups(config: dict[str, Any]) -> None:
    del config["quantization_config"]["config_groups"]


def empty_groups(config: dict[str, Any]) -> None:
    config["quantization_config"]["config_groups"] = {}


def drop_bits(config: dict[str, Any]) -> None:
    for key in ("quantization", "quantization_config"):
        config.pop(key, None)
    config["quantization"] = {"group_size": 64}


def drop_algorithm(config: dict[str, Any]) -> None:
    del config["quantization_config"]["quant_algo"]


def test_a_file_without_its_configuration_is_refused() -> None:
    with pytest.raises(holdall.ContentError, match=r"tensor '.*weight_scale_inv' .*no scheme that holdall decodes"):
        holdall.numpy.load_file(FOLDER / "fp8-blocks" / "model.safetensors", decode=True)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("gptq-4", name_unknown),
        ("fp8-blocks", name_unknown),
        ("ct-int4-groups", drop_groups),
        ("ct-int4-groups", empty_groups),
        ("mlx-4", drop_bits),
        ("nvfp4-stated", drop_algorithm),
    ],
)
def test_codes_of_an_unknown_scheme_are_refused(
    name: str, change: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    folder = copy_model(name, tmp_path / "model", change)
    with pytest.raises(holdall.ContentError, match="tensor '"):
        holdall.numpy.load_file(folder, decode=True)
    assert holdall.numpy.load_file(folder)  # what is stored stays readable


def test_scales_without_their_codes_are_refused(tmp_path: Path) -> None:
    folder = copy_model("fp8-blocks", tmp_path / "model", lambda config: None)
    stored = holdall.numpy.load_file(folder / "model.safetensors")
    left = {name: each for name, each in stored.items() if "scale" in name or each.dtype.itemsize > 1}
    holdall.numpy.save_file(left, folder / "model.safetensors")
    with pytest.raises(holdall.ContentError, match="weight_scale_inv"):
        holdall.numpy.load_file(folder, decode=True)


def test_plain_models_are_decoded_to_themselves(tmp_path: Path) -> None:
    holdall.numpy.save_file({"a.weight": np.ones((2, 3), np.float32)}, tmp_path / "m.safetensors")
    assert holdall.numpy.load_file(tmp_path / "m.safetensors", decode=True)["a.weight"].sum() == 6
