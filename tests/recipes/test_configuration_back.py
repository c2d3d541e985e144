"""The configuration after the way to GGUF and back, key by key, as the classes of transformers read it."""

from __future__ import annotations

import json
from functools import cache

import pytest

import holdall
from holdall import recipes
from holdall.errors import ContentError

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("xllamacpp")

import transformers

from tests.recipes.test_contradicting_numbers import save_family
from tests.recipes.test_gguf_families import BERT, CASES, tokenizer_of

# What no program that runs the model reads, and what is written out instead of left to be computed.
STATED = {"_name_or_path", "initializer_range"}
STATED_BY = {
    "mixtral": {"head_dim"}, "qwen 2": {"head_dim"}, "qwen 2, yarn": {"head_dim"}, "olmo 2": {"head_dim"},
    "qwen 3, experts": {"head_dim"},
    "phi 3": {"head_dim", "partial_rotary_factor"},  # the factor stands in rope_parameters and beside it
    # n_inner is written out; GPT-2 has no use for the two others
    "gpt 2": {"n_inner", "num_key_value_heads", "intermediate_size"},
    "bert": {"bos_token_id", "eos_token_id", "num_key_value_heads"},  # an encoder ends no texts
}  # fmt: skip
LLAMAS = ["llama", "mistral", "mixtral", "qwen 2", "gemma 2", "gpt 2"]


@cache
def ids_of(name):
    """The ids that a folder of the family states: those of its tokenizer."""
    tokenizer = tokenizer_of(BERT.tokenizer if name == "bert" else CASES[name].tokenizer)
    ids = {"bos_token_id": tokenizer.token_to_id("<s>"), "eos_token_id": tokenizer.token_to_id("</s>")}
    return {} if name == "bert" else ids


def go_there_and_back(name, tmp_path, **changes):
    """Both configurations of a family, the first with ``changes``."""
    stated = save_family(name, tmp_path / "folder") | ids_of(name) | changes
    (tmp_path / "folder" / "config.json").write_text(json.dumps(stated))
    (tmp_path / "folder" / "generation_config.json").unlink(missing_ok=True)
    back = (BERT if name == "bert" else CASES[name]).back or "auto"
    report = holdall.convert(tmp_path / "folder", tmp_path / "m.gguf")
    holdall.convert(tmp_path / "m.gguf", tmp_path / "back", format="hf", recipe=back)
    folders = (tmp_path / "folder", tmp_path / "back")
    return report, *(transformers.AutoConfig.from_pretrained(folder).to_dict() for folder in folders)


def list_differences(first, second):
    return {key for key in {*first, *second} if first.get(key) != second.get(key)}


@pytest.mark.parametrize("name", [*CASES, "bert"])
def test_only_what_is_stated_here_differs(name, tmp_path):
    _, first, second = go_there_and_back(name, tmp_path)
    assert list_differences(first, second) - STATED_BY.get(name, set()) <= STATED


@pytest.mark.parametrize("name", ["mistral", "mixtral", "phi 3"])
@pytest.mark.parametrize("window", [None, 16])
def test_a_window_comes_back_and_so_does_none(name, window, tmp_path):
    _, first, second = go_there_and_back(name, tmp_path, sliding_window=window)
    assert first["sliding_window"] == second["sliding_window"] == window
    assert "sliding_window" in json.loads((tmp_path / "back" / "config.json").read_text())


def test_a_window_that_is_not_stated_is_that_of_the_class(tmp_path):
    stated = save_family("mistral", tmp_path / "folder")
    del stated["sliding_window"]
    (tmp_path / "folder" / "config.json").write_text(json.dumps(stated))
    holdall.convert(tmp_path / "folder", tmp_path / "m.gguf")
    holdall.convert(tmp_path / "m.gguf", tmp_path / "back", format="hf", recipe="mistral-gguf")
    assert json.loads((tmp_path / "back" / "config.json").read_text())["sliding_window"] == 4096


@pytest.mark.parametrize("name", ["gemma 3", "llama"])
@pytest.mark.parametrize("key", ["pad_token_id", "final_logit_softcapping"])
def test_null_comes_back(name, key, tmp_path):
    _, first, second = go_there_and_back(name, tmp_path, **{key: None})
    assert first.get(key) is None and second.get(key) is None


@pytest.mark.parametrize("name", LLAMAS)
@pytest.mark.parametrize("others", [[3], [3, 4]])
def test_all_ids_that_end_a_text_come_back(name, others, tmp_path):
    ends = [ids_of(name)["eos_token_id"], *others]
    _, first, second = go_there_and_back(name, tmp_path, eos_token_id=ends)
    assert first["eos_token_id"] == second["eos_token_id"] == ends
    with holdall.open(tmp_path / "m.gguf") as model:
        found = [model.metadata.get(f"tokenizer.ggml.{word}_token_id") for word in ("eos", "eot", "eom")]
    assert found == [*ends, None][:3]


