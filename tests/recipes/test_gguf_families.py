"""Every family that goes to GGUF: llama.cpp computes what torch computes, and the way back gives the same folder."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cache, partial

import pytest

import holdall
from holdall import recipes
from holdall.errors import ContentError
from holdall.model.metadata import same_value
from holdall.recipes.keys import name_key

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("xllamacpp")

import torch
import transformers

from holdall.recipes.patterns import Pattern
from holdall.recipes.tokenizers.pre_tokenizers import pre_tokenizer_of
from tests.recipes import trained
from tests.recipes.families import (
    CLOSE,
    PROMPT,
    SIZES,
    Runtime,
    compare_back,
    measure_cosine,
    measure_distance,
    save_tiny,
    without,
)
from tests.recipes.sentences import sentences


@dataclass(frozen=True)
class Case:
    """A tiny model: its recipe, the class of its configuration, and what it has beside the sizes of all."""

    recipe: str
    config: str
    changes: dict = field(default_factory=dict)
    tokenizer: str = "llama-bpe"
    close: float = CLOSE
    back: str | None = None  # the recipe that has to be named on the way back

    def configure(self):
        """The configuration, with as many tokens as the tokenizer has."""
        sizes = SIZES | {"vocab_size": len(tokens_of(self.tokenizer)), "bos_token_id": 0, "eos_token_id": 1}
        return getattr(transformers, self.config)(**{**sizes, **self.changes})


@cache
def tokenizer_of(name):
    """A trained tokenizer of the kind that a family has."""
    if name == "sentence":
        return trained.sentence_bpe("llama", vocab_size=300)
    if name == "gemma":
        return trained.sentence_bpe("gemma", vocab_size=300)
    if name == "bert":
        return trained.word_pieces(lowercase=False, vocab_size=400)  # else llama.cpp strips more than accents
    return trained.byte_level(pre_tokenizer_of(name), vocab_size=400, bos=name == "llama-bpe")


def tokens_of(name):
    return range(tokenizer_of(name).get_vocab_size())


SCALING = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
LLAMA3 = SCALING | {"original_max_position_embeddings": 32}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 4096}
LONG = {"rope_parameters": YARN, "max_position_embeddings": 16384}
BIASED = {"rope_parameters": LINEAR, "head_dim": 32, "attention_bias": True}
GELU = 2e-2  # llama.cpp looks it up in a table of f16
GEMMA = {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 8}
GEMMA3 = GEMMA | {"num_hidden_layers": 7, "sliding_window_pattern": 6}
PARTIAL = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
PHI3 = {"rope_parameters": PARTIAL, "pad_token_id": 2}
GPT2 = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128}
EXPERTS = {"num_experts": 12, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "norm_topk_prob": True}
CASES = {
    "llama": Case("llama-gguf", "LlamaConfig", tokenizer="sentence"),
    "llama 3, tied": Case("llama-gguf", "LlamaConfig", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "llama, linear": Case("llama-gguf", "LlamaConfig", BIASED),
    "llama, yarn": Case("llama-gguf", "LlamaConfig", LONG),
    "mistral": Case("mistral-gguf", "MistralConfig", {"sliding_window": 64}, "sentence", back="mistral-gguf"),
    "mixtral": Case("mixtral-gguf", "MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}, "sentence"),
    "qwen 2": Case("qwen2-gguf", "Qwen2Config", tokenizer="qwen2"),
    "qwen 2, yarn": Case("qwen2-gguf", "Qwen2Config", LONG, "qwen2"),
    "qwen 3": Case("qwen3-gguf", "Qwen3Config", {"head_dim": 32, "tie_word_embeddings": True}, "qwen2"),
    "gemma 2": Case("gemma2-gguf", "Gemma2Config", GEMMA, "gemma", GELU),
    "gemma 3": Case("gemma3-gguf", "Gemma3TextConfig", GEMMA3, "gemma", GELU),
    "gpt 2": Case("gpt2-gguf", "GPT2Config", GPT2, "gpt-2", GELU),
    "phi 3": Case("phi3-gguf", "Phi3Config", PHI3, "sentence"),
    "olmo 2": Case("olmo2-gguf", "Olmo2Config", {"pad_token_id": 2}, "gpt-2"),
    "qwen 3, experts": Case("qwen3moe-gguf", "Qwen3MoeConfig", EXPERTS, "qwen2"),
}  # fmt: skip


@pytest.fixture
def tiny(request, tmp_path):
    """The model of a case, and its folder."""
    case = CASES[request.param]
    assets = trained.folder_of(tokenizer_of(case.tokenizer))
    return case, save_tiny(tmp_path / "folder", case.configure(), assets), tmp_path / "folder"


@pytest.mark.parametrize("tiny", CASES, indirect=True)
def test_llama_cpp_computes_what_torch_computes_and_the_way_back_is_exact(tiny, tmp_path):
    case, model, folder = tiny
    report = holdall.convert(folder, tmp_path / "m.gguf")
    assert report.recipe.recipe.name == case.recipe
    runtime, tokenizer = Runtime(tmp_path / "m.gguf"), tokenizer_of(case.tokenizer)
    assert measure_distance(model, runtime, tokenizer) < case.close
    texts = sentences()
    assert [text for text in texts if runtime.encode(text) != tokenizer.encode(text).ids] == []
    compare_back(model, folder, tmp_path / "m.gguf", tmp_path / "back", case.back or "auto")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    assert [text for text in texts if again(text)["input_ids"] != tokenizer.encode(text).ids] == []


# An operation of each recipe, and a case in which it matters.
REMOVED = [
    ("llama", "permute(heads)"),
    ("llama 3, tied", "permute(kv_heads)"),
    ("llama, linear", "permute(heads)"),
    ("mistral", "permute(heads)"),
    ("mixtral", "permute(kv_heads)"),
    ("gemma 2", "add(1)"),
    ("gemma 3", "add(1)"),
]


@pytest.mark.parametrize(("tiny", "operation"), REMOVED, indirect=["tiny"])
def test_without_an_operation_it_computes_something_else(tiny, operation, tmp_path):
    case, model, folder = tiny
    holdall.convert(folder, tmp_path / "m.gguf", recipe=without(case.recipe, operation))
    assert measure_distance(model, Runtime(tmp_path / "m.gguf"), tokenizer_of(case.tokenizer)) > 3 * case.close


@pytest.mark.parametrize("tiny", ["llama, linear", "llama, yarn", "qwen 2, yarn"], indirect=True)
def test_without_its_rope_scaling_it_computes_something_else(tiny, tmp_path):
    case, model, folder = tiny
    recipe = recipes.load(case.recipe)
    plain = replace(recipe, let={**recipe.let, "rope_type": "'default'"})
    holdall.convert(folder, tmp_path / "m.gguf", recipe=plain)
    assert measure_distance(model, Runtime(tmp_path / "m.gguf"), tokenizer_of(case.tokenizer)) > 3 * case.close


def test_gpt_2_with_a_matrix_that_is_not_turned_computes_something_else(tmp_path):
    case = CASES["gpt 2"]
    model = save_tiny(tmp_path / "folder", case.configure(), trained.folder_of(tokenizer_of(case.tokenizer)))
    recipe = recipes.load(case.recipe)
    square = "blk.{n}.attn_output.weight"  # it has the same shape either way
    lines = [replace(line, operations=()) if line.targets and line.targets[0].text == square else line
             for line in recipe.tensors]  # fmt: skip
    assert lines != recipe.tensors
    holdall.convert(tmp_path / "folder", tmp_path / "m.gguf", recipe=replace(recipe, tensors=lines))
    assert measure_distance(model, Runtime(tmp_path / "m.gguf"), tokenizer_of(case.tokenizer)) > 3 * GELU


# Two tensors of one shape, in families whose tensors are only renamed.
EXCHANGED = [
    ("qwen 2", "attn_norm", "ffn_norm"),
    ("qwen 3", "attn_q_norm", "attn_k_norm"),
    ("qwen 3, experts", "ffn_gate_exps", "ffn_up_exps"),
    ("phi 3", "attn_norm", "ffn_norm"),
    ("olmo 2", "post_attention_norm", "post_ffw_norm"),
]


def exchange(recipe, one, other) -> recipes.Recipe:
    """The recipe with the names of two tensors exchanged."""

    def rename(pattern):
        parts = [{one: other, other: one}.get(part, part) for part in pattern.text.split(".")]
        return Pattern(".".join(parts))

    lines = [replace(line, targets=tuple(map(rename, line.targets))) for line in recipe.tensors]
    return replace(recipe, tensors=lines)


@pytest.mark.parametrize(("tiny", "one", "other"), EXCHANGED, indirect=["tiny"])
def test_with_two_tensors_exchanged_it_computes_something_else(tiny, one, other, tmp_path):
    case, model, folder = tiny
    holdall.convert(folder, tmp_path / "m.gguf", recipe=exchange(recipes.load(case.recipe), one, other))
    assert measure_distance(model, Runtime(tmp_path / "m.gguf"), tokenizer_of(case.tokenizer)) > 3 * case.close


def test_phi_3_that_turns_all_dimensions_computes_something_else(tmp_path):
    case = CASES["phi 3"]
    model = save_tiny(tmp_path / "folder", case.configure(), trained.folder_of(tokenizer_of(case.tokenizer)))
    recipe = recipes.load(case.recipe)
    whole = replace(recipe, let={**recipe.let, "rotary": "1.0"})
    holdall.convert(tmp_path / "folder", tmp_path / "m.gguf", recipe=whole)
    assert measure_distance(model, Runtime(tmp_path / "m.gguf"), tokenizer_of(case.tokenizer)) > 3 * case.close


TEXT_PART = "gemma3-vision-gguf"
SIGHT = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28,
    "patch_size": 14,
}  # fmt: skip


def save_gemma_that_sees(folder):
    """Folders of this family leave out what is the default of its class, such as the size of the vocabulary."""
    text = SIZES | GEMMA3 | {"vocab_size": len(tokens_of("gemma"))}
    config = transformers.Gemma3Config(text_config=text, vision_config=SIGHT, mm_tokens_per_image=4)
    kind = transformers.Gemma3ForConditionalGeneration
    model = save_tiny(folder, config, trained.folder_of(tokenizer_of("gemma")), kind)
    stated = json.loads((folder / "config.json").read_text())
    for key in ("vocab_size", "rms_norm_eps", "rope_parameters", "_sliding_window_pattern"):
        del stated["text_config"][key]
    (folder / "config.json").write_text(json.dumps(stated))
    return model


def test_the_text_part_of_a_gemma_3_that_sees_images_computes_what_torch_computes(tmp_path):
    model = save_gemma_that_sees(tmp_path / "folder")
    report = holdall.convert(tmp_path / "folder", tmp_path / "m.gguf")
    assert report.recipe.recipe.name == TEXT_PART
    left = [name for row in report.recipe.rows for name in row.before if not row.after]
    assert {name.split(".")[0] for name in left} == {"vision_tower", "multi_modal_projector"}
    assert any(text.startswith(f"{len(left)} tensors left out: ") for text in report.lost)
    assert measure_distance(model, Runtime(tmp_path / "m.gguf"), tokenizer_of("gemma")) < GELU
    holdall.convert(tmp_path / "m.gguf", tmp_path / "back", format="hf")
    with holdall.open(tmp_path / "folder") as first, holdall.open(tmp_path / "back") as second:
        assert {f"language_model.{name}" for name in second} == set(first) - set(left)
        for name in second:
            assert bytes(second[name].raw()) == bytes(first[f"language_model.{name}"].raw()), name
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "back", dtype=torch.float32).eval()
    with torch.no_grad():
        ids = torch.tensor([PROMPT])
        assert torch.equal(model(ids).logits, again(ids).logits)


def test_without_the_one_of_its_norms_the_text_part_computes_something_else(tmp_path):
    model = save_gemma_that_sees(tmp_path / "folder")
    holdall.convert(tmp_path / "folder", tmp_path / "m.gguf", recipe=without(TEXT_PART, "add(1)"))
    assert measure_distance(model, Runtime(tmp_path / "m.gguf"), tokenizer_of("gemma")) > 3 * GELU


BERT = Case("bert-gguf", "BertConfig", {"type_vocab_size": 2}, "bert")


def save_bert(folder, assets=None):
    """A tiny BERT without a pooler, which llama.cpp has no place for."""
    files = trained.folder_of(tokenizer_of("bert"), template=None, **trained.WORD_PIECES_CONFIG) | (assets or {})
    kind = partial(transformers.BertModel, add_pooling_layer=False)
    return save_tiny(folder, BERT.configure(), files, kind)


def test_encoders_give_the_vectors_of_torch_and_come_back(tmp_path):
    model, tokenizer = save_bert(tmp_path / "folder"), tokenizer_of("bert")
    holdall.convert(tmp_path / "folder", tmp_path / "m.gguf")
    runtime, texts = Runtime(tmp_path / "m.gguf", embedding=True), sentences()
    assert measure_cosine(model, runtime, tokenizer, texts[:12], lambda states: states.mean(0)) > 0.9999
    assert [text for text in texts if runtime.encode(text) != tokenizer.encode(text).ids] == []
    compare_back(model, tmp_path / "folder", tmp_path / "m.gguf", tmp_path / "back")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    assert [text for text in texts if again(text)["input_ids"] != tokenizer.encode(text).ids] == []


def test_encoders_pool_as_the_folder_says(tmp_path):
    (tmp_path / "folder" / "1_Pooling").mkdir(parents=True)
    pooling = {"1_Pooling/config.json": b'{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}'}
    model = save_bert(tmp_path / "folder", pooling)
    holdall.convert(tmp_path / "folder", tmp_path / "m.gguf")
    runtime = Runtime(tmp_path / "m.gguf", embedding=True)
    pool = {"first": lambda states: states[0], "mean": lambda states: states.mean(0)}
    found = {
        name: measure_cosine(model, runtime, tokenizer_of("bert"), sentences()[:3], each) for name, each in pool.items()
    }
    assert found["first"] > 0.9999 > 0.99 > found["mean"]


def test_an_encoder_with_queries_and_keys_exchanged_gives_other_vectors(tmp_path):
    model = save_bert(tmp_path / "folder")
    exchanged = exchange(recipes.load("bert-gguf"), "attn_q", "attn_k")
    holdall.convert(tmp_path / "folder", tmp_path / "m.gguf", recipe=exchanged)
    runtime = Runtime(tmp_path / "m.gguf", embedding=True)
    assert measure_cosine(model, runtime, tokenizer_of("bert"), sentences()[:3], lambda states: states.mean(0)) < 0.999


def test_without_the_factors_of_llama_3_it_computes_something_else(tmp_path):
    case = CASES["llama 3, tied"]
    model = save_tiny(tmp_path / "folder", case.configure(), trained.folder_of(tokenizer_of(case.tokenizer)))
    holdall.convert(tmp_path / "folder", tmp_path / "m.gguf")
    with holdall.open(tmp_path / "m.gguf") as whole:
        kept = [tensor for tensor in whole.tensors if tensor.name != "rope_freqs.weight"]
        holdall.save(tmp_path / "less.gguf", whole.replace(tensors=kept))
    assert measure_distance(model, Runtime(tmp_path / "less.gguf"), tokenizer_of(case.tokenizer)) > 3 * case.close


@pytest.mark.parametrize("carrier", ["m.aero", "m.npz", "m.oinf"])
@pytest.mark.parametrize("target", ["m.gguf", "m.mcf", "back"])
def test_what_a_carrier_becomes_has_the_files_of_the_original(carrier, target, tmp_path):
    case = CASES["llama, linear"]
    assets = trained.folder_of(tokenizer_of(case.tokenizer))
    save_tiny(tmp_path / "folder", case.configure(), assets, dtype=torch.bfloat16)
    holdall.convert(tmp_path / "folder", tmp_path / carrier, carry=True)
    (tmp_path / "other").mkdir()
    options = {"m.gguf": {"metadata": {"general.name": "m"}}, "back": {"format": "hf"}}.get(target, {})
    first, second = tmp_path / target, tmp_path / "other" / target
    holdall.convert(tmp_path / "folder", first, **options)
    holdall.convert(tmp_path / carrier, second, **options)
    with holdall.open(first) as one, holdall.open(second) as two:
        assert {name: bytes(one[name].raw()) for name in one} == {name: bytes(two[name].raw()) for name in two}
        for kept in ("config.json", "tokenizer.json", "tokenizer_config.json") if target != "m.gguf" else ():
            assert json.loads(one.assets[kept]) == json.loads(two.assets[kept])
        assert list(one.metadata) == list(two.metadata) or target != "m.gguf"
        assert target != "m.gguf" or all(same_value(one.metadata[key], two.metadata[key]) for key in one.metadata)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_small_floats_come_back_with_their_type(dtype, tmp_path):
    case = CASES["llama, linear"]
    assets = trained.folder_of(tokenizer_of(case.tokenizer))
    model = save_tiny(tmp_path / "folder", case.configure(), assets, dtype=getattr(torch, dtype))
    holdall.convert(tmp_path / "folder", tmp_path / "m.gguf")
    with holdall.open(tmp_path / "m.gguf") as made:
        assert str(made["blk.0.attn_norm.weight"].dtype) == "f32"
        assert made.metadata["general.file_type"] == {"bfloat16": 32, "float16": 1}[dtype]
    assert compare_back(model, tmp_path / "folder", tmp_path / "m.gguf", tmp_path / "back")["torch_dtype"] == dtype


@pytest.mark.parametrize("name", ["gemma 2", "gemma 3"])
def test_norms_of_bf16_come_back_from_sums_bit_for_bit(name, tmp_path):
    """Norms around 0 with any values, as training makes them: f32 holds the sum with 1 of each."""
    case = CASES[name]
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(case.configure()).to(torch.bfloat16).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.copy_(torch.randn(parameter.shape) * 2)
    model.save_pretrained(tmp_path / "folder")
    assert holdall.convert(tmp_path / "folder", tmp_path / "m.gguf").dropped == []
    model = type(model).from_pretrained(tmp_path / "folder", dtype=torch.float32).eval()
    compare_back(model, tmp_path / "folder", tmp_path / "m.gguf", tmp_path / "back")


def test_other_factors_than_those_of_llama_3_are_refused_on_the_way_back(tmp_path):
    import numpy as np

    from holdall.model.tensor import Tensor

    case = CASES["llama 3, tied"]
    save_tiny(tmp_path / "folder", case.configure(), trained.folder_of(tokenizer_of(case.tokenizer)))
    holdall.convert(tmp_path / "folder", tmp_path / "m.gguf")
    with holdall.open(tmp_path / "m.gguf") as whole:
        strange = Tensor.of("rope_freqs.weight", np.linspace(1, 8, 8, dtype=np.float32))
        tensors = [strange if tensor.name == strange.name else tensor for tensor in whole.tensors]
        holdall.save(tmp_path / "other.gguf", whole.replace(tensors=tensors))
    with pytest.raises(ContentError, match=r"tensor 'rope_freqs.weight' is not one that llama3_rope_factors makes"):
        holdall.convert(tmp_path / "other.gguf", tmp_path / "back", format="hf")


# Those with a tokenizer are for llama.cpp, whose names gguf has; the others have the names of their own programs.
@pytest.mark.parametrize("name", [name for name in recipes.names() if recipes.load(name).tokenizer == "gguf"])
def test_names_are_those_of_the_gguf_package(name):
    """Names of tensors on both sides, and keys, are in the tables of gguf for the architecture."""
    gguf = pytest.importorskip("gguf")
    recipe = recipes.load(name)
    architecture = recipe.target.match["general.architecture"]
    number = {word: key for key, word in gguf.MODEL_ARCH_NAMES.items()}.get(architecture)
    if number is None:
        pytest.fail(f"gguf knows no architecture {architecture}")
    table = gguf.get_tensor_name_map(number, 4)
    for line in recipe.tensors:
        if line.make is not None or not line.targets:
            continue
        texts = [pattern.text.replace(".{e}", "").removeprefix("language_model.") for pattern in line.sources]
        sources = [Pattern(text).fill({"n": 3}) for text in texts]
        wanted = {table.get_name(name, (".weight", ".bias")) for name in sources}
        given = {pattern.fill({"n": 3}) for pattern in line.targets}
        assert wanted & given, (wanted, given)
    keys = {value.replace("{arch}", architecture) for value in list_keys(gguf.Keys)}
    named = {name_key(value.target, architecture) for value in recipe.values if value.target}
    assert named <= keys


def list_keys(node):
    """All keys in the classes of gguf.Keys."""
    for each in vars(node).values():
        if isinstance(each, type):
            yield from list_keys(each)
        elif isinstance(each, str):
            yield each
