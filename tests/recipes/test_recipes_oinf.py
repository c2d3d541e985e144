"""Size variables of OINF from configurations, read back by the published reader."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdall
from holdall import oinf
from holdall.errors import ContentError

verifier = pytest.importorskip("oinf_verify", reason="the published reader is not installed")

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "float16", "hidden_size": 24,
    "vocab_size": 40, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 2048, "hidden_act": "silu",
    "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "attention_bias": False, "tie_word_embeddings": True,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192},
    "bos_token_id": 1, "eos_token_id": [2, 3],
}  # fmt: skip
GPT2 = {
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "torch_dtype": "float16", "n_embd": 24,
    "vocab_size": 40, "n_inner": None, "n_layer": 3, "n_head": 4, "n_positions": 64, "layer_norm_epsilon": 1e-5,
    "activation_function": "gelu_new", "tie_word_embeddings": True,
}  # fmt: skip
BERT = {
    "model_type": "bert", "architectures": ["BertForMaskedLM"], "torch_dtype": "float16", "hidden_size": 24,
    "vocab_size": 40, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64, "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
    "position_embedding_type": "absolute",
}  # fmt: skip
MIXTRAL = LLAMA | {
    "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 8,
    "num_experts_per_tok": 2, "sliding_window": 4096,
}  # fmt: skip

SIZES = {
    "llama-oinf": (LLAMA, "model.embed_tokens.weight", {
        "D": 24, "V": 40, "intermediate_size": 56, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "head_dim": 8,
        "max_positions": 2048,
    }),
    "mixtral-oinf": (MIXTRAL, "model.embed_tokens.weight", {
        "D": 24, "V": 40, "intermediate_size": 56, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "head_dim": 8,
        "max_positions": 2048, "num_experts": 8, "num_experts_per_token": 2,
    }),
    "gpt2-oinf": (GPT2, "transformer.wte.weight", {
        "D": 24, "V": 40, "intermediate_size": 96, "num_layers": 3, "num_heads": 4, "head_dim": 6, "max_positions": 64,
    }),
    "bert-oinf": (BERT, "bert.embeddings.word_embeddings.weight", {
        "D": 24, "V": 40, "intermediate_size": 56, "num_layers": 2, "num_heads": 4, "head_dim": 6,
        "max_positions": 64, "num_types": 2,
    }),
}  # fmt: skip


def save_folder(path: Path, config: dict[str, Any], words: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    arrays = {words: random.standard_normal((40, 24)), "any.name.at_all-0": random.standard_normal((3, 5, 7))}
    arrays = {name: values.astype(np.float16) for name, values in arrays.items()}
    holdall.save(path, arrays, format="hf", fsync=False)
    (path / "config.json").write_text(json.dumps(config))
    return arrays


def read_published(path: Path) -> dict[str, int]:
    """The size variables as the published reader prints them."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        verifier.parse_file(str(path))
    return {name: int(value) for name, value in re.findall(r"^(\S+) := (\d+)$", printed.getvalue(), re.MULTILINE)}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_those_of_the_configuration_and_come_back(name: str, tmp_path: Path) -> None:
    config, words, sizes = SIZES[name]
    arrays = save_folder(tmp_path / "folder", config, words)
    report = holdall.convert(tmp_path / "folder", tmp_path / "m.oinf", fsync=False)
    assert report.changes[0].startswith(f"recipe {name} (")
    assert read_published(tmp_path / "m.oinf") == sizes
    with holdall.open(tmp_path / "m.oinf") as model:
        assert dict(model.sizevars) == sizes
        assert model.resolve(("V", "D")) == model[words].shape
    again = holdall.convert(tmp_path / "m.oinf", tmp_path / "back", format="hf", fsync=False)
    assert again.lossless, again.lost
    with holdall.open(tmp_path / "back") as model:
        assert {each: model[each].raw().tobytes() for each in model} == {
            each: values.tobytes() for each, values in arrays.items()
        }
        assert model.config == config | ({"n_inner": 96} if name == "gpt2-oinf" else {})


LIKE_LLAMA = ["mistral", "qwen2", "qwen3"]


@pytest.mark.parametrize("kind", LIKE_LLAMA)
def test_families_like_llama_keep_their_names(kind: str, tmp_path: Path) -> None:
    config = {key: value for key, value in LLAMA.items() if key not in ("rope_scaling", "architectures", "head_dim")}
    config |= {"model_type": kind, "sliding_window": 512}
    arrays = save_folder(tmp_path / "folder", config, "model.embed_tokens.weight")
    report = holdall.convert(tmp_path / "folder", tmp_path / "m.oinf", fsync=False)
    assert report.changes[0].startswith(f"recipe {kind}-oinf (")
    assert read_published(tmp_path / "m.oinf")["head_dim"] == 6
    holdall.convert(tmp_path / "m.oinf", tmp_path / "back", format="hf", fsync=False)
    with holdall.open(tmp_path / "back") as model:
        assert model.config["model_type"] == kind
        assert model.config["sliding_window"] == 512
        assert {each: model[each].raw().tobytes() for each in model} == {
            each: values.tobytes() for each, values in arrays.items()
        }


def test_a_configuration_of_another_model_is_refused(tmp_path: Path) -> None:
    save_folder(tmp_path / "folder", LLAMA | {"hidden_size": 32}, "model.embed_tokens.weight")
    with pytest.raises(ContentError, match=r"the embedding has another shape than \[vocab_size, hidden_size\]"):
        holdall.convert(tmp_path / "folder", tmp_path / "m.oinf", fsync=False)
    save_folder(tmp_path / "other", {**LLAMA, "num_attention_heads": None}, "model.embed_tokens.weight")
    with pytest.raises(ContentError, match="the configuration lacks num_attention_heads"):
        holdall.convert(tmp_path / "other", tmp_path / "m.oinf", fsync=False)
    assert not (tmp_path / "m.oinf").exists()


def test_a_size_that_the_recipe_does_not_know_is_reported(tmp_path: Path) -> None:
    save_folder(tmp_path / "folder", LLAMA, "model.embed_tokens.weight")
    holdall.convert(tmp_path / "folder", tmp_path / "m.oinf", fsync=False)
    with holdall.open(tmp_path / "m.oinf") as model:
        more = oinf.model({}, sizevars=dict(model.sizevars) | {"B": 4}, metadata=dict(model.metadata))
        holdall.save(tmp_path / "more.oinf", more.replace(tensors=model.tensors), fsync=False)
    report = holdall.convert(tmp_path / "more.oinf", tmp_path / "back", format="hf", fsync=False)
    assert [loss.name for loss in report.losses] == ["sizevars.B"]
    assert not report.lossless
