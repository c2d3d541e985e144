"""Packed models by their own libraries go through every operation. docs/packed.md has its table from these tests."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

import holdall
import holdall.numpy
from holdall.cli import main
from holdall.packed import find_weights
from tests.packed.golden import GoldenModel, compare_values, list_golden, read_golden
from tests.packed.layouts import read_content, write_content

TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}

every_model = pytest.mark.parametrize("golden_model", list_golden(), indirect=True)


@pytest.fixture
def golden_model(request: pytest.FixtureRequest) -> GoldenModel:
    return read_golden(request.param)


def refuse_other_values(golden: GoldenModel, found: dict[str, np.ndarray]) -> None:
    """Each weight has the numbers of the library, bit for bit unless its model states a rounding."""
    wrong = {
        name: compare_values(found[name].astype(np.float32), wanted, golden.types[name], golden.roundings)
        for name, wanted in golden.expected.items()
    }
    assert not any(wrong.values()), wrong


def read_all(path: Path) -> dict[str, np.ndarray]:
    with holdall.open(path) as model:
        return {tensor.name: tensor.numpy() for tensor in model.tensors}


@pytest.mark.operation("read")
@every_model
def test_values_are_those_of_the_library(golden_model: GoldenModel) -> None:
    found = holdall.numpy.load_file(golden_model.path, decode=True)
    refuse_other_values(golden_model, found)
    assert {name: str(found[name].dtype) for name in golden_model.types if name in found} == {
        name: np.dtype(TYPES[kind]).name for name, kind in golden_model.types.items() if name in found
    }


@pytest.mark.operation("read rows")
@every_model
def test_rows_are_those_of_the_whole(golden_model: GoldenModel) -> None:
    with holdall.open(golden_model.path) as model:
        found = find_weights(model)
        assert found is not None
        for weight in found.weights:
            tensor = weight.tensor()
            whole, rows = tensor.numpy(), tensor.shape[0]
            for start in range(0, rows, max(1, rows // 9)):
                for stop in {start + 1, min(rows, start + 5), rows}:
                    assert np.array_equal(tensor[start:stop], whole[start:stop], equal_nan=True), (start, stop)


@pytest.mark.operation("torch")
@every_model
def test_torch_loads_plain_weights(golden_model: GoldenModel) -> None:
    torch = pytest.importorskip("torch")
    import holdall.torch

    found = holdall.torch.load_file(golden_model.path, decode=True)
    refuse_other_values(golden_model, {name: each.float().numpy() for name, each in found.items()})
    kinds = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
    assert {name: found[name].dtype for name in golden_model.expected} == {
        name: kinds[golden_model.types[name]] for name in golden_model.expected
    }


@pytest.mark.operation("info, ls")
@every_model
def test_info_counts_what_the_model_has(golden_model: GoldenModel) -> None:
    runner = CliRunner()
    facts = json.loads(runner.invoke(main, ["info", "--json", str(golden_model.path)]).output)
    plain = holdall.numpy.load_file(golden_model.path, decode=True)
    assert facts["parameters"] == sum(each.size for each in plain.values())
    packed = facts["packed"]
    assert (packed["scheme"], packed["weights"], packed["problems"]) == (
        golden_model.scheme, len(golden_model.expected), [],
    )  # fmt: skip
    with holdall.open(golden_model.path) as model:
        found = find_weights(model)
        assert found is not None
        stored = sum(model[name].nbytes for weight in found.weights for name in weight.names)
    numbers = sum(each.size for each in golden_model.expected.values())
    assert packed["bits_per_weight"] == pytest.approx(8 * stored / numbers, abs=1e-3)
    text = runner.invoke(main, ["info", str(golden_model.path)]).output
    assert found.scheme.title in text
    logical, listed = (
        {
            json.loads(line)["name"]
            for line in runner.invoke(main, ["ls", "--json", option, str(golden_model.path)]).output.splitlines()
        }
        for option in ("--logical", "--stored")
    )
    assert logical == set(plain)
    with holdall.open(golden_model.path) as model:
        assert listed == set(model)


@pytest.mark.operation("to safetensors")
@every_model
def test_a_folder_of_plain_weights_is_written(golden_model: GoldenModel, tmp_path: Path) -> None:
    report = holdall.convert(golden_model.path, tmp_path / "plain", format="hf", dequantize=True)
    assert any("decoded to" in change for change in report.changes)
    refuse_other_values(golden_model, read_all(tmp_path / "plain"))
    with holdall.open(tmp_path / "plain") as model:
        assert find_weights(model) is None
        assert "quantization" not in json.dumps(model.config or {})
        assert {name: str(model[name].dtype) for name in golden_model.expected} == {
            name: golden_model.types[name] for name in golden_model.expected
        }


@pytest.mark.operation("to GGUF")
@every_model
def test_a_gguf_of_plain_weights_is_written(golden_model: GoldenModel, tmp_path: Path) -> None:
    holdall.convert(golden_model.path, tmp_path / "plain.gguf", dequantize=True, recipe="none")
    refuse_other_values(golden_model, read_all(tmp_path / "plain.gguf"))


@pytest.mark.operation("to MCF")
@every_model
def test_an_mcf_of_plain_weights_is_written(golden_model: GoldenModel, tmp_path: Path) -> None:
    holdall.convert(golden_model.path, tmp_path / "plain.mcf", dequantize=True)
    refuse_other_values(golden_model, read_all(tmp_path / "plain.mcf"))


@pytest.mark.operation("quantize")
@every_model
def test_weights_are_quantized_anew_from_their_numbers(golden_model: GoldenModel, tmp_path: Path) -> None:
    holdall.convert(golden_model.path, tmp_path / "plain.mcf", dequantize=True)
    holdall.convert(tmp_path / "plain.mcf", tmp_path / "wanted.mcf", quantize="q8")
    report = holdall.convert(golden_model.path, tmp_path / "q8.mcf", quantize="q8")
    assert report.quantization is not None
    wanted, found = read_all(tmp_path / "wanted.mcf"), read_all(tmp_path / "q8.mcf")
    assert wanted.keys() == found.keys()
    assert all(np.array_equal(found[name], wanted[name], equal_nan=True) for name in wanted)


@pytest.mark.operation("diff")
@every_model
def test_it_is_compared_with_its_plain_weights_and_its_original(golden_model: GoldenModel, tmp_path: Path) -> None:
    plain = holdall.numpy.load_file(golden_model.path, decode=True)
    holdall.save(tmp_path / "plain.safetensors", plain)
    for found in holdall.diff(golden_model.path, tmp_path / "plain.safetensors").tensors:
        assert found.verdict == "dtype"  # of packed weights alone, whose numbers are rounded once
        peak = float(np.abs(plain[found.name].astype(np.float32)).max())
        assert found.distance is not None and found.distance.max <= peak / 256
    if not golden_model.original:
        return
    wide = {name: each.astype(plain[name].dtype) for name, each in golden_model.original.items()}
    holdall.save(tmp_path / "original.safetensors", plain | wide)
    found = {each.name: each for each in holdall.diff(golden_model.path, tmp_path / "original.safetensors").tensors}
    assert found.keys() == golden_model.expected.keys()
    for name, original in golden_model.original.items():
        distance = found[name].distance
        assert distance is not None and 0 < distance.max < np.abs(original).max()


@pytest.mark.operation("copy")
@every_model
def test_copies_keep_all_parts_and_say_so(golden_model: GoldenModel, tmp_path: Path) -> None:
    report = holdall.convert(golden_model.path, tmp_path / "copy", format="hf", names={"model.norm.weight": "n"})
    assert any("copied with all parts, still packed" in change for change in report.changes)
    with holdall.open(golden_model.path) as before, holdall.open(tmp_path / "copy") as after:
        kept = {t.name: (str(t.dtype), t.shape, bytes(t.raw())) for t in after.tensors}
        for tensor in before.tensors:
            name = "n" if tensor.name == "model.norm.weight" else tensor.name
            assert kept[name] == (str(tensor.dtype), tensor.shape, bytes(tensor.raw()))
    refuse_other_values(golden_model, holdall.numpy.load_file(tmp_path / "copy", decode=True))


@pytest.mark.operation("refuse")
@every_model
def test_parts_are_not_changed_alone(golden_model: GoldenModel, tmp_path: Path) -> None:
    for change in ({"cast": {"*": "f32"}}, {"transpose": ["*"]}):
        with pytest.raises(holdall.HoldallError, match="--dequantize makes plain weights"):
            holdall.convert(golden_model.path, tmp_path / "out.mcf", **change)
    assert not (tmp_path / "out.mcf").exists()


def test_weights_beside_the_model_are_lost_and_strict_refuses(tmp_path: Path) -> None:
    folder = write_content(read_content("gptq-4"), tmp_path / "m")
    holdall.save(folder / "scales.safetensors", {"s": np.ones(2, np.float32)})
    report = holdall.convert(folder, tmp_path / "a.mcf", carry=True)
    assert not report.lossless
    assert "left behind, with weights of their own: scales.safetensors" in report.dropped
    with pytest.raises(holdall.ContentError, match="left behind, with weights of their own: scales"):
        holdall.convert(folder, tmp_path / "b.mcf", strict=True, force=True)
    done = CliRunner().invoke(main, ["restore", str(tmp_path / "a.mcf"), str(tmp_path / "back")])
    assert "files beside the model are no part of it" in " ".join(done.output.split())
