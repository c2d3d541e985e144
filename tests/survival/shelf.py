"""One model in every format that can be written, old enough that a change of any file shows in its time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.errors import FormatError
from holdall.format import registry

OPTIONS = {
    "aeroset": {"max_shard_bytes": 64 << 10, "part_shards": 1},
    "hf": {"max_shard_size": "64kB"},
}
OLD = 1_000_000_000  # seconds since 1970

# What a change may raise: the file is shorter, or not the one that was opened, or a part of a set is not there.
# A part of an AEROSET is opened when it is first needed, and then it has to be what the index says.
NOTICED = ("core.short", "core.changed", "core.member", "aeroset.file", "aeroset.size", "aero.header.magic")


def values() -> dict[str, np.ndarray]:
    random = np.random.default_rng(11)
    return {f"layers.{n}.weight": random.standard_normal((64, 48), np.float32) for n in range(12)}


def writers() -> list[str]:
    return [name for name in registry.names() if registry.find(name).writes]


def put(folder: Path, name: str) -> Path:
    """The model in the format ``name``: a file, or a folder of them."""
    path = folder / (name if registry.find(name).folder else f"model{registry.find(name).suffixes[0]}")
    holdall.save(path, values(), format=name, fsync=False, **OPTIONS.get(name, {}))
    if name == "onnx":
        _move_out(path)
    for file in files(path):
        os.utime(file, (OLD, OLD))
    return path


def _move_out(path: Path) -> None:
    """The tensors of an ONNX file into a file beside it, as large models have them."""
    onnx = pytest.importorskip("onnx")
    from onnx.external_data_helper import convert_model_to_external_data

    model = onnx.load(path)
    convert_model_to_external_data(model, location="model.data", size_threshold=0)
    onnx.save(model, path)


def copied(path: Path, to: Path) -> Path:
    """A copy with the same times."""
    copy = shutil.copytree if path.is_dir() else shutil.copy2
    return Path(copy(path, to / path.name))


def files(path: Path) -> list[Path]:
    """The files of a model: itself, or all in its folder; and what lies beside an ONNX file."""
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    return sorted(path.parent.glob("model.*"))


def right(model: holdall.Model, names: list[str] | None = None) -> Iterator[str]:
    """The names of tensors as their numbers turn out to be right."""
    expected = values()
    for name in expected if names is None else names:
        assert model[name].numpy().tobytes() == expected[name].tobytes(), f"wrong numbers in {name}"
        yield name


def noticed(error: BaseException, paths: list[Path]) -> bool:
    """Whether an error says that a file has changed, and which one."""
    named = any(path.name in str(error) for path in paths)
    return named and (isinstance(error, OSError) or (isinstance(error, FormatError) and error.rule in NOTICED))
