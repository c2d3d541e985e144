"""Comparison across containers: what is equal, what is not, and how far apart."""

from __future__ import annotations

import sys
from math import inf
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import holdall
from holdall import oinf
from holdall.diff import TensorDifference
from holdall.model import Model
from holdall.reports import difference_html
from holdall.tensor import Tensor

A = np.random.default_rng(0).standard_normal((64, 33)).astype(np.float32)


def _only(a: object, b: object) -> TensorDifference:
    found = holdall.diff(Model([Tensor.of("w", a)]), Model([Tensor.of("w", b)]))  # type: ignore[arg-type]
    assert len(found.tensors) == 1
    return found.tensors[0]


def test_a_file_equals_itself(tmp_path: Path) -> None:
    holdall.save(tmp_path / "a.oinf", {"w": A, "n": np.array([np.nan, -0.0], np.float32)}, metadata={"k": 1})
    found = holdall.diff(tmp_path / "a.oinf", tmp_path / "a.oinf")
    assert not found
    assert found.equal == 2


def test_how_far_apart() -> None:
    b = A.copy()
    b[0, 0] += 3
    item = _only(A, b)
    assert item.verdict == "different"
    assert item.distance is not None
    assert (item.distance.different, item.distance.wild) == (1, 0)
    assert item.distance.max == pytest.approx(3)
    assert item.distance.rmse == pytest.approx(3 / np.sqrt(A.size))
    expected = 10 * np.log10((A.astype(np.float64) ** 2).sum() / 9)
    assert item.distance.snr_db == pytest.approx(expected, rel=1e-5)


def test_dtype_change_is_measured_too() -> None:
    item = _only(A, A.astype(ml_dtypes.bfloat16))
    assert (item.verdict, item.detail) == ("dtype", "f32 became bf16")
    assert item.distance is not None
    assert 40 < item.distance.snr_db < 70


def test_nan_equals_nan_and_other_bits_are_said() -> None:
    item = _only(np.array([0.0, np.nan], np.float32), np.array([-0.0, np.nan], np.float32))
    assert item.verdict == "different"
    assert "other bits" in item.detail
    item = _only(np.array([1.0, np.nan], np.float32), np.array([1.0, 2.0], np.float32))
    assert item.distance is not None
    assert (item.distance.different, item.distance.wild, item.distance.max) == (1, 1, inf)


@pytest.mark.parametrize("kind", [np.int64, np.float64, np.complex128, np.uint64])
def test_wide_types(kind: type) -> None:
    a = np.arange(1000).astype(kind)
    b = a.copy()
    b[7] += 5
    item = _only(a, b)
    assert item.distance is not None
    assert (item.distance.different, item.distance.max) == (1, 5.0)


def test_large_integers_that_floats_cannot_tell_apart() -> None:
    item = _only(np.array([2**62], np.int64), np.array([2**62 + 1], np.int64))
    assert item.distance is not None
    assert item.distance.different == 1


def test_shapes_names_and_declared_ones() -> None:
    a = oinf.model({"same": A, "old": A + 1, "gone": A[:2], "shape": A}, sizevars={})
    b = oinf.model({"same": A, "new": A + 1, "come": A[:3], "shape": A.T.copy()}, sizevars={})
    found = holdall.diff(a, b)
    assert [(item.name, item.verdict) for item in found.tensors] == [
        ("shape", "shape"),
        ("old", "renamed"),
        ("gone", "only a"),
        ("come", "only b"),
    ]
    assert "'new'" in found.tensors[1].detail


def test_metadata_and_assets() -> None:
    a = Model(metadata={"k": 1, "x": np.arange(3), "old": "v"}, assets={"c.json": b"{}", "d": b"1"})
    b = Model(metadata={"k": 2, "x": np.arange(3), "new": "v"}, assets={"c.json": b"{ }", "e": b"1"})
    found = holdall.diff(a, b)
    assert found.metadata == [("k", 1, 2), ("old", "v", None), ("new", None, "v")]
    assert found.assets == [("d", "only a"), ("e", "only b"), ("c.json", "different")]


def test_blocks_of_different_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["holdall.diff"], "_BLOCK", 100)
    item = _only(A, A + np.float32(1))
    assert item.distance is not None
    assert item.distance.count == A.size
    assert item.distance.rmse == pytest.approx(1, rel=1e-5)


def test_the_page_is_whole_and_harmless() -> None:
    a = Model([Tensor.of("layers.0.<b>w", A), Tensor.of("layers.1.w", A), Tensor.of("gone", A[:1])])
    b = Model([Tensor.of("layers.0.<b>w", A + 1), Tensor.of("layers.1.w", A.astype(np.float16))])
    page = difference_html(holdall.diff(a, b))
    assert page.count("<circle") == 2
    assert "&lt;b&gt;w" in page
    assert "<b>" not in page
    assert "only a" in page
    assert "<script" not in page


def test_the_command_exits_1_when_different(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from holdall.cli import main

    holdall.save(tmp_path / "a.oinf", {"w": A})
    holdall.save(tmp_path / "b.oinf", {"w": A + 1})
    same = CliRunner().invoke(main, ["diff", str(tmp_path / "a.oinf"), str(tmp_path / "a.oinf")])
    assert (same.exit_code, "are equal: 1 tensor" in same.output) == (0, True)
    other = CliRunner().invoke(main, ["diff", str(tmp_path / "a.oinf"), str(tmp_path / "b.oinf"), "--json"])
    assert other.exit_code == 1
    assert '"verdict":"different"' in other.output
