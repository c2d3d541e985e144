"""One file of a packed model, opened without the others and without their folder: its codes are not cast."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import holdall
from holdall.errors import ContentError
from tests.packed.golden import FOLDER

CODES = np.ones((4, 8), ml_dtypes.float8_e4m3fn)


def refuse_cast(path: Path, message: str) -> None:
    with pytest.raises(ContentError, match=message):
        holdall.convert(path, path.parent / "out.safetensors", cast={"*": "f32"})
    assert not (path.parent / "out.safetensors").exists()


def write(path: Path, **tensors: NDArray[Any]) -> Path:
    holdall.save(path, {name.replace("__", "."): values for name, values in tensors.items()})
    return path


@pytest.mark.parametrize("name", ["a__weight_scale_inv", "a__qzeros", "a__SCB", "a__weight__absmax", "a__qweight"])
def test_a_part_without_the_others_is_not_cast(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors", **{name: np.ones((2, 2), np.int32), "b": np.ones(2, np.float16)})
    refuse_cast(path, "the other parts are not here")


def test_the_whole_model_beside_its_configuration_is_not_cast(tmp_path: Path) -> None:
    shutil.copytree(FOLDER / "fp8-blocks", tmp_path / "m")
    holdall.convert(tmp_path / "m" / "model.safetensors", tmp_path / "copy.safetensors")
    lone = write(tmp_path / "m" / "lone.safetensors", a__weight=CODES)
    refuse_cast(lone, "config.json beside the file, has a quantization_config: give the folder")


@pytest.mark.parametrize("values", [CODES, np.ones((2, 2), np.int32)], ids=["f8", "i32"])
def test_one_shard_is_not_cast(values: NDArray[Any], tmp_path: Path) -> None:
    shard = write(tmp_path / "model-00001-of-00002.safetensors", a__weight=values)
    refuse_cast(shard, "one file of several")


def test_files_that_belong_to_no_quantized_model_are_cast(tmp_path: Path) -> None:
    lone = write(tmp_path / "model.safetensors", a__weight=CODES)
    holdall.convert(lone, tmp_path / "out.safetensors", cast={"*": "f32"})
    only = write(tmp_path / "model-00001-of-00001.safetensors", a__weight=CODES)
    holdall.convert(only, tmp_path / "out.safetensors", cast={"*": "f32"})
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 8}))
    shard = write(tmp_path / "model-00001-of-00002.safetensors", a__weight=CODES)
    holdall.convert(shard, tmp_path / "out.safetensors", cast={"*": "f32"})
