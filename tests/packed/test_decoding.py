"""Decoding never returns codes: a model whose scheme is not recognized is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
import holdall.numpy
from holdall.cli import main
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


def test_a_report_measures_the_numbers_of_packed_weights(tmp_path: Path) -> None:
    for name in ("gptq-4", "fp8-blocks", "ct-int8-rows"):
        told = tmp_path / f"{name}.json"
        ran = CliRunner().invoke(
            main, ["quantize", str(FOLDER / name), str(tmp_path / "m.mcf"), "--method", "q8", "--report", str(told)]
        )
        assert ran.exit_code == 0, ran.output
        assert json.loads(told.read_text())["total"]["snr_db"] > 35


def test_a_report_that_fails_leaves_one_sentence_and_the_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **settings: object) -> None:
        raise holdall.ContentError("the disk is full of reports")

    monkeypatch.setattr("holdall.quant.report.compare", fail)
    target = tmp_path / "m.mcf"
    command = ["quantize", str(FOLDER / "gptq-4"), str(target), "--report", str(tmp_path / "r.json"), "--json"]
    ran = CliRunner().invoke(main, command)
    assert ran.exit_code == 1 and target.exists()
    told = json.loads(ran.stdout)
    assert told["lossless"] is not None and told["total"] is None
    assert told["report_error"].endswith("is written and whole, and its report failed: the disk is full of reports")
    assert ran.stderr.count("the disk is full of reports") == 1 and "Traceback" not in ran.stderr


def test_values_beyond_the_type_are_counted(tmp_path: Path) -> None:
    codes = np.array([[127, -127, 1], [127, 0, 1]], np.int8)
    scales = np.array([1e6, 1], np.float32)  # bitsandbytes: f16 where nothing states a type
    holdall.numpy.save_file({"a.weight": codes, "a.SCB": scales}, tmp_path / "m.safetensors")
    report = holdall.convert(tmp_path / "m.safetensors", tmp_path / "plain.safetensors", dequantize=True)
    assert "tensor 'a.weight': 2 values are beyond f16 and now infinite or NaN" in report.changes
    found = holdall.numpy.load_file(tmp_path / "plain.safetensors")["a.weight"]
    assert int(np.isinf(found).sum()) == 2
    wide = holdall.convert(tmp_path / "m.safetensors", tmp_path / "f32.safetensors", dequantize=True, cast="f32")
    assert not any("beyond" in change for change in wide.changes)


def test_indices_are_no_codes(tmp_path: Path) -> None:
    """A configuration may ask for weights to be quantized when they are loaded; the file has plain ones."""
    tensors = {"a.weight": np.ones((2, 3), np.float32), "position_ids": np.arange(4, dtype=np.int64)[None]}
    holdall.numpy.save_file(tensors, tmp_path / "model.safetensors")
    config = {"model_type": "tiny", "quantization_config": {"quant_method": "torchao", "quant_type": "int8"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert holdall.numpy.load_file(tmp_path, decode=True).keys() == tensors.keys()
    holdall.convert(tmp_path, tmp_path / "m.npz")
