"""bitsandbytes, packed and decoded by its CPU functions; one model is a Llama that transformers saved."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import bitsandbytes.functional as bnb
import torch
from safetensors.torch import load_file

from tests.packed.oracles.packed import PackedModel, random_weight

__all__ = ["make_models"]

_ORACLE = "packed and decoded by bitsandbytes"


def make_models() -> Iterator[PackedModel]:
    """Both types of four bits, plain and nested, with rows that blocks cross; int8; and a model of transformers."""
    yield _make_four("bnb-nf4", "nf4", 64, False, torch.float16, ((24, 128), (40, 64)))
    yield _make_four("bnb-nf4-nested", "nf4", 64, True, torch.bfloat16, ((128, 192), (40, 64)))
    yield _make_four("bnb-fp4", "fp4", 64, False, torch.bfloat16, ((24, 128), (16, 192)))
    yield _make_four("bnb-fp4-nested", "fp4", 128, True, torch.float16, ((80, 256), (16, 128)))
    yield _make_four("bnb-crossing-rows", "nf4", 64, True, torch.bfloat16, ((7, 33), (5, 96)))
    yield _make_eight()
    yield _save_by_transformers()


def _make_four(
    name: str, kind: str, block: int, nested: bool, dtype: torch.dtype, shapes: tuple[tuple[int, int], ...]
) -> PackedModel:
    tensors = {"model.norm.weight": random_weight(99, 64, dtype=dtype)}
    expected, original = {}, {}
    for seed, shape in enumerate(shapes):
        weight = random_weight(seed + 30, *shape, dtype=dtype)
        codes, state = bnb.quantize_4bit(weight, blocksize=block, compress_statistics=nested, quant_type=kind)
        own = f"model.layers.{seed}.gate_proj.weight"
        tensors |= {own: codes} | {f"{own}.{part}": each for part, each in state.as_dict(packed=True).items()}
        expected[own], original[own] = _decode(codes, state), weight
    settings = {
        "quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind,
        "bnb_4bit_use_double_quant": nested,
    }  # fmt: skip
    config = {"dtype": str(dtype).removeprefix("torch.")}
    return PackedModel(name, "bnb", _ORACLE, tensors, expected, settings, config, original)


def _decode(codes: torch.Tensor, state: Any) -> torch.Tensor:
    """Decode a weight as one row: blocks are of the flattened weight, and version 0.50.2 begins one with each row."""
    flat = copy.copy(state)
    flat.shape = torch.Size((1, state.shape.numel()))
    return bnb.dequantize_4bit(codes, flat).reshape(state.shape)


def _make_eight() -> PackedModel:
    tensors = {"model.norm.weight": random_weight(99, 64, dtype=torch.float16)}
    expected, original = {}, {}
    for seed, shape in enumerate(((33, 48), (16, 80))):
        own = f"model.layers.{seed}.up_proj"
        weight = random_weight(seed + 40, *shape, dtype=torch.float16)
        codes, scales, _ = bnb.int8_vectorwise_quant(weight)
        tensors |= {
            f"{own}.weight": codes,
            f"{own}.SCB": scales,
            f"{own}.weight_format": torch.tensor(0, dtype=torch.uint8),
        }
        expected[f"{own}.weight"] = bnb.int8_vectorwise_dequant(codes, scales).half()
        original[f"{own}.weight"] = weight
    settings = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    return PackedModel("bnb-int8", "bnb", _ORACLE, tensors, expected, settings, {"dtype": "float16"}, original)


def _save_by_transformers() -> PackedModel:
    """A tiny Llama that transformers loads in four bits and saves again."""
    import bitsandbytes
    import transformers

    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, tie_word_embeddings=False,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        plain, packed = Path(scratch, "plain"), Path(scratch, "packed")
        transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(plain)
        wish = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        )  # fmt: skip
        model = transformers.AutoModelForCausalLM.from_pretrained(
            plain, quantization_config=wish, dtype=torch.bfloat16, device_map="cpu"
        )
        model.save_pretrained(packed)
        expected = {}
        for name, layer in model.named_modules():
            if isinstance(layer, bitsandbytes.nn.Linear4bit):
                expected[f"{name}.weight"] = _decode(layer.weight.data, layer.weight.quant_state)
        stated: Mapping[str, Any] = json.loads((packed / "config.json").read_text())
        tensors, original = load_file(packed / "model.safetensors"), load_file(plain / "model.safetensors")
    own = {key: value for key, value in stated.items() if key != "quantization_config"}
    return PackedModel(
        "bnb-llama", "bnb", "packed and decoded by bitsandbytes, saved by transformers", tensors, expected,
        stated["quantization_config"], own, {name: original[name] for name in expected},
    )  # fmt: skip
