"""Several safetensors files in a folder, with the index that makes them one model."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors

import holdall
from holdall.format import registry
from holdall.format.safetensors import FORMAT
from holdall.format.sharding import split_by_size
from holdall.model.model import model_of
from holdall.sink import write_folder
from holdall.sink.plan import FolderPlan

ARRAYS = {f"layers.{n}.weight": np.random.default_rng(n).random((256, 1024), np.float32) for n in range(7)}  # 1 MiB


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As a conversion with a split writes it: three parts and what the format adds."""
    model = model_of(ARRAYS, {"format": "pt"})
    tensors = list(model.tensors)
    starts = [0, *split_by_size([tensor.nbytes for tensor in tensors], 3 << 20)]
    assert starts == [0, 3, 6]
    parts = [tensors[start : start + 3] for start in starts]
    named = {f"m-{n:05}-of-{len(parts):05}.safetensors": part for n, part in enumerate(parts, 1)}
    files = {name: FORMAT.plan(model.replace(tensors=part), FORMAT.settings({})) for name, part in named.items()}
    write_folder(tmp_path / "m", FolderPlan({**files, **FORMAT.split_files("m", named)}))
    return tmp_path / "m"


def test_the_index_is_read_as_transformers_reads_it(folder: Path) -> None:
    index = json.loads((folder / "m.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": sum(values.nbytes for values in ARRAYS.values())}
    assert list(index["weight_map"]) == sorted(ARRAYS)
    for name, file in index["weight_map"].items():
        with safetensors.safe_open(folder / file, "np") as part:
            assert part.get_tensor(name).tobytes() == ARRAYS[name].tobytes()
    for file in sorted(set(index["weight_map"].values())):
        with safetensors.safe_open(folder / file, "np") as part:
            assert {index["weight_map"][name] for name in part.keys()} == {file}  # noqa: SIM118  # not a mapping


def test_the_folder_opens_as_one_model(folder: Path, tmp_path: Path) -> None:
    with holdall.open(folder) as model:
        assert (model.format, sorted(model), len(model.native.files)) == ("hf", sorted(ARRAYS), 3)
        assert {name: model[name].numpy().tobytes() for name in model} == {k: v.tobytes() for k, v in ARRAYS.items()}
    assert holdall.verify(folder, level="strict").findings == []
    holdall.convert(folder, tmp_path / "one.oinf", carry=False)
    assert not holdall.diff(folder, tmp_path / "one.oinf")


def test_formats_say_whether_they_can_be_split() -> None:
    able = [name for name in registry.names() if registry.find(name).splits]
    assert able == ["gguf", "safetensors"]
    assert registry.find("oinf").split_files("m", {"m-00001-of-00001.oinf": []}) == {}
