"""GPTQ, packed and decoded by gptqmodel."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from gptqmodel.nn_modules.qlinear.torch import TorchLinear
from gptqmodel.quantization import FORMAT
from gptqmodel.utils.model_dequant import _revert_gptq_v1_qzeros_correction

from tests.packed.oracles.packed import PackedModel, random_weight

__all__ = ["make_models"]

_ORACLE = "packed and decoded by gptqmodel"


def make_models() -> Iterator[PackedModel]:
    """Two to eight bits, both versions of zero points, and groups in the order of activations."""
    for bits in (2, 3, 4, 8):
        yield _make(f"gptq-{bits}", bits, "gptq", group=32)
    yield _make("gptq-v2", 4, "gptq_v2", group=32)
    yield _make("gptq-v2-zeros", 4, "gptq_v2", group=64, zeros=True)
    yield _make("gptq-zeros", 4, "gptq", group=32, zeros=True)
    yield _make("gptq-act-order", 4, "gptq", group=32, order=True)
    yield _make("gptq-one-group", 4, "gptq", group=-1)


def _make(name: str, bits: int, version: str, group: int, zeros: bool = False, order: bool = False) -> PackedModel:
    tensors = {"model.norm.weight": random_weight(99, 64, dtype=torch.float16)}
    expected, original = {}, {}
    layers = {"model.layers.0.q_proj": (64, 96), "model.layers.0.down_proj": (32, 128)}
    for seed, (layer, (rows, columns)) in enumerate(layers.items()):
        weight = random_weight(seed + 10 * bits, rows, columns, dtype=torch.float16)
        if zeros:
            weight[:, : columns // 2].abs_()  # zero points at the ends of what a code can be
        wide = group if group > 0 else columns
        index = torch.arange(columns, dtype=torch.int32) // wide
        if order:
            index = index[torch.randperm(columns, generator=torch.Generator().manual_seed(seed))]
        scales, points = _measure(weight.float(), index.long(), bits, zeros)
        packed = _pack(weight, bits, group, scales, points, index, version)
        expected[f"{layer}.weight"] = packed.pop("decoded")
        tensors |= {f"{layer}.{part}": values for part, values in packed.items()}
        original[f"{layer}.weight"] = weight
    settings = {
        "quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": order, "sym": not zeros,
        "format": version, "checkpoint_format": version, "pack_dtype": "int32",
    }  # fmt: skip
    return PackedModel(name, "gptq", _ORACLE, tensors, expected, settings, {"dtype": "float16"}, original)


def _measure(weight: torch.Tensor, index: torch.Tensor, bits: int, zeros: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales and zero points by row and group."""
    most, groups = (1 << bits) - 1, int(index.max()) + 1
    pieces = [weight[:, index == group] for group in range(groups)]
    if not zeros:
        scales = torch.stack([piece.abs().amax(1) / (most / 2) for piece in pieces], 1)
        return scales.half().float(), torch.full_like(scales, (most + 1) // 2)
    low = torch.stack([piece.amin(1).clamp(max=0) for piece in pieces], 1)
    high = torch.stack([piece.amax(1).clamp(min=0) for piece in pieces], 1)
    scales = ((high - low) / most).half().float()
    return scales, torch.round(-low / scales).clamp(0, most)


def _pack(
    weight: torch.Tensor, bits: int, group: int, scales: torch.Tensor, zeros: torch.Tensor, index: torch.Tensor,
    version: str,
) -> dict[str, torch.Tensor]:  # fmt: skip
    rows, columns = weight.shape
    plain = torch.nn.Linear(columns, rows, bias=False)
    plain.weight.data = weight.float()
    layer = TorchLinear(bits, group, True, False, columns, rows, bias=False, format=FORMAT.GPTQ_V2)
    layer.pack_original(plain, scales, zeros, index)
    layer.qzero_format(format=2)
    layer.post_init()
    decoded = layer.dequantize_weight().T.to(torch.float16).contiguous()
    points = layer.qzeros if version == "gptq_v2" else _revert_gptq_v1_qzeros_correction(layer.qzeros, bits)
    return {
        "qweight": layer.qweight.clone(), "scales": layer.scales.clone(), "qzeros": points.clone(), "g_idx": index,
        "decoded": decoded,
    }  # fmt: skip
