"""The functions for programs compute with the numbers of packed weights, and never with their codes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import holdall
import holdall.numpy
from holdall.errors import ContentError
from holdall.quant import dequantize_model, quantize_model
from tests.packed.golden import list_golden, read_golden
from tests.packed.layouts import read_content, write_content

every_model = pytest.mark.parametrize("name", list_golden())


@every_model
def test_a_store_has_the_weights(name: str) -> None:
    golden = read_golden(name)
    plain = holdall.numpy.load_file(golden.path, decode=True)
    with holdall.open(golden.path) as model:
        for store in (holdall.ParamStore(), holdall.ParamStore(budget=1 << 20)):
            parameters = store.add(model)
            assert set(parameters) == set(plain)
            for weight in golden.expected:
                values = plain[weight]
                assert np.array_equal(parameters[weight].astype(values.dtype), values, equal_nan=True)
                rows = parameters.rows(weight, [1, 0]).astype(values.dtype)
                assert np.array_equal(rows, values[[1, 0]], equal_nan=True)
                turned = parameters.derive(weight, "f32.T").astype(values.dtype)
                assert np.array_equal(turned, values.T, equal_nan=True)


@every_model
def test_a_model_is_dequantized(name: str, tmp_path: Path) -> None:
    golden = read_golden(name)
    plain = holdall.numpy.load_file(golden.path, decode=True)
    with holdall.open(golden.path) as model:
        found = dequantize_model(model)
        assert set(found) == set(plain)
        for weight in golden.expected:
            assert str(found[weight].dtype) == "f32"
            values = found[weight].numpy().astype(plain[weight].dtype)
            assert np.array_equal(values, plain[weight], equal_nan=True)
        assert "quantization" not in str(found.config)


@pytest.mark.parametrize("name", ["fp8-blocks", "gptq-4", "bnb-nf4-nested", "mlx-4"])
def test_a_model_is_quantized_from_its_numbers(name: str, tmp_path: Path) -> None:
    golden = read_golden(name)
    holdall.convert(golden.path, tmp_path / "wanted.mcf", quantize="q8")
    with holdall.open(golden.path) as model:
        holdall.save(tmp_path / "found.mcf", quantize_model(model, "q8"))
    with holdall.open(tmp_path / "found.mcf") as found, holdall.open(tmp_path / "wanted.mcf") as wanted:
        assert set(found) == set(wanted)
        for tensor in wanted.tensors:
            assert np.array_equal(found[tensor.name].numpy(), tensor.numpy(), equal_nan=True), tensor.name


def test_what_cannot_be_right_is_refused(tmp_path: Path) -> None:
    content = read_content("fp8-blocks")
    content.drop("_scale_inv")
    with holdall.open(write_content(content, tmp_path / "m")) as model:
        for use in (dequantize_model, quantize_model, holdall.ParamStore().add):
            with pytest.raises(ContentError, match=r"\[packed\.fp8\.part\]"):
                use(model)
