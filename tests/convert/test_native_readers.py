"""What convert writes is opened by the library of the target, from every source format, and equals the source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdall
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from tests.convert.models import SUFFIX

ASSET = "generation_config.json"
METADATA = {"author": "someone", "note": "text"}
ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "layer.0.weight": np.random.Generator(np.random.PCG64(3)).standard_normal((7, 33)).astype(np.float32),
    "layer.0.bias": np.array([0.0, -0.0, 1.5, np.inf, -np.inf, np.nan, 65504.0], np.float16),
    "large": np.random.Generator(np.random.PCG64(4)).standard_normal((1031, 1021)).astype(np.float32),  # > 4 MiB
}
SOURCES = sorted(SUFFIX)
HAS_METADATA = set(SOURCES) - {"gptrs-archive"}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One file of each format; asset-bearing formats have an asset too."""
    folder = tmp_path_factory.mktemp("sources")
    paths = {}
    for format in SOURCES:
        paths[format] = folder / f"{format}{SUFFIX[format]}"
        assets = {ASSET: b'{"max_length": 20}'} if format in ("hf", "mcf") else {}
        model = Model(
            [Tensor.of(name, values) for name, values in ARRAYS.items()],
            metadata=METADATA if format in HAS_METADATA else {},
            assets=assets,
        )
        holdall.save(paths[format], model, format=format, fsync=False)
    return paths


def _convert(sources: dict[str, Path], source: str, target: str, folder: Path) -> Path:
    out = folder / f"out{SUFFIX[target]}"
    # Without an option a file of the target's format would be copied; dedup makes the writer run.
    report = holdall.convert(sources[source], out, format=target, dedup=True, fsync=False)
    assert report.written
    return out


def _same(found: dict[str, np.ndarray[Any, Any]]) -> None:
    assert sorted(found) == sorted(ARRAYS)
    for name, values in ARRAYS.items():
        assert (found[name].dtype, found[name].shape) == (values.dtype, values.shape), name
        assert np.ascontiguousarray(found[name]).tobytes() == values.tobytes(), name


def _text(metadata: dict[str, Any] | None, source: str) -> None:
    """The entries of the source are there, and none of holdall's own."""
    found = metadata or {}
    assert not [key for key in found if key.startswith("holdall")]
    if source in HAS_METADATA:
        assert {key: found.get(key) for key in METADATA} == METADATA


@pytest.mark.parametrize("source", SOURCES)
def test_safetensors_opens_it(source: str, sources: dict[str, Path], tmp_path: Path) -> None:
    from safetensors import safe_open

    with safe_open(_convert(sources, source, "safetensors", tmp_path), "np") as file:
        _same({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
        _text(file.metadata(), source)


@pytest.mark.parametrize("source", SOURCES)
def test_safetensors_opens_every_file_of_a_folder(source: str, sources: dict[str, Path], tmp_path: Path) -> None:
    from safetensors import safe_open

    out = tmp_path / "folder"
    holdall.convert(sources[source], out, format="hf", max_shard_size="1MB", fsync=False)
    index = json.loads((out / "model.safetensors.index.json").read_text())["weight_map"]
    assert len(set(index.values())) > 1
    found = {}
    for name, member in index.items():
        with safe_open(out / member, "np") as file:
            found[name] = file.get_tensor(name)
            _text(file.metadata(), "gptrs-archive")
    _same(found)
    if source in ("hf", "mcf"):
        assert (out / ASSET).read_bytes() == b'{"max_length": 20}'
    assert not [file.name for file in out.iterdir() if "holdall" in file.name]


@pytest.mark.parametrize("source", SOURCES)
def test_gguf_reader_opens_it(source: str, sources: dict[str, Path], tmp_path: Path) -> None:
    from gguf import GGUFReader

    reader = GGUFReader(_convert(sources, source, "gguf", tmp_path))
    for tensor in reader.tensors:
        assert tuple(tensor.shape[::-1]) == ARRAYS[tensor.name].shape
    _same({tensor.name: tensor.data for tensor in reader.tensors})
    _text({name: field.contents() for name, field in reader.fields.items()}, source)


@pytest.mark.parametrize("source", SOURCES)
def test_torch_loads_it_with_weights_only(source: str, sources: dict[str, Path], tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    state = torch.load(_convert(sources, source, "torch", tmp_path), map_location="cpu", weights_only=True)
    if source != "torch":  # the entries of a torch file stay beside its tensors
        assert sorted(state) == sorted(ARRAYS)
    _same({name: value.numpy() for name, value in state.items() if isinstance(value, torch.Tensor)})


@pytest.mark.parametrize("source", SOURCES)
def test_numpy_loads_it_without_pickles(source: str, sources: dict[str, Path], tmp_path: Path) -> None:
    with np.load(_convert(sources, source, "npz", tmp_path), allow_pickle=False) as file:
        if source != "npz":  # the entries of an npz of ours stay
            assert sorted(file.files) == sorted(ARRAYS)
        _same({name: file[name] for name in file.files if name != "__metadata__"})


@pytest.mark.parametrize("source", SOURCES)
def test_onnx_checks_and_loads_it(source: str, sources: dict[str, Path], tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx import numpy_helper

    path = _convert(sources, source, "onnx", tmp_path)
    onnx.checker.check_model(str(path), full_check=True)
    model = onnx.load(path)
    _same({tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer})
    _text({entry.key: entry.value for entry in model.metadata_props}, source)
