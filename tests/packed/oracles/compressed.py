"""compressed-tensors, packed and decoded by its own compressors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams

from tests.packed.oracles.packed import PackedModel, random_weight

__all__ = ["make_models"]

_ORACLE = "packed and decoded by compressed-tensors"
_KINDS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "int8-rows": ("int-quantized", {"num_bits": 8, "strategy": "channel"}),
    "int8-zeros": ("int-quantized", {"num_bits": 8, "strategy": "channel", "symmetric": False}),
    "fp8-one": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "tensor"}),
    "fp8-rows": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"}),
    "fp8-blocks": (
        "float-quantized",
        {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [16, 16]},
    ),
    "int4-groups": ("pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": 32}),
    "int4-zeros": ("pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": 16, "symmetric": False}),
    "int4-rows-zeros": ("pack-quantized", {"num_bits": 4, "strategy": "channel", "symmetric": False}),
    "int8-packed": ("pack-quantized", {"num_bits": 8, "strategy": "group", "group_size": 64}),
    "int3-zeros": ("pack-quantized", {"num_bits": 3, "strategy": "group", "group_size": 32, "symmetric": False}),
    "nvfp4": ("nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}),
    "mxfp4": ("mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}),
    "mxfp8": ("mxfp8-quantized", {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32}),
}


def make_models() -> Iterator[PackedModel]:
    """A model for each kind, each of two weights, and one with two groups chosen by patterns."""
    for number, (name, (form, args)) in enumerate(_KINDS.items()):
        layers = {"model.layers.0.q_proj": (48, 64), "model.layers.1.up_proj": (32, 128)}
        yield _pack(f"ct-{name}", form, {"group_0": (form, ["Linear"], args)}, layers, number)
    groups = {
        "group_0": (_KINDS["int4-groups"][0], ["re:.*up_proj$"], _KINDS["int4-groups"][1]),
        "group_1": (_KINDS["fp8-rows"][0], ["Linear"], _KINDS["fp8-rows"][1]),
    }
    layers = {"model.layers.0.q_proj": (48, 64), "model.layers.0.up_proj": (40, 96)}
    yield _pack("ct-mixed", "mixed-precision", groups, layers, 50)


def _pack(
    name: str,
    form: str,
    groups: Mapping[str, tuple[str, list[str], Mapping[str, Any]]],
    layers: Mapping[str, tuple[int, int]],
    seed: int,
) -> PackedModel:
    tensors: dict[str, torch.Tensor] = {"model.norm.weight": random_weight(99, 64, dtype=torch.bfloat16)}
    expected, original, written = {}, {}, {}
    for layer, (rows, columns) in layers.items():
        group = next(
            (each for each in groups.values() if each[1][0].endswith(f"{layer[-7:]}$")), list(groups.values())[-1]
        )
        weight = random_weight(seed := seed + 1, rows, columns, dtype=torch.bfloat16)
        packed, decoded = _pack_weight(weight, group[0], group[2])
        tensors |= {f"{layer}.{part}": values.contiguous() for part, values in packed.items()}
        expected[f"{layer}.weight"], original[f"{layer}.weight"] = decoded, weight
    for key, (own, targets, args) in groups.items():
        stated = QuantizationArgs(**args).model_dump(mode="json")
        written[key] = {"targets": targets, "weights": stated, "input_activations": None}
        written[key] |= {"format": own} if len(groups) > 1 else {}
    settings = {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": written,
        "ignore": ["lm_head"],
        "quantization_status": "compressed",
    }
    return PackedModel(
        name, "compressed-tensors", _ORACLE, tensors, expected, settings, {"dtype": "bfloat16"}, original,
    )  # fmt: skip


def _pack_weight(
    weight: torch.Tensor, form: str, args: Mapping[str, Any]
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Pack a weight, and decode what was packed."""
    stated = QuantizationArgs(**args)
    scheme = QuantizationScheme(targets=["Linear"], weights=stated)
    state = {"weight": weight} | _measure(weight, stated, form)
    compressor = BaseCompressor.get_value_from_registry(form)
    packed = compressor.compress(state, scheme)
    decoded = compressor.decompress(dict(packed), scheme)["weight"]
    return packed, decoded.to(torch.bfloat16)


def _measure(weight: torch.Tensor, args: QuantizationArgs, form: str) -> dict[str, torch.Tensor]:
    """Scales and zero points for a weight."""
    rows, columns = weight.shape
    group = args.group_size or columns
    pieces = {
        "tensor": weight.reshape(1, 1, -1),
        "channel": weight.reshape(rows, 1, columns),
        "group": weight.reshape(rows, -1, group),
        "tensor_group": weight.reshape(rows, -1, group),
    }
    if args.strategy == "block":
        high, wide = args.block_structure
        values = weight.reshape(rows // high, high, columns // wide, wide).transpose(1, 2)
        values = values.reshape(rows // high, columns // wide, -1)
    else:
        values = pieces[str(args.strategy)]
    low, high = values.amin(-1).float(), values.amax(-1).float()
    if form.startswith("nvfp4"):
        outer = torch.tensor([448.0 * 6.0]) / weight.abs().max().float()
        scale = (values.abs().amax(-1).float() / 6.0 * outer).to(torch.float8_e4m3fn)
        return {"weight_scale": scale.float(), "weight_global_scale": outer}
    if form.startswith("mx"):
        top = 6.0 if args.num_bits == 4 else 448.0
        scale = torch.exp2(torch.ceil(torch.log2(values.abs().amax(-1).float() / top)))
        return {"weight_scale": scale.to(torch.bfloat16)}
    scale, zero = calculate_qparams(low, high, args)
    scale = scale.to(torch.bfloat16)
    if args.strategy == "tensor":
        scale, zero = scale.reshape(1), zero.reshape(1)
    return {"weight_scale": scale} | ({} if args.symmetric else {"weight_zero_point": zero.to(torch.int8)})
