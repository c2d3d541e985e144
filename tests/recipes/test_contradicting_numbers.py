"""Each number of a configuration that tensors have their shapes from, changed: every family refuses it."""

from __future__ import annotations

import json

import pytest

import holdall
from holdall.errors import ContentError

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("xllamacpp")

from tests.recipes import trained
from tests.recipes.families import save_tiny
from tests.recipes.test_gguf_families import CASES, save_bert, tokenizer_of

SHAPING = ("size", "heads", "embd", "inner", "positions", "experts", "layers", "n_layer", "head_dim")
# Numbers on which no shape depends, or which a class of transformers states and does not use.
UNUSED = {"max_window_layers", "chunk_size_feed_forward"}
UNUSED_BY = {
    "gpt 2": {"n_head", "intermediate_size", "num_key_value_heads"},
    "bert": {"num_attention_heads", "num_key_value_heads"},
    "qwen 3, experts": {"intermediate_size"},
}


def save_family(name, folder):
    """A folder of the family, and its configuration."""
    if name == "bert":
        save_bert(folder)
    else:
        case = CASES[name]
        save_tiny(folder, case.configure(), trained.folder_of(tokenizer_of(case.tokenizer)))
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("name", [*CASES, "bert"])
def test_no_number_may_contradict_the_tensors(name, tmp_path):
    config = save_family(name, tmp_path / "folder")
    left_out = UNUSED | UNUSED_BY.get(name, set())
    numbers = [key for key in config if key.endswith(SHAPING) and key not in left_out and type(config[key]) is int]
    assert len(numbers) >= 4
    taken = []
    for key in numbers:
        (tmp_path / "folder" / "config.json").write_text(json.dumps(config | {key: 2 * config[key]}))
        try:
            holdall.convert(tmp_path / "folder", tmp_path / "m.gguf", dry_run=True)
        except ContentError:
            continue
        taken.append(key)
    assert taken == []
    (tmp_path / "folder" / "config.json").write_text(json.dumps(config))
    holdall.convert(tmp_path / "folder", tmp_path / "m.gguf", dry_run=True)


# Of Gemma, what llama.cpp computes in its own way only, and a folder may state otherwise.
OTHERWISE = [
    (
        "gemma 2",
        {"layer_types": ["sliding_attention"] * 2},
        "layer_types is not the order in which layers of llama.cpp",
    ),
    ("gemma 2", {"final_logit_softcapping": None}, "the configuration lacks final_logit_softcapping"),
    ("gemma 2", {"attn_logit_softcapping": None}, "the configuration lacks attn_logit_softcapping"),
    ("gemma 2", {"tie_word_embeddings": False}, "tie_word_embeddings does not say that the embedding is the head"),
    ("gemma 2", {"attention_bias": True}, "attention_bias is true"),
    (
        "gemma 3",
        {"layer_types": ["sliding_attention"] * 7},
        "layer_types is not the order in which layers of llama.cpp",
    ),
    (
        "gemma 3",
        {"rope_parameters": {"sliding_attention": {"rope_type": "linear"}}},
        "the rope of layers with a sliding",
    ),
    ("gpt 2", {"scale_attn_weights": False}, "scale_attn_weights is false, and llama.cpp scales"),
    ("gpt 2", {"add_cross_attention": True}, "add_cross_attention is true"),
    ("gpt 2", {"n_head": 5}, "n_embd is no multiple of n_head"),
    ("bert", {"num_attention_heads": 5}, "hidden_size is no multiple of num_attention_heads"),
    ("mixtral", {"num_experts_per_tok": 9}, "num_experts_per_tok is more than num_local_experts"),
    ("qwen 3, experts", {"num_experts_per_tok": 99}, "num_experts_per_tok is more than num_experts"),
    ("qwen 3, experts", {"norm_topk_prob": None}, "norm_topk_prob is not true"),  # which transformers takes for false
    ("qwen 2", {"layer_types": ["full_attention", "sliding_attention"]}, "some layers have a sliding window"),
]


@pytest.mark.parametrize(("name", "changes", "message"), OTHERWISE)
def test_what_llama_cpp_would_compute_otherwise_is_refused(name, changes, message, tmp_path):
    config = save_family(name, tmp_path / "folder")
    (tmp_path / "folder" / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(ContentError, match=message):
        holdall.convert(tmp_path / "folder", tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()


def test_gemma_has_its_embedding_as_head_without_saying_so(tmp_path):
    config = save_family("gemma 2", tmp_path / "folder")
    del config["tie_word_embeddings"]
    (tmp_path / "folder" / "config.json").write_text(json.dumps(config))
    holdall.convert(tmp_path / "folder", tmp_path / "m.gguf", dry_run=True)
