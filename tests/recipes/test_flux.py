"""Flux: the names, shapes and numbers of the original file, with rules written from the code of its programs.

The rules are those by which diffusers makes its folder of the original file, and ComfyUI-GGUF its GGUF file of it:
the names stay, vectors are f32, matrices keep their type, and the architecture is flux.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall import recipes
from holdall.cli import main
from holdall.errors import ContentError
from holdall.model.model import Model
from holdall.model.tensor import Tensor

HEAD, HEADS, TEXT, POOLED, CHANNELS, TIME = 128, 2, 48, 40, 64, 256
WIDTH = HEAD * HEADS
LAYERS, SINGLE = 2, 3
FOLDER, SINGLE_FILE = "flux-gguf", "flux-original-gguf"
CONFIG = {
    "_class_name": "FluxTransformer2DModel", "num_layers": LAYERS, "num_single_layers": SINGLE,
    "attention_head_dim": HEAD, "num_attention_heads": HEADS, "in_channels": CHANNELS, "joint_attention_dim": TEXT,
    "pooled_projection_dim": POOLED, "guidance_embeds": True, "axes_dims_rope": [16, 56, 56], "patch_size": 1,
}  # fmt: skip


def original_shapes(guidance=True) -> dict[str, tuple[int, ...]]:
    """The tensors of the original file: names and shapes, as its model states them."""
    linears = {"img_in": (WIDTH, CHANNELS), "txt_in": (WIDTH, TEXT), "final_layer.linear": (CHANNELS, WIDTH)}
    linears["final_layer.adaLN_modulation.1"] = (2 * WIDTH, WIDTH)
    for name, size in {"time_in": TIME, "vector_in": POOLED, **({"guidance_in": TIME} if guidance else {})}.items():
        linears |= {f"{name}.in_layer": (WIDTH, size), f"{name}.out_layer": (WIDTH, WIDTH)}
    shapes = {}
    for block in (f"double_blocks.{n}" for n in range(LAYERS)):
        for stream in ("img", "txt"):
            linears[f"{block}.{stream}_mod.lin"] = (6 * WIDTH, WIDTH)
            linears[f"{block}.{stream}_attn.qkv"] = (3 * WIDTH, WIDTH)
            linears[f"{block}.{stream}_attn.proj"] = (WIDTH, WIDTH)
            linears[f"{block}.{stream}_mlp.0"] = (4 * WIDTH, WIDTH)
            linears[f"{block}.{stream}_mlp.2"] = (WIDTH, 4 * WIDTH)
            shapes |= {f"{block}.{stream}_attn.norm.{part}_norm.scale": (HEAD,) for part in ("query", "key")}
    for block in (f"single_blocks.{n}" for n in range(SINGLE)):
        linears[f"{block}.modulation.lin"] = (3 * WIDTH, WIDTH)
        linears[f"{block}.linear1"] = (7 * WIDTH, WIDTH)
        linears[f"{block}.linear2"] = (WIDTH, 5 * WIDTH)
        shapes |= {f"{block}.norm.{part}_norm.scale": (HEAD,) for part in ("query", "key")}
    for name, shape in linears.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return shapes


@pytest.fixture(scope="module")
def original() -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    return {name: random.standard_normal(shape).astype(np.float16) for name, shape in original_shapes().items()}


BLOCK = {
    "norm1.linear": "img_mod.lin", "norm1_context.linear": "txt_mod.lin", "attn.to_out.0": "img_attn.proj",
    "attn.to_add_out": "txt_attn.proj", "ff.net.0.proj": "img_mlp.0", "ff.net.2": "img_mlp.2",
    "ff_context.net.0.proj": "txt_mlp.0", "ff_context.net.2": "txt_mlp.2",
}  # fmt: skip
NORMS = {
    "attn.norm_q": "img_attn.norm.query_norm", "attn.norm_k": "img_attn.norm.key_norm",
    "attn.norm_added_q": "txt_attn.norm.query_norm", "attn.norm_added_k": "txt_attn.norm.key_norm",
}  # fmt: skip
OUTER = {"x_embedder": "img_in", "context_embedder": "txt_in", "proj_out": "final_layer.linear"}
for new, old in (("timestep", "time"), ("text", "vector"), ("guidance", "guidance")):
    OUTER[f"time_text_embed.{new}_embedder.linear_1"] = f"{old}_in.in_layer"
    OUTER[f"time_text_embed.{new}_embedder.linear_2"] = f"{old}_in.out_layer"


def to_diffusers(original) -> dict[str, np.ndarray]:
    """The folder of diffusers, by the rules of its conversion of the original file."""
    made = {}
    for kind in ("weight", "bias"):
        for new, old in OUTER.items():
            if f"{old}.{kind}" in original:
                made[f"{new}.{kind}"] = original[f"{old}.{kind}"]
        shift, scale = np.split(original[f"final_layer.adaLN_modulation.1.{kind}"], 2)
        made[f"norm_out.linear.{kind}"] = np.concatenate([scale, shift])
        for n in range(LAYERS):
            before, after = f"double_blocks.{n}", f"transformer_blocks.{n}"
            made |= {f"{after}.{new}.{kind}": original[f"{before}.{old}.{kind}"] for new, old in BLOCK.items()}
            for stream, names in {"img": "to_{}", "txt": "add_{}_proj"}.items():
                parts = np.split(original[f"{before}.{stream}_attn.qkv.{kind}"], 3)
                for letter, part in zip("qkv", parts, strict=True):
                    made[f"{after}.attn.{names.format(letter)}.{kind}"] = part
        for n in range(SINGLE):
            before, after = f"single_blocks.{n}", f"single_transformer_blocks.{n}"
            made[f"{after}.norm.linear.{kind}"] = original[f"{before}.modulation.lin.{kind}"]
            made[f"{after}.proj_out.{kind}"] = original[f"{before}.linear2.{kind}"]
            parts = np.split(original[f"{before}.linear1.{kind}"], [WIDTH, 2 * WIDTH, 3 * WIDTH])
            for name, part in zip(("attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp"), parts, strict=True):
                made[f"{after}.{name}.{kind}"] = part
    for n in range(LAYERS):
        blocks = {new: original[f"double_blocks.{n}.{old}.scale"] for new, old in NORMS.items()}
        made |= {f"transformer_blocks.{n}.{new}.weight": values for new, values in blocks.items()}
    for n in range(SINGLE):
        for new, old in (("q", "query"), ("k", "key")):
            made[f"single_transformer_blocks.{n}.attn.norm_{new}.weight"] = original[
                f"single_blocks.{n}.norm.{old}_norm.scale"
            ]
    return made


def save_folder(path, arrays, dtype=None, **changes):
    config = {key: value for key, value in {**CONFIG, **changes}.items() if value is not None}
    tensors = [Tensor.of(name, values) for name, values in arrays.items()]
    assets = {"config.json": json.dumps(config).encode()}
    holdall.save(path, Model(tensors, assets=assets), format="hf")
    if dtype:
        holdall.convert(path, f"{path}-{dtype}", format="hf", cast=dtype)
    return f"{path}-{dtype}" if dtype else path


def check_gguf(path, original):
    with holdall.open(path) as model:
        assert model.metadata["general.architecture"] == "flux"
        assert model.metadata["general.quantization_version"] == 2
        assert model.metadata["general.file_type"] == 1
        assert set(model) == set(original)
        for name, values in original.items():
            expected = values.astype(np.float32) if values.ndim == 1 else values
            np.testing.assert_array_equal(model[name].numpy(), expected, err_msg=name, strict=True)


def test_a_folder_of_diffusers_becomes_the_original_and_comes_back(original, tmp_path):
    arrays = to_diffusers(original)
    assert len(arrays) > len(original)
    folder = save_folder(tmp_path / "transformer", arrays)
    report = holdall.convert(folder, tmp_path / "m.gguf")
    assert report.recipe.recipe.name == FOLDER
    check_gguf(tmp_path / "m.gguf", original)
    holdall.convert(tmp_path / "m.gguf", tmp_path / "back", format="hf")
    assert (tmp_path / "back" / "diffusion_pytorch_model.safetensors").is_file()
    with holdall.open(tmp_path / "back") as model:
        assert model.config == CONFIG
        assert set(model) == set(arrays)
        for name, values in arrays.items():
            np.testing.assert_array_equal(model[name].numpy(), values, err_msg=name, strict=True)


def test_the_single_file_keeps_its_names_and_comes_back(original, tmp_path):
    holdall.save(tmp_path / "flux.safetensors", original)
    report = holdall.convert(tmp_path / "flux.safetensors", tmp_path / "m.gguf")
    assert report.recipe.recipe.name == SINGLE_FILE
    check_gguf(tmp_path / "m.gguf", original)
    holdall.convert(tmp_path / "m.gguf", tmp_path / "back.safetensors")
    with holdall.open(tmp_path / "back.safetensors") as model:
        assert set(model) == set(original)
        assert all(model[name].numpy().tobytes() == values.tobytes() for name, values in original.items())


def test_a_file_becomes_a_folder_by_way_of_gguf(original, tmp_path):
    """Both recipes have the same other side, so that one leads on to the other."""
    less = {name: values for name, values in original.items() if not name.startswith("guidance_in")}
    assert set(less) == set(original_shapes(guidance=False))
    holdall.save(tmp_path / "schnell.safetensors", less)
    holdall.convert(tmp_path / "schnell.safetensors", tmp_path / "m.gguf")
    holdall.convert(tmp_path / "m.gguf", tmp_path / "folder", format="hf")
    with holdall.open(tmp_path / "folder") as model:
        assert model.config == {**CONFIG, "guidance_embeds": False}
        expected = to_diffusers(less)
        assert set(model) == set(expected)
        assert all(model[name].numpy().tobytes() == values.tobytes() for name, values in expected.items())


def test_small_floats_keep_their_type_and_vectors_are_f32(original, tmp_path):
    folder = save_folder(tmp_path / "transformer", to_diffusers(original), "bf16")
    holdall.convert(folder, tmp_path / "m.gguf")
    with holdall.open(tmp_path / "m.gguf") as model:
        assert model.metadata["general.file_type"] == 32
        assert {str(tensor.dtype) for tensor in model.tensors if tensor.ndim == 2} == {"bf16"}
        assert {str(tensor.dtype) for tensor in model.tensors if tensor.ndim == 1} == {"f32"}
    holdall.convert(tmp_path / "m.gguf", tmp_path / "back", format="hf")
    with holdall.open(folder) as first, holdall.open(tmp_path / "back") as second:
        assert set(first) == set(second)
        assert all(bytes(first[name].raw()) == bytes(second[name].raw()) for name in first)


# An operation of a recipe, and what is wrong without it. The single file has no other operation.
REMOVED = [
    (FOLDER, "roll", "final_layer.adaLN_modulation.1.weight"),
    (FOLDER, "cast", "dtypes float16, float32 mismatch"),
    (SINGLE_FILE, "cast", "dtypes float16, float32 mismatch"),
]


@pytest.mark.parametrize(("name", "operation", "wrong"), REMOVED)
def test_without_an_operation_the_file_is_another(name, operation, wrong, original, tmp_path):
    recipe = recipes.load(name)
    lines = [replace(each, operations=tuple(call for call in each.operations if call[0] != operation))
             for each in recipe.tensors]  # fmt: skip
    if name == FOLDER:
        source = save_folder(tmp_path / "transformer", to_diffusers(original))
    else:
        holdall.save(source := tmp_path / "flux.safetensors", original)
    holdall.convert(source, tmp_path / "m.gguf", recipe=replace(recipe, tensors=lines))
    with pytest.raises(AssertionError, match=wrong):
        check_gguf(tmp_path / "m.gguf", original)


REFUSED = [
    ({"num_attention_heads": None}, "num_attention_heads is needed, and is not stated"),
    ({"axes_dims_rope": [8, 28, 28]}, "axes_dims_rope is not [16, 56, 56]"),
    ({"num_layers": 3}, "the tensor 'transformer_blocks.2.norm1.linear.weight' is missing"),
    ({"attention_head_dim": 64}, "to_q.weight' f16[768, 256] cannot be split into [128, 128, 128] along dimension 0"),
    ({"guidance_embeds": False}, "no line takes the tensor 'time_text_embed.guidance_embedder.linear_1.weight'"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_a_configuration_that_does_not_fit_is_a_sentence_and_nothing_is_written(changes, message, original, tmp_path):
    folder = save_folder(tmp_path / "transformer", to_diffusers(original), **changes)
    with pytest.raises(ContentError) as refused:
        holdall.convert(folder, tmp_path / "m.gguf")
    assert message in str(refused.value)
    done = CliRunner().invoke(main, ["convert", str(folder), str(tmp_path / "m.gguf")])
    assert (done.exit_code, done.output.count("\n")) == (1, 1)
    assert not (tmp_path / "m.gguf").exists()


def test_a_part_of_the_single_file_that_is_missing_is_named(original, tmp_path):
    less = {name: values for name, values in original.items() if name != "single_blocks.1.linear2.bias"}
    holdall.save(tmp_path / "flux.safetensors", less)
    with pytest.raises(ContentError, match=r"the tensor 'single_blocks.1.linear2.bias' is missing"):
        holdall.convert(tmp_path / "flux.safetensors", tmp_path / "m.gguf")
