"""Files of very many tensors that holdall writes open, verify and convert under the default limits, in every format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdall

OPTIONS: dict[str, dict[str, Any]] = {
    "aero": {},
    "aeroset": {},
    "embd": {},
    "gguf": {},
    "gptrs-archive": {},
    "gptrs-checkpoint": {"config": {"kind": "crowd"}},
    "hf": {},
    "mcf": {},
    "npz": {},
    "oinf": {},
    "onnx": {},
    "safetensors": {},
    "torch": {},
}


def check_crowd(folder: Path, format: str, count: int, **options: Any) -> None:
    """Write ``count`` tensors, read them back, verify them, and convert them."""
    weights = {f"layers.{number}.weight": np.array([number], np.float32) for number in range(count)}
    path, target = folder / "crowd", folder / ("crowd.npz" if format == "safetensors" else "crowd.safetensors")
    holdall.save(path, weights, format=format, **OPTIONS[format], **options)
    del weights
    assert_crowd(path, format, count)
    report = holdall.verify(path, format=format)
    assert report.ok, report.findings[:3]
    holdall.convert(path, target)
    assert_crowd(target, None, count)


def assert_crowd(path: Path, format: str | None, count: int) -> None:
    with holdall.open(path, format=format) as model:
        assert len(model.tensors) == count
        for number in (0, 1, count // 2, count - 1):
            assert model[f"layers.{number}.weight"].numpy().tolist() == [number]


def test_every_format_is_here() -> None:
    assert set(OPTIONS) == set(holdall.formats())


@pytest.mark.parametrize("format", OPTIONS)
def test_twenty_thousand_tensors(tmp_path: Path, format: str) -> None:
    check_crowd(tmp_path, format, 20_000)


def test_an_index_that_is_eight_times_as_large_as_its_file(tmp_path: Path) -> None:
    check_crowd(tmp_path, "aero", 100_000, align=1)


@pytest.mark.long
@pytest.mark.parametrize("format", OPTIONS)
def test_a_million_tensors(tmp_path: Path, format: str) -> None:
    check_crowd(tmp_path, format, 1_000_000)