def test_the_configuration_of_generation_counts_before_that_of_the_model(tmp_path):
    save_family("llama", tmp_path / "folder")
    ends = [ids_of("llama")["eos_token_id"], 7]
    (tmp_path / "folder" / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    holdall.convert(tmp_path / "folder", tmp_path / "m.gguf")
    holdall.convert(tmp_path / "m.gguf", tmp_path / "back", format="hf")
    assert json.loads((tmp_path / "back" / "config.json").read_text())["eos_token_id"] == ends


def test_more_ids_than_there_are_places_for_are_in_the_report(tmp_path):
    ends = [ids_of("llama")["eos_token_id"], 3, 4, 5, 6]
    report, _, second = go_there_and_back("llama", tmp_path, eos_token_id=ends)
    assert second["eos_token_id"] == ends[:3]
    assert "GGUF has places for three tokens that end a text, and these ids are left out: 5, 6" in report.changes


@pytest.mark.parametrize("ends", [None, 9, [9, 11]])
def test_ids_are_stored_without_a_tokenizer_too(ends, tmp_path):
    stated = save_family("llama", tmp_path / "folder") | {"bos_token_id": 8, "eos_token_id": ends}
    for file in (tmp_path / "folder").glob("*token*"):
        file.unlink()
    (tmp_path / "folder" / "generation_config.json").unlink()
    (tmp_path / "folder" / "config.json").write_text(json.dumps(stated))
    holdall.convert(tmp_path / "folder", tmp_path / "m.gguf")
    holdall.convert(tmp_path / "m.gguf", tmp_path / "back", format="hf")
    again = json.loads((tmp_path / "back" / "config.json").read_text())
    assert (again["bos_token_id"], again["eos_token_id"]) == (8, ends)


# What the class of transformers takes where a folder states nothing, for each default of a recipe.
CLASSES = {
    "llama-gguf": "LlamaConfig", "mistral-gguf": "MistralConfig", "mixtral-gguf": "MixtralConfig",
    "phi3-gguf": "Phi3Config", "qwen2-gguf": "Qwen2Config", "qwen3-gguf": "Qwen3Config",
    "qwen3moe-gguf": "Qwen3MoeConfig", "gemma2-gguf": "Gemma2Config", "gemma3-gguf": "Gemma3TextConfig",
    "olmo2-gguf": "Olmo2Config", "gpt2-gguf": "GPT2Config", "bert-gguf": "BertConfig",
}  # fmt: skip


def test_every_recipe_for_llama_cpp_has_a_class_here():
    tokenized = {name for name in recipes.names() if recipes.load(name).tokenizer == "gguf"}
    assert tokenized - {"gemma3-vision-gguf"} == set(CLASSES)


@pytest.mark.parametrize("name", CLASSES)
def test_defaults_are_those_of_transformers(name):
    own = getattr(transformers, CLASSES[name])().to_dict()
    rows = [row for row in recipes.load(name).values if row.default is not None and not row.constant]
    assert rows
    for row in rows:
        assert own[row.sources[0]] == row.default, row.sources[0]


def test_experts_in_every_layer_need_not_be_stated(tmp_path):
    stated = save_family("qwen 3, experts", tmp_path / "folder")
    del stated["decoder_sparse_step"]
    (tmp_path / "folder" / "config.json").write_text(json.dumps(stated))
    holdall.convert(tmp_path / "folder", tmp_path / "m.gguf", dry_run=True)
    (tmp_path / "folder" / "config.json").write_text(json.dumps(stated | {"decoder_sparse_step": 2}))
    with pytest.raises(ContentError, match="some layers have no experts"):
        holdall.convert(tmp_path / "folder", tmp_path / "m.gguf", dry_run=True)


ROPES = [
    {"rope_parameters": {"sliding_attention": {"rope_theta": theta}, "full_attention": {"rope_theta": 1e6}}}
    for theta in (0, -1, 0.0)
]
ROPES += [{"rope_parameters": None, "rope_local_base_freq": theta} for theta in (0, -1.0)]
ROPES += [{"rope_parameters": {"full_attention": {"rope_theta": 0}}}]


@pytest.mark.parametrize("changes", ROPES)
def test_the_base_of_the_rope_of_every_kind_of_layer_is_above_zero(changes, tmp_path):
    stated = save_family("gemma 3", tmp_path / "folder") | changes
    (tmp_path / "folder" / "config.json").write_text(json.dumps(stated))
    with pytest.raises(ContentError, match="the base of the rope of one kind of layers is not above 0"):
        holdall.convert(tmp_path / "folder", tmp_path / "m.gguf", dry_run=True)


@pytest.mark.parametrize("changes", [{"factor": 0.5}, {"original_max_position_embeddings": 8.5}])
def test_a_scaling_of_llama_3_that_would_not_come_back_is_refused(changes, tmp_path):
    stated = save_family("llama 3, tied", tmp_path / "folder")
    stated["rope_parameters"] |= changes
    (tmp_path / "folder" / "config.json").write_text(json.dumps(stated))
    with pytest.raises(ContentError, match="is by 1 or more, of a whole number of positions"):
        holdall.convert(tmp_path / "folder", tmp_path / "m.gguf", dry_run=True)
