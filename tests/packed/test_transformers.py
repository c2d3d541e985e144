"""Packed folders become models of transformers with the numbers that a conversion writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import holdall
import holdall.numpy

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": 32, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 1}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 12, "tie_word_embeddings": False}
BLOCK = 16  # of which neither 24 nor 40 is a multiple


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Llama whose linear layers are FP8, with a scale for each block of 16 by 16; the last are cut."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES, **HEADS, initializer_range=0.3)
    path = tmp_path / "fp8"
    transformers.LlamaForCausalLM(config).save_pretrained(path)
    tensors: dict[str, Any] = {}
    random = np.random.default_rng(0)
    for name, values in holdall.numpy.load_file(path / "model.safetensors").items():
        tensors[name] = values
        if name.endswith("_proj.weight"):
            tensors[name] = values.astype(ml_dtypes.float8_e4m3fn)
            shape = [-(-size // BLOCK) for size in values.shape]
            tensors[f"{name}_scale_inv"] = random.uniform(0.5, 2, shape).astype(np.float32)
    holdall.save(path / "model.safetensors", tensors)
    stated = json.loads((path / "config.json").read_text())
    stated["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [BLOCK, BLOCK]}
    (path / "config.json").write_text(json.dumps(stated))
    return path


@pytest.mark.parametrize("file", ["", "model.safetensors"])
def test_values_are_those_that_a_conversion_writes(file: str, folder: Path, tmp_path: Path) -> None:
    from holdall.transformers import load

    holdall.convert(folder, tmp_path / "plain", format="hf", dequantize=True)
    wanted, _ = load(tmp_path / "plain")
    found, _ = load(folder / file)
    weights = wanted.state_dict()
    assert found.state_dict().keys() == weights.keys()
    for name, values in found.state_dict().items():
        assert values.dtype == weights[name].dtype and torch.equal(values, weights[name]), name
    plain = holdall.numpy.load_file(tmp_path / "plain")
    name = "model.layers.0.mlp.down_proj.weight"
    assert np.array_equal(found.state_dict()[name].float().numpy(), plain[name].astype(np.float32))
    assert getattr(found.config, "quantization_config", None) is None
    prompt = torch.tensor([[1, 5, 9]])
    assert torch.equal(found(prompt).logits, wanted(prompt).logits)
