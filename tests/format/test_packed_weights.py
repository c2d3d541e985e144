"""Weights of several tensors, by the names that real checkpoints have; and ordinary models, which have none."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall import oinf
from holdall.format.oinf.quant import QuantParams
from holdall.format.packed_weights import find_packed_weights
from holdall.model.dtypes import find_dtype
from holdall.model.model import Model, model_of
from holdall.model.payload import InMemory
from holdall.model.tensor import Tensor
from holdall.testing import ZOO

# What the quantizers' libraries write for one layer: name, dtype, and whether it is a part of one weight.
LAYERS: dict[str, list[tuple[str, str, bool]]] = {
    "DeepSeek-V3": [("q_proj.weight", "f8_e4m3", True), ("q_proj.weight_scale_inv", "f32", True)],
    "DeepSeek, own names": [("wq_a.weight", "f8_e4m3", True), ("wq_a.scale", "f32", True)],
    "FP8 experts": [("experts.gate_up_proj", "f8_e4m3", True), ("experts.gate_up_proj_scale_inv", "f32", True)],
    "compressed-tensors FP8": [
        ("q.weight", "f8_e4m3", True), ("q.weight_scale", "bf16", True), ("q.input_scale", "f32", False),
        ("q.bias", "bf16", False),
    ],
    "compressed-tensors int8": [("q.weight", "i8", True), ("q.weight_scale", "f32", True)],
    "compressed-tensors int4": [
        ("q.weight_packed", "i32", True), ("q.weight_scale", "f16", True), ("q.weight_shape", "i64", True),
        ("q.weight_zero_point", "i32", True), ("q.weight_g_idx", "i32", True),
    ],
    "compressed-tensors NVFP4": [
        ("q.weight_packed", "u8", True), ("q.weight_scale", "f8_e4m3", True), ("q.weight_global_scale", "f32", True),
        ("q.input_global_scale", "f32", False),
    ],
    "ModelOpt NVFP4": [
        ("q.weight", "u8", True), ("q.weight_scale", "f8_e4m3", True), ("q.weight_scale_2", "f32", True),
    ],
    "ComfyUI": [("q.weight", "f8_e4m3", True), ("q.scale_weight", "f32", True), ("q.scale_input", "f32", False)],
    "GPTQ": [
        ("q.qweight", "i32", True), ("q.qzeros", "i32", True), ("q.scales", "f16", True), ("q.g_idx", "i32", True),
        ("q.bias", "f16", False),
    ],
    "AWQ": [("q.qweight", "i32", True), ("q.qzeros", "i32", True), ("q.scales", "f16", True)],
    "bitsandbytes 8": [("q.weight", "i8", True), ("q.SCB", "f32", True), ("q.weight_format", "u8", True)],
    "bitsandbytes 4": [
        ("q.weight", "u8", True), ("q.weight.absmax", "u8", True), ("q.weight.quant_map", "f32", True),
        ("q.weight.nested_absmax", "f32", True), ("q.weight.nested_quant_map", "f32", True),
        ("q.weight.quant_state.bitsandbytes__nf4", "u8", True),
    ],
    "bitsandbytes 4 stored as bf16": [("q.weight", "bf16", True), ("q.weight.absmax", "f32", True)],
    "MLX": [("q.weight", "u32", True), ("q.scales", "f16", True), ("q.biases", "f16", True), ("q.bias", "f16", False)],
    "MLX MXFP4": [("q.weight", "u32", True), ("q.scales", "u8", True)],
    "gpt-oss": [
        ("experts.gate_up_proj_blocks", "u8", True), ("experts.gate_up_proj_scales", "u8", True),
        ("experts.gate_up_proj_bias", "bf16", False),
    ],
    "quanto": [("q.weight._data", "i8", True), ("q.weight._scale", "f32", True)],
    "torchao": [("q._weight_qdata", "f8_e4m3", True), ("q._weight_scale", "f32", True)],
    "AQLM": [("q.codes", "i16", True), ("q.codebooks", "f16", True), ("q.scales", "f16", True)],
    "ONNX Runtime": [
        ("fc_quantized", "i8", True), ("fc_scale", "f32", True), ("fc_zero_point", "i8", True),
    ],
}  # fmt: skip

ORDINARY = [
    [("ln.scale", "f32"), ("ln.weight", "f32"), ("ln.bias", "f32")],
    [("norm.weight", "bf16"), ("norm.scale", "bf16")],
    [("vit.patch.weight", "f16"), ("vit.patch.weight_scale", "f32"), ("vit.logit_scale", "f32")],
    [("ln.scales", "f32"), ("ln.weight", "f32"), ("ln.biases", "f32")],
    [("position_ids", "i64"), ("token_type_ids", "u8"), ("embed.weight", "f32")],
    [("bn.weight", "f32"), ("bn.num_batches_tracked", "i64"), ("bn.running_mean", "f32")],
    [("q.weight", "f8_e4m3"), ("k.weight_scale", "f32")],  # of another layer
    [("mask.weight", "bool"), ("mask.scale", "f32")],
    [("codes.weight", "i64"), ("codes.scale", "f32")],  # a table of ids
]


def tensor(name: str, dtype: str) -> Tensor:
    kind = find_dtype(dtype)
    return Tensor(name, kind, (2, 4), InMemory(bytes(kind.nbytes((2, 4)))))


@pytest.mark.parametrize("kind", LAYERS)
def test_parts_of_one_weight_are_named(kind: str) -> None:
    rows = [(f"model.layers.{n}.{name}", dtype, part) for n in range(2) for name, dtype, part in LAYERS[kind]]
    for order in (rows, rows[::-1]):
        found = find_packed_weights(Model([tensor(name, dtype) for name, dtype, _ in order]))
        assert list(found) == [name for name, _, part in order if part]
    for name, reason in found.items():
        other = reason.partition("'")[2].removesuffix("'")
        assert other in found, (name, reason)
        assert other.split(".")[:3] == name.split(".")[:3]  # of the same layer


def test_reasons_name_the_scales() -> None:
    layer = [("w.weight", "f8_e4m3"), ("w.weight_scale_inv", "f32"), ("g.qzeros", "i32"), ("g.qweight", "i32")]
    assert find_packed_weights(Model([tensor(*row) for row in [*layer, ("g.scales", "f16")]])) == {
        "w.weight": "is scaled by 'w.weight_scale_inv'",
        "w.weight_scale_inv": "scales 'w.weight'",
        "g.qzeros": "is a part of 'g.qweight'",
        "g.qweight": "is scaled by 'g.scales'",
        "g.scales": "scales 'g.qweight'",
    }


@pytest.mark.parametrize("rows", ORDINARY, ids=lambda rows: rows[0][0])
def test_ordinary_models_have_none(rows: list[tuple[str, str]]) -> None:
    assert find_packed_weights(Model([tensor(*row) for row in rows])) == {}


def test_the_zoo_has_none() -> None:
    for name, make in ZOO.items():
        assert find_packed_weights(make()) == {}, name


@pytest.mark.parametrize(
    ("config", "packed"),
    [
        ({"model_type": "llama"}, False),
        ({"quantization_config": None}, False),
        ({"quantization_config": {"quant_method": "fp8"}}, True),
        ({"quantization": {"bits": 4, "group_size": 64}}, True),
        ({"text_config": {"quantization_config": {"quant_method": "x"}}}, True),
        ([], False),
    ],
)
def test_a_configuration_binds_integers_and_small_floats(config: object, packed: bool, tmp_path: Path) -> None:
    tensors = [tensor("a", "f8_e4m3"), tensor("b", "i32"), tensor("c", "bf16"), tensor("d", "f32"), tensor("e", "bool")]
    assets = {"config.json": json.dumps(config).encode()}
    holdall.save(tmp_path / "m", Model(tensors, assets=assets), format="hf")
    with holdall.open(tmp_path / "m") as model:
        found = find_packed_weights(model)
    assert sorted(found) == (["a", "b"] if packed else [])
    assert all("whose configuration has a quantization" in reason for reason in found.values())


def test_a_configuration_that_is_no_json_says_nothing(tmp_path: Path) -> None:
    holdall.save(tmp_path / "m", Model([tensor("a", "i8")], assets={"config.json": b"{"}), format="hf")
    with holdall.open(tmp_path / "m") as model:
        assert find_packed_weights(model) == {}


def test_oinf_tensors_with_quantization_parameters(tmp_path: Path) -> None:
    codes = Tensor.of("codes", np.arange(8, dtype=np.int8))
    codes.native = QuantParams.per_tensor(0.5)
    model = oinf.model({"codes": codes, "plain": np.arange(8, dtype=np.int8)})
    holdall.save(tmp_path / "m.oinf", model, version=2)
    with holdall.open(tmp_path / "m.oinf") as opened:
        assert opened.version == (2,)
        assert find_packed_weights(opened) == {"codes": "is scaled by the quantization parameters of its entry"}
    holdall.save(tmp_path / "v1.oinf", {"plain": np.arange(8, dtype=np.int8)})
    with holdall.open(tmp_path / "v1.oinf") as opened:
        assert find_packed_weights(opened) == {}


@pytest.mark.parametrize("packed", [False, True])
def test_a_hundred_thousand_tensors_take_no_time(packed: bool) -> None:
    kinds = ("qweight", "qzeros", "scales", "g_idx") if packed else ("weight", "bias", "scale", "gain")
    values = np.zeros(1, np.int32 if packed else np.float32)
    model = model_of({f"model.layers.{n}.mlp.{kind}": values for n in range(25_000) for kind in kinds})
    began = time.process_time()
    found = find_packed_weights(model)
    assert time.process_time() - began < 3
    assert len(found) == (100_000 if packed else 0)
