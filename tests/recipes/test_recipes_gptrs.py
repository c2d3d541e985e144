"""Models for gpt.rs: exactly the names, shapes, values and configuration that its exporters make, and the way back."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3

import holdall
from holdall import identity, recipes
from holdall.errors import ContentError
from tests.recipes import gptrs_truth as truth
from tests.recipes.gptrs_truth import Arrays, Family

DECODERS = {
    "gpt2": truth.make_gpt2(),
    "gpt2 untied": truth.make_gpt2(tied=False),
    "gpt2 of ratio 4": truth.make_gpt2(n_inner=None),
    **{f"mistral {rope}": truth.make_mistral(rope) for rope in truth.ROPES},
    "mistral tied": truth.make_mistral("yarn", tied=True),
    "ministral": truth.make_mistral("yarn", model_type="ministral3"),
}
VISION = {
    "resnet34": truth.make_resnet34(),
    "resnet34 of 7 classes": truth.make_resnet34(7),
    "mobilenet_v2": truth.make_mobilenet_v2(),
    "mobilenet_v2 of 7 classes": truth.make_mobilenet_v2(7),
}
IMAGES = {f"mistral3 {'tied' if tied else 'untied'}": truth.make_mistral3(tied=tied) for tied in (True, False)}
ALL = DECODERS | VISION | IMAGES
RECIPES = {name: f"{name.split()[0].replace('ministral', 'mistral')}-gptrs" for name in ALL}


def save_source(family: Family, folder: Path) -> Path:
    """Write the source as its own world does: a folder with its configuration, or a file of tensors alone."""
    if not family.settings:
        holdall.save(folder.with_suffix(".safetensors"), family.source)
        return folder.with_suffix(".safetensors")
    holdall.save(folder, family.source, format="hf")
    (folder / "config.json").write_text(json.dumps(family.settings))
    return folder


def convert(family: Family, folder: Path, **options: Any) -> tuple[Path, Any]:
    out = folder / "model.gptrs"
    return out, holdall.convert(save_source(family, folder / "source"), out, **options)


def read_all(path: Path) -> Arrays:
    with holdall.open(path) as model:
        return {name: model[name].copy() for name in model}


def assert_equal(found: Arrays, expected: Arrays) -> None:
    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].shape == array.shape, name
        assert found[name].tobytes() == np.ascontiguousarray(array).tobytes(), name


@pytest.mark.shows("G40")
@pytest.mark.parametrize("name", ALL)
def test_the_checkpoint_is_the_one_that_the_exporter_makes(name: str, tmp_path: Path) -> None:
    family = ALL[name]
    path, report = convert(family, tmp_path)
    assert_equal(read_all(path), family.tensors)
    with holdall.open(path) as model:
        assert model.config == {"kind": family.kind, "config": family.config}
        assert json.dumps(model.config["config"], sort_keys=True) == json.dumps(family.config, sort_keys=True)  # types
        if family.shapes:
            assert {tensor.name: tensor.shape for tensor in model.tensors} == family.shapes
    assert report.recipe is not None and report.recipe.recipe.name == RECIPES[name] and not report.recipe.back
    assert holdall.verify(path, level="strict").ok


@pytest.mark.parametrize("name", ALL)
def test_names_pass_the_rules_and_ids_are_stored_and_every_name_loads(name: str, tmp_path: Path) -> None:
    family = ALL[name]
    path, _ = convert(family, tmp_path)
    data = path.read_bytes()
    for tensor in family.tensors:
        assert identity.name_breach(tensor) is None
        assert blake3(tensor.encode()).digest()[:16] in data  # as BaseParamId
    with holdall.open(path) as model:
        store = holdall.ParamStore.from_model(model)
        for tensor, array in family.tensors.items():
            assert np.array_equal(store[tensor], array)


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_come_back_bit_for_bit(name: str, tmp_path: Path) -> None:
    family = DECODERS[name]
    path, _ = convert(family, tmp_path)
    holdall.convert(path, tmp_path / "back", format="hf")
    assert_equal(read_all(tmp_path / "back"), family.source)
    holdall.convert(tmp_path / "back", tmp_path / "again.gptrs")
    assert (tmp_path / "again.gptrs").read_bytes() == path.read_bytes()
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert config["vocab_size"] == family.settings["vocab_size"]
    assert config["tie_word_embeddings"] == family.settings["tie_word_embeddings"]


@pytest.mark.parametrize("name", IMAGES)
def test_the_text_part_comes_back_as_a_model_of_text(name: str, tmp_path: Path) -> None:
    family = IMAGES[name]
    path, report = convert(family, tmp_path)
    left = {before for row in report.recipe.rows for before in row.before if not row.after}
    assert {each.split(".")[0] for each in left} == {"vision_tower", "multi_modal_projector"}
    holdall.convert(path, tmp_path / "back", format="hf")
    text = {each.removeprefix("language_model."): array for each, array in family.source.items() if each not in left}
    assert_equal(read_all(tmp_path / "back"), text)
    assert json.loads((tmp_path / "back" / "config.json").read_text())["model_type"] == "mistral"


@pytest.mark.parametrize("name", VISION)
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_folded_models_come_back_as_norms_that_add_and_fold_again_bit_for_bit(
    name: str, suffix: str, tmp_path: Path
) -> None:
    family = VISION[name]
    path, report = convert(family, tmp_path)
    assert any(re.fullmatch(r"\d+ norms folded, which come back as norms that only add", each) for each in report.lost)
    back = tmp_path / f"back{suffix}"
    holdall.convert(path, back)
    found = read_all(back)
    counters = {each for each in family.source if each.endswith(".num_batches_tracked")}
    assert {each: array.shape for each, array in found.items()} == {
        each: array.shape for each, array in family.source.items() if each not in counters
    }
    holdall.convert(back, tmp_path / "again.gptrs")
    assert (tmp_path / "again.gptrs").read_bytes() == path.read_bytes()


def test_folding_is_what_torch_computes() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    conv, norm = torch.nn.Conv2d(5, 70, 3, bias=False), torch.nn.BatchNorm2d(70).eval()
    norm.weight.data, norm.bias.data = torch.randn(70), torch.randn(70)
    norm.running_mean, norm.running_var = torch.randn(70), torch.rand(70) + 0.01
    scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
    names = {"w": conv.weight, "g": norm.weight, "b": norm.bias, "m": norm.running_mean, "v": norm.running_var}
    tensors = [holdall.Tensor.of(name, value.detach().numpy()) for name, value in names.items()]
    from holdall.recipes.norms import fold

    weight, bias = fold(tensors, 1e-5)
    assert np.array_equal(weight.numpy(), (conv.weight * scale.reshape(-1, 1, 1, 1)).detach().numpy())
    assert np.array_equal(bias.numpy(), ((0 - norm.running_mean) * scale + norm.bias).detach().numpy())
    image = torch.randn(1, 5, 9, 9)
    folded = torch.nn.functional.conv2d(image, torch.tensor(weight.numpy()), torch.tensor(bias.numpy()))
    assert torch.allclose(folded, norm(conv(image)), atol=1e-4)


def test_weights_beyond_every_buffer_are_folded_by_parts() -> None:
    """6 MB, whose blocks end inside a channel."""
    from holdall.recipes.norms import fold

    random = np.random.default_rng(0)
    arrays = [random.standard_normal((7, 29, 97, 97), np.float32)]
    arrays += [random.random(7, np.float32) + np.float32(0.5) for _ in range(4)]
    weight, _ = fold([holdall.Tensor.of(str(at), array) for at, array in enumerate(arrays)], 1e-5)
    _, gamma, _, _, var = arrays
    scale = gamma * (np.float32(1) / np.sqrt(var + np.float32(1e-5)))
    assert weight.nbytes > 6 << 20 and np.array_equal(weight.numpy(), arrays[0] * scale.reshape(-1, 1, 1, 1))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_other_types_become_f32(dtype: str, tmp_path: Path) -> None:
    family = truth.make_mistral(tied=True)
    source = save_source(family, tmp_path / "wide")
    holdall.convert(source, tmp_path / "narrow", format="hf", cast=dtype)
    holdall.convert(tmp_path / "narrow", tmp_path / "model.gptrs")
    narrow = read_all(tmp_path / "narrow")
    found = read_all(tmp_path / "model.gptrs")
    assert {array.dtype for array in found.values()} == {np.dtype(np.float32)}
    embedding = narrow["model.embed_tokens.weight"].astype(np.float32)
    assert np.array_equal(found["lm_head"], embedding.T)


def test_ministral_3_as_transformers_saves_it(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    text = {key: value for key, value in truth.make_mistral().settings.items() if isinstance(value, int)}
    vision = {"model_type": "pixtral", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
              "num_attention_heads": 2, "head_dim": 4, "image_size": 28, "patch_size": 14}  # fmt: skip
    config = transformers.Mistral3Config(
        text_config={**text, "model_type": "ministral3", "tie_word_embeddings": True}, vision_config=vision
    )
    model = transformers.Mistral3ForConditionalGeneration(config)
    model.save_pretrained(tmp_path / "source")
    holdall.convert(tmp_path / "source", tmp_path / "model.gptrs")
    state = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    inner = "model.language_model.layers.1.self_attn"
    with holdall.open(tmp_path / "model.gptrs") as found:
        assert found.config["config"]["rope_scaling"]["kind"] == "yarn"
        parts = [state[f"{inner}.{part}_proj.weight"].T for part in "qkv"]
        assert np.array_equal(found["blocks.1.attention.w_qkv"].numpy(), np.concatenate(parts, axis=1))
        assert np.array_equal(found["lm_head"].numpy(), state["model.language_model.embed_tokens.weight"].T)


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "MistralForCausalLM"])
def test_what_transformers_saves_is_understood(name: str, tmp_path: Path) -> None:
    """Real folders: tied weights stored once, and the configuration with all that transformers writes into it."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    settings, expected = {
        "GPT2LMHeadModel": (
            {"vocab_size": 11, "n_positions": 6, "n_embd": 8, "n_layer": 2, "n_head": 2},
            truth.make_gpt2(n_inner=None).config | {"dropout": 0.1},
        ),
        "MistralForCausalLM": (
            {key: value for key, value in truth.make_mistral().settings.items() if isinstance(value, int)},
            truth.make_mistral().config | {"rms_norm_eps": 1e-06},
        ),
    }[name]
    made = getattr(transformers, name)
    model = made(made.config_class(**settings)).eval()
    model.save_pretrained(tmp_path / "source")
    holdall.convert(tmp_path / "source", tmp_path / "model.gptrs")
    with holdall.open(tmp_path / "model.gptrs") as found:
        assert found.config["config"] == expected
        assert np.array_equal(found["lm_head"].numpy(), model.lm_head.weight.detach().numpy().T)
    holdall.convert(tmp_path / "model.gptrs", tmp_path / "back", format="hf")
    loaded = made.from_pretrained(tmp_path / "back").eval()
    tokens = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        assert torch.equal(loaded(tokens).logits, model(tokens).logits)


