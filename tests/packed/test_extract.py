"""Single weights of packed models: their numbers with --dequantize, and no cast of a part alone."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner, Result

import holdall
import holdall.numpy
from holdall.cli import main
from holdall.operations.extract import make_file_names
from holdall.packed import find_weights
from tests.packed.golden import list_golden, read_golden


def extract(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["extract", *map(str, arguments)])


@pytest.mark.parametrize("name", list_golden())
def test_each_weight_is_extracted_with_its_numbers(name: str, tmp_path: Path) -> None:
    golden = read_golden(name)
    plain = holdall.numpy.load_file(golden.path, decode=True)
    shown = extract(golden.path, "--all", tmp_path / "all", "--dequantize")
    assert shown.exit_code == 0, shown.output
    for weight, file in zip(plain, make_file_names(plain), strict=True):
        assert weight not in golden.expected or (tmp_path / "all" / f"{file}.npy").exists()
    for weight in golden.expected:
        path = tmp_path / "w.npy"
        for cast in ((), ("--cast", "f32")):
            shown = extract(golden.path, weight, "--dequantize", *cast, "-o", path)
            assert shown.exit_code == 0, shown.output
            found = np.load(path)
            assert np.array_equal(found.astype(plain[weight].dtype), plain[weight], equal_nan=True)
        shown = extract(golden.path, weight, "--dequantize", "--slice", "1:3", "-o", path)
        assert shown.exit_code == 0, shown.output
        assert np.array_equal(np.load(path).astype(plain[weight].dtype), plain[weight][1:3], equal_nan=True)


@pytest.mark.parametrize("name", list_golden())
def test_a_part_is_not_cast_alone(name: str, tmp_path: Path) -> None:
    golden = read_golden(name)
    with holdall.open(golden.path) as model:
        found = find_weights(model)
        assert found is not None
        codes = found.weights[0].tensors[0].name
    for arguments in ((codes, "-o", tmp_path / "w.npy"), ("--all", tmp_path / "all")):
        shown = extract(golden.path, *arguments, "--cast", "f32")
        assert shown.exit_code == 1
        assert "--dequantize makes plain weights" in shown.output
    assert not list(tmp_path.iterdir())


def test_the_hint_names_the_option_that_gives_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = read_golden("fp8-blocks").path
    assert "(--dequantize makes .npy)" in extract(path, "a.q_proj.weight").output
    assert "(--cast f32 makes .npy)" in extract(path, "norm.weight").output
    assert "goes with none of" in extract(path, "--asset", "config.json", "--dequantize").output
    assert "--dequantize makes .npy" in extract(path, "norm.weight", "-o", "x.bin", "--dequantize").output


def test_codes_of_a_scheme_that_is_not_known_are_not_extracted_as_numbers(tmp_path: Path) -> None:
    codes = np.ones((2, 4), ml_dtypes.float8_e4m3fn)
    holdall.save(tmp_path / "m.safetensors", {"w_qdata": codes, "w_scale": np.ones(1, np.float32), "b": np.ones(2)})
    for option in (("--dequantize",), ("--cast", "f32")):
        shown = extract(tmp_path / "m.safetensors", "w_qdata", *option, "-o", tmp_path / "w.npy")
        assert shown.exit_code == 1 and "made of several tensors" in shown.output
    assert extract(tmp_path / "m.safetensors", "b", "--cast", "f32", "-o", tmp_path / "b.npy").exit_code == 0
