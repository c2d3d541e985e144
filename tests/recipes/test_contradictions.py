"""Configurations and tensors that contradict each other: refused before anything is written, each by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdall
from holdall import recipes
from tests.recipes.test_bad_input import ARRAYS, refuse, write_folder

LAYER = "model.layers.0."
Q, K, UP = (f"{LAYER}{name}.weight" for name in ("self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj"))

HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
WANTED = "[kv_heads * width, hidden_size] is [4, 8]"

# What a recipe says nothing of: its target states no numbers, or has other tests of shapes.
WITHOUT_SHAPES = {"flux-gguf", "flux-original-gguf", "bert-embd", "resnet34-gptrs", "mobilenet_v2-gptrs"}


@pytest.mark.parametrize("name", sorted(set(recipes.names()) - WITHOUT_SHAPES))
def test_a_recipe_states_the_shape_of_every_tensor_that_it_names(name: str) -> None:
    recipe = recipes.load(name)
    lines = [line for line in recipe.tensors if line.make is None]
    named = {pattern.text for line in lines for pattern in line.targets if not pattern.is_open}
    assert named <= set(recipe.shapes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (HEADS, f"tensor '{K}' has the shape [8, 8] in blk.{{n}}.attn_k.weight, and by the configuration {WANTED}"),
        ({"num_key_value_heads": 1}, f"tensor '{K}' has the shape [8, 8]"),
        ({"num_key_value_heads": 0, "head_dim": 2}, f"tensor '{K}' has the shape [8, 8]"),
        ({"num_attention_heads": 2, "num_key_value_heads": 3}, "num_attention_heads is no multiple of num_key_value"),
        ({"head_dim": 2}, f"tensor '{Q}' has the shape [8, 8]"),
        ({"hidden_size": 16}, "tensor 'model.norm.weight' has the shape [8]"),
        ({"intermediate_size": 11}, f"tensor '{UP}' has the shape [12, 8]"),
        ({"vocab_size": 4}, "[vocab_size, hidden_size] is [4, 8]"),
        ({"tie_word_embeddings": False}, "lm_head.weight is missing, and tie_word_embeddings does not say"),
        ({"tie_word_embeddings": None}, "lm_head.weight is missing, and tie_word_embeddings does not say"),
        ({"attention_bias": True}, f"the tensor '{LAYER}self_attn.q_proj.bias' is missing"),
        ({"mlp_bias": True}, f"the tensor '{LAYER}mlp.up_proj.bias' is missing"),
        ({"partial_rotary_factor": 0.5}, "only a part of each head is rotated"),
        ({"rope_theta": 0}, "the base or the factor of the rope is not above 0"),
        ({"rope_theta": 1e60}, "1e+60 is no number that f32 holds"),
        ({"rms_norm_eps": float("nan")}, "nan is no number that f32 holds"),
        ({"rope_parameters": "linear"}, "scaling is 'linear', and should be a table"),
        ({"max_position_embeddings": 0}, "max_position_embeddings is 0"),
    ],
)  # fmt: skip
def test_a_configuration_that_contradicts_the_tensors_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    assert message in refuse(write_folder(tmp_path / "folder", **changes), tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "message"),
    [
        (K, (8, 4), "f4", "has the shape [8, 4]"),
        (UP, (12, 7), "f4", "has the shape [12, 7]"),
        ("model.norm.weight", (8, 1), "f4", "has the shape [8, 1]"),
        ("model.norm.weight", (0,), "f4", "has the shape [0]"),
        (UP, (12, 8), "i1", "is of i8, and weights are floating-point numbers"),
        (f"{LAYER}self_attn.q_proj.bias", (8,), "f4", "no line takes the tensor"),
    ],
)
def test_tensors_that_contradict_the_configuration_are_refused(
    name: str, shape: tuple[int, ...], dtype: str, message: str, tmp_path: Path
) -> None:
    source = write_folder(tmp_path / "folder", ARRAYS | {name: np.ones(shape, dtype)})
    said = refuse(source, tmp_path / "m.gguf")
    assert message in said and name in said


def test_the_way_back_compares_too(tmp_path: Path) -> None:
    holdall.convert(write_folder(tmp_path / "folder"), tmp_path / "whole.gguf")
    wrong = {"llama.feed_forward_length": 11}
    holdall.convert(tmp_path / "whole.gguf", tmp_path / "m.gguf", recipe="none", metadata=wrong)
    said = refuse(tmp_path / "m.gguf", tmp_path / "back", "--format", "hf")
    assert "tensor 'blk.0.ffn_up.weight' has the shape [12, 8] in blk.{n}.ffn_up.weight, and by" in said


@pytest.mark.parametrize("data", [b'{"model_type": "llama"', '{"model_type": "llama"}'.encode("utf-16")])
def test_a_configuration_that_cannot_be_read_is_refused(data: bytes, tmp_path: Path) -> None:
    source = write_folder(tmp_path / "folder")
    (source / "config.json").write_bytes(data)
    said = refuse(source, tmp_path / "m.gguf")
    assert "what it states of the model cannot be read: config.json: " in said
    holdall.convert(source, tmp_path / "m.gguf", recipe="none")


def test_the_base_of_the_rope_is_the_one_that_transformers_takes(tmp_path: Path) -> None:
    twice = {"rope_theta": 5e5, "rope_parameters": {"rope_type": "default", "rope_theta": 2e4}}
    holdall.convert(write_folder(tmp_path / "folder", **twice), tmp_path / "m.gguf")
    with holdall.open(tmp_path / "m.gguf") as model:
        assert model.metadata["llama.rope.freq_base"] == 2e4
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "folder")
    assert getattr(config, "rope_parameters", {"rope_theta": 2e4})["rope_theta"] == 2e4
