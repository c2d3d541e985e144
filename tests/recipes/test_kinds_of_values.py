"""Values and weights of other kinds than a recipe says: refused in both directions, and nothing is written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdall
from tests.recipes.test_bad_input import ARRAYS, refuse, write_folder

# What a GGUF file states of a model, and what is said of it.
STATED = [
    ("llama.context_length", "x", "llama.context_length is of another kind: 'x' is no whole number"),
    ("llama.context_length", -1, "llama.context_length is of another kind: -1 is no number that u32 holds"),
    ("llama.context_length", 1 << 40, "1099511627776 is no number that u32 holds"),
    ("llama.context_length", [1, 2], "is no whole number"),
    ("llama.block_count", True, "True is no whole number"),
    ("llama.attention.layer_norm_rms_epsilon", math.nan, "nan is no number that f32 holds"),
    ("llama.attention.layer_norm_rms_epsilon", math.inf, "inf is no number that f32 holds"),
    ("llama.attention.layer_norm_rms_epsilon", [], "[] is no number"),
    ("llama.attention.layer_norm_rms_epsilon", "1e-5", "'1e-5' is no number"),
    ("llama.rope.freq_base", "much", "'much' is no number"),
    ("llama.rope.scaling.type", 3, "3 is no text"),
    ("tokenizer.ggml.bos_token_id", "x", "bos_token_id: 'x' is no whole number"),
    ("tokenizer.ggml.eos_token_id", [1], "eos_token_id: "),
    ("tokenizer.ggml.eot_token_id", 1.5, "eos_token_id: 1.5 is no whole number"),
    ("llama.vocab_size", "3", "vocab_size: llama.vocab_size is of another kind: '3' is no whole number"),
]


@pytest.mark.parametrize(("key", "value", "message"), STATED)
def test_a_value_of_another_kind_makes_no_configuration(key: str, value: Any, message: str, tmp_path: Path) -> None:
    holdall.convert(write_folder(tmp_path / "folder"), tmp_path / "whole.gguf")
    with holdall.open(tmp_path / "whole.gguf") as model:
        metadata = {**model.metadata, key: value}
        holdall.save(tmp_path / "m.gguf", model.replace(metadata=metadata))
    (tmp_path / "whole.gguf").unlink()
    said = refuse(tmp_path / "m.gguf", tmp_path / "back", "--format", "hf")
    assert message.replace("arch.", "llama.") in said.replace("arch.", "llama.")


def test_a_number_beyond_its_type_is_refused_on_the_way_there_too(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "folder", max_position_embeddings=1 << 33)
    assert "8589934592 is no number that u32 holds" in refuse(source, tmp_path / "m.gguf")


@pytest.mark.parametrize("name", ["model.norm", "model.layers.0.input_layernorm", "model.layers.0.mlp.up_proj"])
@pytest.mark.parametrize("kind", ["i1", "i8", "u2", "?"])
def test_weights_of_whole_numbers_are_refused_where_they_are_cast_too(name: str, kind: str, tmp_path: Path) -> None:
    array = ARRAYS[f"{name}.weight"].astype(kind)
    source = write_folder(tmp_path / "folder", ARRAYS | {f"{name}.weight": array})
    assert f"tensor '{name}.weight' is of " in refuse(source, tmp_path / "m.gguf")


def test_f64_is_refused_for_llama_cpp_which_stops_at_it(tmp_path: Path) -> None:
    wide = {name: array.astype(np.float64) for name, array in ARRAYS.items()}
    said = refuse(write_folder(tmp_path / "folder", wide), tmp_path / "m.gguf")
    assert "8 tensors of f64, and the programs that read gguf know f32, f16, bf16 (--cast f32 makes one" in said
    said = refuse(write_folder(tmp_path / "single"), tmp_path / "m.gguf", "--cast", "f64")
    assert "--cast f32 makes one of these" in said
    holdall.convert(tmp_path / "folder", tmp_path / "m.gguf", cast="f32")
    with holdall.open(tmp_path / "m.gguf") as model:
        assert {str(tensor.dtype) for tensor in model.tensors} == {"f32"}


def test_norms_of_f64_are_cast_and_in_the_report(tmp_path: Path) -> None:
    wide = {name: array.astype(np.float64) for name, array in ARRAYS.items() if array.ndim == 1}
    report = holdall.convert(write_folder(tmp_path / "folder", ARRAYS | wide), tmp_path / "m.gguf")
    assert any("f64 to f32" in text or "from f64" in text for text in report.dropped), report.dropped
