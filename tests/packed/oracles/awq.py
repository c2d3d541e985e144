"""AWQ, packed and decoded by the functions of gptqmodel, which has taken over AutoAWQ."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm, pack_awq

from tests.packed.oracles.packed import PackedModel, random_weight

__all__ = ["make_models"]


def make_models() -> Iterator[PackedModel]:
    """Two sizes of groups."""
    yield _make("awq-32", 32)
    yield _make("awq-128", 128)


def _make(name: str, group: int) -> PackedModel:
    tensors = {"model.norm.weight": random_weight(99, 64, dtype=torch.float16)}
    expected, original = {}, {}
    for seed, (layer, rows, columns) in enumerate(
        (("model.layers.0.k_proj", 40, 128), ("model.layers.1.k_proj", 16, 256))
    ):
        weight = random_weight(seed + 70, rows, columns, dtype=torch.float16)
        pieces = weight.float().reshape(rows, -1, group)
        low, high = pieces.amin(2).clamp(max=0), pieces.amax(2).clamp(min=0)
        scales = ((high - low) / 15).half()
        zeros = torch.round(-low / scales.float()).clamp(0, 15)
        codes = torch.round(pieces / scales.float()[:, :, None]) + zeros[:, :, None]
        codes = codes.clamp(0, 15).reshape(rows, columns).T.contiguous().to(torch.int32)
        words, points = pack_awq(codes, zeros.T.contiguous().to(torch.int32), 4)
        stored = scales.T.contiguous()
        expected[f"{layer}.weight"] = dequantize_gemm(words, points, stored, 4, group).T.contiguous()
        original[f"{layer}.weight"] = weight
        tensors |= {f"{layer}.qweight": words, f"{layer}.qzeros": points, f"{layer}.scales": stored}
    settings = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}
    oracle = "packed and decoded by gptqmodel (the functions of AutoAWQ)"
    return PackedModel(name, "awq", oracle, tensors, expected, settings, {"dtype": "float16"}, original)
