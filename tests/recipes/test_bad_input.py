"""What no recipe can make a running model of: one sentence, exit 1, and nothing is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from holdall.errors import UnsupportedError
from holdall.testing.isolation import cost_of

SECONDS, BYTES = 2, 200 << 20
CONFIG = {
    "model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
    "num_attention_heads": 2, "vocab_size": 3, "max_position_embeddings": 16, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}  # fmt: skip
SHAPES = {"q": (8, 8), "k": (8, 8), "v": (8, 8), "o": (8, 8)}
LAYER = {f"self_attn.{name}_proj": shape for name, shape in SHAPES.items()}
LAYER |= {"mlp.gate_proj": (12, 8), "mlp.up_proj": (12, 8), "mlp.down_proj": (8, 12)}
LAYER |= {"input_layernorm": (8,), "post_attention_layernorm": (8,)}
LLAMA = {"model.embed_tokens": (3, 8), "model.norm": (8,)} | {f"model.layers.0.{name}": LAYER[name] for name in LAYER}
ARRAYS = {f"{name}.weight": np.ones(shape, np.float32) for name, shape in LLAMA.items()}


def write_folder(folder: Path, arrays: dict[str, np.ndarray] = ARRAYS, **changes: Any) -> Path:
    holdall.save(folder, arrays, format="hf")
    config = {key: value for key, value in (CONFIG | changes).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def refuse(source: Path, target: Path, *more: str) -> str:
    """What the command says: one line on stderr, with exit 1, and there is no target."""
    before = set(target.parent.iterdir())
    done = CliRunner().invoke(main, ["convert", str(source), str(target), *more])
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.output
    assert set(target.parent.iterdir()) == before
    return done.stderr


def test_the_llama_of_these_tests_is_one(tmp_path: Path) -> None:
    report = holdall.convert(write_folder(tmp_path / "folder"), tmp_path / "m.gguf")
    assert report.recipe is not None and report.recipe.recipe.name == "llama-gguf"


@pytest.mark.parametrize(
    ("target", "known"), [("m.gguf", "bert, gemma2"), ("m.gptrs", "gpt2, ministral, ministral3, mistral, mistral3;")]
)
def test_an_unknown_model_type_is_refused_and_named(target: str, known: str, tmp_path: Path) -> None:
    source = write_folder(tmp_path / "folder", model_type="opt")
    said = refuse(source, tmp_path / target)
    assert "model_type is 'opt', and no recipe to g" in said
    assert known in said
    assert "--recipe none moves names and values without one" in said
    assert refuse(source, tmp_path / target, "--dry-run") == said
    done = CliRunner().invoke(main, ["convert", str(source), str(tmp_path / target), "--recipe", "none"])
    assert done.exit_code == 0, done.output
    with holdall.open(tmp_path / target) as model:
        assert set(model) == set(ARRAYS)


def test_an_unknown_architecture_is_refused_and_named(tmp_path: Path) -> None:
    holdall.save(tmp_path / "m.gguf", {"a.weight": np.ones(2, np.float32)}, metadata={"general.architecture": "clip"})
    said = refuse(tmp_path / "m.gguf", tmp_path / "folder", "--format", "hf")
    assert "general.architecture is 'clip', and no recipe to hf fits it: there are those for bert, flux, gemma2" in said
    holdall.convert(tmp_path / "m.gguf", tmp_path / "folder", format="hf", recipe="none")
    with holdall.open(tmp_path / "folder") as model:
        assert list(model) == ["a.weight"]


@pytest.mark.parametrize("layers", [10**6, 10**9, 10**30])
def test_a_number_of_layers_asks_for_no_memory(layers: int, tmp_path: Path) -> None:
    source = write_folder(tmp_path / "folder", num_hidden_layers=layers)
    cost = cost_of(lambda: refuse(source, tmp_path / "m.gguf"))
    assert cost.seconds < SECONDS and cost.peak_bytes < BYTES
    holdall.convert(write_folder(tmp_path / "whole"), tmp_path / "whole.gguf")
    holdall.convert(tmp_path / "whole.gguf", tmp_path / "m.gguf", recipe="none", metadata={"llama.block_count": layers})
    cost = cost_of(lambda: refuse(tmp_path / "m.gguf", tmp_path / "back", "--format", "hf"))
    assert cost.seconds < SECONDS and cost.peak_bytes < BYTES


def test_an_unknown_model_of_diffusers_is_refused_and_named(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "folder", model_type=None, _class_name="UNet2DConditionModel")
    assert "_class_name is 'UNet2DConditionModel', and no recipe to gguf fits it" in refuse(source, tmp_path / "m.gguf")


def test_a_family_in_another_container_is_known_or_refused_too(tmp_path: Path) -> None:
    holdall.convert(write_folder(tmp_path / "folder", model_type="opt"), tmp_path / "m.mcf")
    assert "model_type is 'opt'" in refuse(tmp_path / "m.mcf", tmp_path / "m.gguf")
    holdall.convert(write_folder(tmp_path / "known"), tmp_path / "known.mcf")
    holdall.convert(tmp_path / "known", tmp_path / "a.gguf", metadata={"general.name": "m"})
    holdall.convert(tmp_path / "known.mcf", tmp_path / "b.gguf", metadata={"general.name": "m"})
    with holdall.open(tmp_path / "a.gguf") as first, holdall.open(tmp_path / "b.gguf") as second:
        assert "blk.0.attn_q.weight" in first
        assert {name: bytes(first[name].raw()) for name in first} == {
            name: bytes(second[name].raw()) for name in second
        }
        assert dict(first.metadata) == dict(second.metadata)


def test_a_name_that_floods_the_screen_is_cut(tmp_path: Path) -> None:
    said = refuse(write_folder(tmp_path / "folder", model_type="x" * 5000 + "\x1b[31m"), tmp_path / "m.gguf")
    assert "x" * 40 in said and "\x1b" not in said
    assert len(said) < 600


# Where names and values are moved as before: nothing says a family, or nothing is expected to run it.
@pytest.mark.parametrize("changes", [{"model_type": None}, {"model_type": 5}, {"model_type": ""}])
def test_a_folder_that_states_no_family_is_moved(changes: dict[str, Any], tmp_path: Path) -> None:
    holdall.convert(write_folder(tmp_path / "folder", **changes), tmp_path / "m.gguf")
    with holdall.open(tmp_path / "m.gguf") as model:
        assert set(model) == set(ARRAYS)


def test_what_is_no_way_of_recipes_is_moved(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "folder", model_type="opt")
    (tmp_path / "bare").mkdir()
    holdall.save(tmp_path / "bare" / "model.safetensors", ARRAYS)
    holdall.save(tmp_path / "other.safetensors", {"a": np.ones(2, np.float32)})
    holdall.save(tmp_path / "own.gptrs", ARRAYS, config={"kind": "opt", "config": {}})
    holdall.convert(tmp_path / "bare", tmp_path / "bare.gguf")
    for suffix in ("oinf", "mcf", "aero", "safetensors", "npz", "gptrsten"):  # no recipe leads there
        holdall.convert(source, tmp_path / f"m.{suffix}")
    holdall.convert(source, tmp_path / "copy", format="hf")
    holdall.convert(source, tmp_path / "carried.gguf", carry=True)
    holdall.convert([source, tmp_path / "other.safetensors"], tmp_path / "joined.gguf")
    holdall.convert(tmp_path / "own.gptrs", tmp_path / "own", format="hf")
    for path in ("bare.gguf", "carried.gguf", "own"):
        with holdall.open(tmp_path / path) as model:
            assert set(ARRAYS) <= set(model)
    holdall.restore(tmp_path / "carried.gguf", tmp_path / "restored")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "restored" / name).read_bytes() == (source / name).read_bytes()


def test_a_recipe_that_is_named_decides_alone(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "folder", model_type="my-llama")
    holdall.convert(source, tmp_path / "m.gguf", recipe="llama-gguf")
    with holdall.open(tmp_path / "m.gguf") as model:
        assert "blk.0.attn_q.weight" in model
    with pytest.raises(UnsupportedError, match="model_type is 'my-llama'"):
        holdall.convert(source, tmp_path / "other.gguf")


def test_a_missing_head_count_is_named(tmp_path: Path) -> None:
    said = refuse(write_folder(tmp_path / "folder", num_attention_heads=None), tmp_path / "m.gguf")
    assert "the configuration lacks num_attention_heads" in said


def test_a_tokenizer_of_an_unknown_kind_is_named(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "folder")
    model = {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "c": 2}, "unk_token": "a"}
    (source / "tokenizer.json").write_text(json.dumps({"model": model}))
    said = refuse(source, tmp_path / "m.gguf")
    assert "a model of type WordLevel has no form in GGUF; known are BPE, Unigram, WordPiece" in said


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beta_fast": 64}, "beta_fast and beta_slow of the rope scaling are not 32 and 1"),
        ({"beta_slow": 2}, "beta_fast and beta_slow of the rope scaling are not 32 and 1"),
        ({"truncate": False}, "truncate of the rope scaling is false, and llama.cpp rounds to whole dimensions"),
        ({"attention_factor": 1.5}, "attention_factor or mscale of the rope scaling is stated"),
        ({"mscale": 2.0, "mscale_all_dim": 1.0}, "attention_factor or mscale of the rope scaling is stated"),
        ({"rope_type": "longrope"}, "the rope scaling is of a type that llama.cpp does not do for this family"),
    ],
)
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_rope_scaling_that_llama_cpp_would_compute_otherwise_is_named(
    key: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    assert message in refuse(write_folder(tmp_path / "folder", **{key: YARN | changes}), tmp_path / "m.gguf")


@pytest.mark.parametrize(
    "changes", [{}, {"beta_fast": 32, "beta_slow": 1.0}, {"truncate": True}, {"attention_factor": None, "mscale": 2.0}]
)
def test_rope_scaling_as_llama_cpp_computes_it_is_taken(changes: dict[str, Any], tmp_path: Path) -> None:
    holdall.convert(write_folder(tmp_path / "folder", rope_scaling=YARN | changes), tmp_path / "m.gguf")
    with holdall.open(tmp_path / "m.gguf") as model:
        assert model.metadata["llama.rope.scaling.type"] == "yarn"
        assert model.metadata["llama.rope.scaling.original_context_length"] == 16


def test_heads_of_another_width_are_named_where_llama_cpp_has_none(tmp_path: Path) -> None:
    biases = {f"model.layers.0.self_attn.{part}_proj.bias": np.ones(8, np.float32) for part in "qkv"}
    source = write_folder(tmp_path / "folder", ARRAYS | biases, model_type="qwen2", head_dim=8)
    assert "head_dim is not hidden_size / num_attention_heads" in refuse(source, tmp_path / "m.gguf")
    source = write_folder(tmp_path / "other", ARRAYS | biases, model_type="qwen2", head_dim=4)
    holdall.convert(source, tmp_path / "m.gguf")


@pytest.mark.parametrize(("window", "count"), [(8, 1), (16, 0), (None, 0)])
def test_a_window_that_llama_cpp_does_not_slide_is_noted(window: int | None, count: int, tmp_path: Path) -> None:
    source = write_folder(tmp_path / "folder", model_type="mistral", sliding_window=window)
    report = holdall.convert(source, tmp_path / "m.gguf")
    assert sum("llama.cpp to all: longer texts give other numbers there" in each for each in report.changes) == count
    report = holdall.convert(tmp_path / "m.gguf", tmp_path / "back", format="hf", recipe="mistral-gguf")
    assert not any("llama.cpp" in each for each in report.changes)
