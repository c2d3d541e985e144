"""Activations of whole models: int8 and int4 with a zero point, streamed, against the document's formula."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
import holdall.quant
from holdall.cli import main
from holdall.model.model import model_of

RNG = np.random.default_rng(14)
ARRAYS = {
    "positive": np.abs(RNG.standard_normal((64, 33))).astype(np.float32) + 3,  # its range does not hold 0
    "mixed": (RNG.standard_normal((4, 8, 16)) + 1).astype(np.float32),
    "half": RNG.standard_normal((40, 40)).astype(np.float16),
    "large": RNG.standard_normal((1100, 1025)).astype(np.float32),  # 4.5 MB: more than a block
}


def decode(raw: bytes, shape: tuple[int, ...], bits: int) -> tuple[float, float, np.ndarray]:
    """Scale, zero point and values, as the document lays them out: S at 0, Z at 64, codes at 128, x = S * (q - Z)."""
    scale, zero = struct.unpack_from("<f", raw, 0)[0], struct.unpack_from("<f", raw, 64)[0]
    count = int(np.prod(shape))
    codes = np.frombuffer(raw, np.int8, offset=128)
    if bits == 4:
        pairs = np.frombuffer(raw, np.uint8, offset=128)
        nibbles = np.stack([pairs & 15, pairs >> 4], 1).reshape(-1)[:count].astype(np.int8)
        codes = np.where(nibbles > 7, nibbles - 16, nibbles)
    return scale, zero, (np.float32(scale) * (codes.astype(np.float32) - np.float32(zero))).reshape(shape)


@pytest.mark.parametrize(("method", "bits"), [("int8", 8), ("int4", 4)])
def test_a_whole_model(tmp_path, method, bits):
    model = holdall.quant.quantize_model(model_of(ARRAYS), method, domain="activations")
    holdall.save(tmp_path / "m.mcf", model)
    assert holdall.verify(tmp_path / "m.mcf", level="strict").findings == []
    with holdall.open(tmp_path / "m.mcf") as found:
        for name, values in ARRAYS.items():
            tensor, wide = found[name], values.astype(np.float64)
            raw = bytes(tensor.raw())
            assert str(tensor.dtype) == f"mcf.{method}" and len(raw) == 128 + (values.size * bits + 7) // 8
            record = tensor.native
            assert (record.domain, record.min_clip, record.max_clip) == ("activations", wide.min(), wide.max())
            scale, zero, decoded = decode(raw, values.shape, bits)
            assert np.array_equal(tensor.numpy(), decoded)
            low, high = min(wide.min(), 0), max(wide.max(), 0)
            assert scale == np.float32((high - low) / (2**bits - 1)) and zero == round(-(2 ** (bits - 1)) - low / scale)
            assert np.abs(decoded - wide).max() <= scale * 1.001
            assert np.array_equal(tensor[1:3], decoded[1:3])
            alone = holdall.quant.quantize(values, method, domain="activations")
            assert bytes(alone.payload) == raw and alone.clip == (record.min_clip, record.max_clip)


def test_bounds_by_name(tmp_path):
    clips = {"mixed": (-0.5, 0.75), "half": (0.0, 1.0)}
    model = holdall.quant.quantize_model(model_of(ARRAYS), "int8", domain="activations", clip=(-1.0, 1.0), clips=clips)
    records = {name: (model[name].native.min_clip, model[name].native.max_clip) for name in ARRAYS}
    assert records == {"positive": (-1, 1), "large": (-1, 1), **clips}
    assert model["mixed"].numpy().min() >= -0.5 - 1 / 255 and model["mixed"].numpy().max() <= 0.75 + 1 / 255
    weights = holdall.quant.quantize_model(model_of(ARRAYS), "q8", clips={"half": (-0.25, 0.25)})  # weights too
    assert (weights["half"].native.min_clip, weights["half"].native.max_clip) == (-0.25, 0.25)
    with pytest.raises(holdall.ContentError, match="tensor 'w': clip bounds are two finite numbers"):
        holdall.quant.quantize_model(model_of(ARRAYS), "int8", clips={"w": (1.0, np.inf)})


def test_the_command_line_plans_the_size_that_it_writes(tmp_path):
    holdall.save(tmp_path / "a.safetensors", ARRAYS)
    options = ["--method", "int4", "--domain", "activations", "--report", str(tmp_path / "r.json")]
    ran = CliRunner().invoke(main, ["quantize", str(tmp_path / "a.safetensors"), str(tmp_path / "a.mcf"), *options])
    assert ran.exit_code == 0, ran.output
    assert "policy: int4, mode best, activations" in ran.output
    planned = sum(128 + (values.size + 1) // 2 for values in ARRAYS.values())
    with holdall.open(tmp_path / "a.mcf") as found:
        assert found.nbytes == planned
        assert {tensor.native.domain for tensor in found.tensors} == {"activations"}
    request = holdall.quant.Quantization("int4", domain="activations")
    plan = holdall.quant.plan_model(model_of(ARRAYS), request)
    assert sum(tensor.planned_nbytes for tensor in plan.tensors) == planned


@pytest.mark.parametrize("method", ["q8", "q4", "k6", "k4", "k3", "k2"])
def test_other_methods_are_for_weights(method):
    with pytest.raises(holdall.UnsupportedError, match=f"{method} is for weights; int8 and int4 also take activations"):
        holdall.quant.quantize_model(model_of(ARRAYS), method, domain="activations")
    with pytest.raises(holdall.UnsupportedError, match=f"{method} is for weights"):
        holdall.quant.Quantization("int8", rules=[f"*={method}"], domain="activations")


def test_no_other_domain():
    with pytest.raises(holdall.UnsupportedError, match="domain is one of weights, activations, not 'inputs'"):
        holdall.quant.Quantization("int8", domain="inputs")
