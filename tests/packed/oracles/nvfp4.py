"""NVFP4, packed and decoded by ModelOpt."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from modelopt.torch.quantization.qtensor import NVFP4QTensor

from tests.packed.oracles.packed import PackedModel, random_weight

__all__ = ["make_models"]


def make_models() -> Iterator[PackedModel]:
    """One model with a configuration, and one that only its tensors describe."""
    settings = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}
    yield _make("nvfp4-stated", 80, settings)
    yield _make("nvfp4-file", 84, None)


def _make(name: str, seed: int, settings: dict[str, object] | None) -> PackedModel:
    tensors = {"model.norm.weight": random_weight(99, 64, dtype=torch.bfloat16)}
    expected, original = {}, {}
    for layer, shape in (("model.layers.0.o_proj", (24, 64)), ("model.layers.1.o_proj", (40, 96))):
        weight = random_weight(seed := seed + 1, *shape, dtype=torch.bfloat16)
        packed, scales, outer = NVFP4QTensor.quantize(weight, 16)
        plain = packed.dequantize(torch.bfloat16, scale=scales, double_scale=outer, block_sizes={-1: 16})
        tensors |= {
            f"{layer}.weight": packed._quantized_data, f"{layer}.weight_scale": scales,
            f"{layer}.weight_scale_2": outer.float().reshape(()), f"{layer}.input_scale": torch.tensor(0.5),
        }  # fmt: skip
        expected[f"{layer}.weight"], original[f"{layer}.weight"] = plain, weight
    oracle = "packed and decoded by ModelOpt (NVFP4QTensor)"
    return PackedModel(
        name, "nvfp4", oracle, tensors, expected, settings, {"dtype": "bfloat16"}, original
    )  # fmt: skip
