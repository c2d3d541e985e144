"""MXFP4 of gpt-oss: packed by the rules of its publication, decoded by transformers."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from tests.packed.oracles.packed import PackedModel, random_weight

__all__ = ["make_models"]

_VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def make_models() -> Iterator[PackedModel]:
    """Stacks of experts as gpt-oss has them, and one with every exponent that a model may have."""
    yield _make("mxfp4-experts", 60, wide=False)
    yield _make("mxfp4-exponents", 61, wide=True)


def _make(name: str, seed: int, wide: bool) -> PackedModel:
    tensors = {"model.layers.0.mlp.experts.gate_up_proj_bias": random_weight(seed, 3, 32, dtype=torch.bfloat16)}
    expected, original = {}, {}
    for stem, shape in (("gate_up_proj", (3, 32, 64)), ("down_proj", (3, 64, 32))):
        own = f"model.layers.0.mlp.experts.{stem}"
        weight = random_weight(seed := seed + 2, *shape)
        groups = weight.reshape(*shape[:2], -1, 32)
        exponents = torch.floor(torch.log2(groups.abs().amax(-1))) - 2
        if wide:
            exponents = torch.randint(-100, 100, exponents.shape, generator=torch.Generator().manual_seed(seed)).float()
            groups = groups * torch.exp2(exponents + 5)[..., None]
        scaled = groups / torch.exp2(exponents)[..., None]
        codes = (scaled.abs()[..., None] - _VALUES).abs().argmin(-1) + 8 * (scaled < 0)
        blocks = (codes[..., 0::2] + 16 * codes[..., 1::2]).to(torch.uint8)
        scales = (exponents + 127).to(torch.uint8)
        tensors |= {f"{own}_blocks": blocks, f"{own}_scales": scales}
        expected[own] = convert_moe_packed_tensors(blocks, scales).contiguous()
        if not wide:
            original[own] = weight.transpose(1, 2).to(torch.bfloat16)
    settings = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    oracle = "packed by the published rule, decoded by transformers (convert_moe_packed_tensors)"
    return PackedModel(name, "mxfp4", oracle, tensors, expected, settings, {"dtype": "bfloat16"}, original)
