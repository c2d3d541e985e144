"""FP8 with scales: packed by transformers or with torch, decoded by transformers, compressed-tensors' rule or torch."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.packed.oracles.packed import PackedModel, random_weight

__all__ = ["make_models"]

_LARGEST = 448.0  # of float8_e4m3fn
_BF16 = {"dtype": "bfloat16"}
_TORCH = "packed and decoded by the published rule with torch: float8 times float32, rounded once"


def make_models() -> Iterator[PackedModel]:
    """Models of DeepSeek, Qwen, Mistral, FBGEMM, ModelOpt and ComfyUI."""
    yield _blocks_of_transformers()
    yield _blocks_that_end_inside()
    yield _one_scale_of_transformers()
    yield _rows_of_fbgemm()
    yield _experts_in_blocks()
    yield _one_scale_of_modelopt()
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        yield _comfy(dtype)


def _blocks_of_transformers() -> PackedModel:
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    tensors, expected, original = {}, {}, {}
    for seed, (name, shape) in enumerate({"a.q_proj.weight": (64, 96), "b.down_proj.weight": (32, 64)}.items()):
        weight = random_weight(seed, *shape)
        codes, scales = pack_blocks(weight, (32, 32))
        tensors |= {name: codes, f"{name}_scale_inv": scales}
        expected[name] = Fp8Dequantize(None)._dequantize_one(codes, scales, output_dtype=torch.bfloat16)
        original[name] = weight.to(torch.bfloat16)
    tensors["norm.weight"] = random_weight(9, 64, dtype=torch.bfloat16)
    oracle = "decoded by transformers (Fp8Dequantize)"
    settings = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [32, 32]}
    return PackedModel("fp8-blocks", "fp8", oracle, tensors, expected, settings, _BF16, original)


def _blocks_that_end_inside() -> PackedModel:
    """As DeepSeek publishes it: the last blocks of rows and columns are cut, and scales are float32."""
    name, block = "layers.0.mlp.up_proj.weight", (16, 24)
    weight = random_weight(3, 40, 50)
    codes, scales = pack_blocks(weight, block)
    spread = scales.repeat_interleave(block[0], 0)[:40].repeat_interleave(block[1], 1)[:, :50]
    expected = {name: (codes.float() * spread).to(torch.bfloat16)}
    tensors = {name: codes, f"{name}_scale_inv": scales, "head.weight": random_weight(4, 8, 8, dtype=torch.bfloat16)}
    settings = {"quant_method": "fp8", "weight_block_size": list(block)}
    original = {name: weight.to(torch.bfloat16)}
    return PackedModel(
        "fp8-cut-blocks", "fp8", _TORCH, tensors, expected, settings, {"torch_dtype": "bfloat16"}, original
    )


def _one_scale_of_transformers() -> PackedModel:
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    name, weight = "model.o_proj.weight", random_weight(5, 24, 40)
    scale = (weight.abs().max() / _LARGEST).to(torch.bfloat16)
    codes = (weight / scale.float()).to(torch.float8_e4m3fn)
    expected = {name: Fp8Dequantize(None)._dequantize_one(codes, scale, output_dtype=torch.bfloat16)}
    tensors = {name: codes, f"{name}_scale_inv": scale, "model.o_proj.activation_scale": torch.tensor(0.5)}
    settings = {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}
    oracle = "decoded by transformers (Fp8Dequantize)"
    return PackedModel(
        "fp8-one-scale", "fp8", oracle, tensors, expected, settings, _BF16, {name: weight.to(torch.bfloat16)}
    )


def _rows_of_fbgemm() -> PackedModel:
    name, weight = "model.gate_proj.weight", random_weight(6, 33, 48)
    scales = weight.abs().amax(1, keepdim=True) / _LARGEST
    codes = (weight / scales).to(torch.float8_e4m3fn)
    expected = {name: (codes.float() * scales).to(torch.bfloat16)}
    tensors = {name: codes, f"{name}_scale": scales, "model.gate_proj.input_scale_ub": torch.tensor([1200.0])}
    settings = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]}
    original = {name: weight.to(torch.bfloat16)}
    return PackedModel("fp8-rows", "fp8", _TORCH, tensors, expected, settings, _BF16, original)


def _experts_in_blocks() -> PackedModel:
    """A stack of experts, whose name has no ``.weight``."""
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    name, weight = "mlp.experts.gate_up_proj", random_weight(7, 3, 32, 48)
    packed = [pack_blocks(each, (16, 16)) for each in weight]
    codes, scales = (torch.stack([pair[side] for pair in packed]) for side in (0, 1))
    expected = {name: Fp8Dequantize(None)._dequantize_one(codes, scales, output_dtype=torch.bfloat16)}
    settings = {"quant_method": "fp8", "weight_block_size": [16, 16]}
    oracle = "decoded by transformers (Fp8Dequantize)"
    tensors = {name: codes, f"{name}_scale_inv": scales}
    original = {name: weight.to(torch.bfloat16)}
    return PackedModel("fp8-experts", "fp8", oracle, tensors, expected, settings, _BF16, original)


def _one_scale_of_modelopt() -> PackedModel:
    name, weight = "model.v_proj.weight", random_weight(8, 16, 32)
    scale = weight.abs().max() / _LARGEST
    codes = (weight / scale).to(torch.float8_e4m3fn)
    tensors = {
        name: codes,
        "model.v_proj.weight_scale": scale,
        "model.v_proj.input_scale": torch.tensor(0.25),
        "model.v_proj.v_scale": torch.tensor(1.0),
    }
    settings = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    expected = {name: (codes.float() * scale).to(torch.bfloat16)}
    original = {name: weight.to(torch.bfloat16)}
    return PackedModel("fp8-modelopt", "fp8", _TORCH, tensors, expected, settings, _BF16, original)


def _comfy(dtype: torch.dtype) -> PackedModel:
    """A file without a configuration; a norm in FP8 has no scale, and is what is stored."""
    name, weight = "diffusion_model.blocks.0.weight", random_weight(11, 24, 16)
    scale = weight.abs().max() / torch.finfo(dtype).max
    codes = (weight / scale).to(dtype)
    tensors = {
        name: codes,
        "diffusion_model.blocks.0.scale_weight": scale,
        "diffusion_model.blocks.0.scale_input": torch.tensor(1.0),
        "scaled_fp8": torch.empty(0 if dtype == torch.float8_e5m2 else 2, dtype=dtype),
        "diffusion_model.norm.weight": torch.ones(16, dtype=torch.float16),
    }
    expected = {name: codes.float() * scale}
    short = str(dtype).removeprefix("torch.float8_")[:4]
    return PackedModel(f"comfy-{short}", "comfy", _TORCH, tensors, expected, None, {}, {name: weight})


def pack_blocks(weight: torch.Tensor, block: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Pack a matrix with a scale for each block: its largest number becomes that of float8."""
    high, wide = block
    rows, columns = weight.shape
    scales = torch.empty(-(-rows // high), -(-columns // wide))
    codes = torch.empty(rows, columns, dtype=torch.float8_e4m3fn)
    for row in range(scales.shape[0]):
        for column in range(scales.shape[1]):
            place = slice(row * high, (row + 1) * high), slice(column * wide, (column + 1) * wide)
            scales[row, column] = weight[place].abs().max() / _LARGEST
            codes[place] = (weight[place] / scales[row, column]).to(torch.float8_e4m3fn)
    return codes, scales