def test_names_without_the_prefix_of_the_head(tmp_path: Path) -> None:
    """The folder of the first GPT-2, which also stores the masks of its attention."""
    family = truth.make_gpt2()
    source = {name.removeprefix("transformer."): array for name, array in family.source.items()}
    source |= {f"h.{n}.attn.bias": np.tril(np.ones((1, 1, 6, 6), np.float32)) for n in range(2)}
    path, _ = convert(Family(source, family.settings, "gpt", family.config, {}), tmp_path)
    assert_equal(read_all(path), family.tensors)


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("gpt2", {"n_head": None}, "the configuration lacks n_head"),
        ("gpt2", {"n_inner": 17}, "n_inner is no multiple of n_embd"),
        ("gpt2", {"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon is not 1e-05"),
        ("gpt2", {"activation_function": "relu"}, "activation_function is not gelu_new"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "attention is scaled otherwise"),
        ("gpt2", {"n_layer": 3}, "the tensor 'transformer.h.2.ln_1.weight' is missing"),
        ("mistral none", {"num_attention_heads": None}, "num_attention_heads"),
        ("mistral none", {"num_attention_heads": 5}, "hidden_size is no multiple of num_attention_heads"),
        ("mistral none", {"num_key_value_heads": 3}, "num_attention_heads is no multiple of num_key_value_heads"),
        ("mistral none", {"hidden_act": "gelu"}, "hidden_act is not silu"),
        ("mistral none", {"rope_scaling": {"rope_type": "llama3"}}, "the rope scaling is none of default, linear"),
        ("mistral none", {"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling.original_max_position_embeddings"),
        ("mistral none", {"head_dim": 3}, "cannot be split into [12, 6, 6]"),
    ],
)
def test_models_that_gptrs_would_not_run_are_refused(
    name: str, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    family = ALL[name]
    settings = {key: value for key, value in (family.settings | change).items() if value is not None}
    with pytest.raises(ContentError) as caught:
        convert(Family(family.source, settings, "", {}, {}), tmp_path)
    assert message in str(caught.value)
    assert not (tmp_path / "model.gptrs").exists()


def test_all_that_is_wrong_is_listed_at_once(tmp_path: Path) -> None:
    family = truth.make_resnet34()
    source = dict(family.source)
    del source["layer2.1.bn1.bias"], source["layer4.0.downsample.1.running_mean"]
    source["extra.weight"] = np.zeros(2, np.float32)
    with pytest.raises(ContentError) as caught:
        convert(Family(source, {}, "", {}, {}), tmp_path)
    for part in ("layer2.1.bn1.bias' is missing", "layer4.0.downsample.1.running_mean' is missing", "'extra.weight'"):
        assert part in str(caught.value)


@pytest.mark.parametrize("name", ["layer1.0.conv3.weight", "layer3.6.conv1.weight"])
def test_other_resnets_are_not_taken_for_this_one(name: str, tmp_path: Path) -> None:
    source = truth.make_resnet34().source | {name: np.zeros((2, 2, 1, 1), np.float32)}
    path, _ = convert(Family(source, {}, "", {}, {}), tmp_path, scalars="as-vector", cast={"*tracked": "i32"})
    with holdall.open(path) as model:
        assert name in model and "bn1.weight" in model


def test_norms_of_other_channels_are_refused() -> None:
    from holdall.recipes.norms import fold

    shapes = [(3, 2, 1, 1), (3,), (3,), (2,), (3,)]
    tensors = [
        holdall.Tensor.of(name, np.zeros(shape, np.float32)) for name, shape in zip("wgbmv", shapes, strict=True)
    ]
    with pytest.raises(ContentError, match=r"tensor 'm' has the shape \[2\], and 'w' has 3 channels"):
        fold(tensors, 1e-5)


def test_without_a_recipe_everything_stays(tmp_path: Path) -> None:
    family = truth.make_gpt2()
    path, _ = convert(family, tmp_path, recipe="none")
    assert_equal(read_all(path), family.source)
    with holdall.open(path) as model:
        assert model.config["kind"] == "gpt2"


@pytest.mark.parametrize(("name", "own"), [("gpt2", "gpt2-gptrs"), ("mistral none", "mistral-gptrs")])
def test_each_operation_counts(name: str, own: str, tmp_path: Path) -> None:
    """Without one of its transpositions a recipe makes another checkpoint, or none: the comparison notices."""
    family = ALL[name]
    recipe = recipes.load(own)
    tried = 0
    with holdall.open(save_source(family, tmp_path / own)) as model:
        for at, line in enumerate(recipe.tensors):
            kept = tuple(call for call in line.operations if call[0] != "transpose")
            unused = line.when == ("not tied" if name == "gpt2" else "tied")
            if kept == line.operations or unused:
                continue
            lines = [*recipe.tensors]
            lines[at] = dataclasses.replace(line, operations=kept)
            tried += 1
            try:
                changed = dataclasses.replace(recipe, tensors=lines)
                made = recipes.apply_recipe(changed, model, "gptrs-checkpoint").model
            except ContentError:
                continue  # shapes that do not fit
            arrays = {each: made[each].numpy() for each in made}
            with pytest.raises(AssertionError):
                assert_equal(arrays, family.tensors)
    assert tried == {"gpt2": 1}.get(name, 6)
