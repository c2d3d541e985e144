"""The packed models in tests/golden/packed, and what their own libraries read from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import holdall

__all__ = ["FOLDER", "GoldenModel", "compare_values", "list_golden", "read_golden"]

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "packed"
_BITS = {"bfloat16": 8, "bf16": 8, "float16": 11, "f16": 11, "float32": 24, "f32": 24}  # of a significand


@dataclass(frozen=True)
class GoldenModel:
    """A packed model, the numbers of its weights, and how many roundings of their type these may differ by."""

    name: str
    path: Path
    scheme: str
    oracle: str
    roundings: int
    expected: Mapping[str, NDArray[Any]]
    types: Mapping[str, str]
    original: Mapping[str, NDArray[Any]]


def list_golden() -> list[str]:
    """The names of all models."""
    return sorted(path.name.removesuffix(".expected.safetensors") for path in FOLDER.glob("*.expected.safetensors"))


def read_golden(name: str) -> GoldenModel:
    """Read a model with what is expected of it."""
    folder = FOLDER / name
    path = folder if (folder / "config.json").exists() else folder / "model.safetensors"
    with holdall.open(FOLDER / f"{name}.expected.safetensors") as model:
        values = {tensor.name: tensor.numpy().astype(np.float32) for tensor in model.tensors}
        types = {tensor.name: str(tensor.dtype) for tensor in model.tensors}
        about = dict(model.metadata)
    original = {key.removeprefix("original."): each for key, each in values.items() if key.startswith("original.")}
    expected = {key: each for key, each in values.items() if not key.startswith("original.")}
    return GoldenModel(
        name, path, about["scheme"], about["oracle"], int(about["roundings"]), expected, types, original
    )  # fmt: skip


def compare_values(found: NDArray[Any], wanted: NDArray[Any], dtype: str, roundings: int) -> str:
    """Say how two arrays differ by more than so many roundings of ``dtype``; empty if they do not."""
    if found.shape != wanted.shape:
        return f"has the shape {found.shape}, and should have {wanted.shape}"
    if np.array_equal(found, wanted, equal_nan=True):
        return ""
    with np.errstate(divide="ignore"):
        exponents = np.floor(np.log2(np.maximum(np.abs(found), np.abs(wanted))))
    allowed = roundings * np.exp2(exponents - (_BITS[dtype] - 1))
    wrong = ~(np.abs(found - wanted) <= allowed)
    if not wrong.any():
        return ""
    at = tuple(int(each[0]) for each in wrong.nonzero())
    return f"has {int(wrong.sum())} other numbers of {wrong.size}, at {at} {found[at]} for {wanted[at]}"
