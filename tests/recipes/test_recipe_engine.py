"""Applying recipes: compared with numpy, in both directions, with everything that does not fit in one message."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from holdall.errors import ContentError, UnsupportedError
from holdall.model.model import Model
from holdall.model.payload import Computed
from holdall.model.tensor import Tensor
from holdall.recipes import pieces
from tests.recipes.test_recipe_files import WORKED

CONFIG = {
    "model_type": "tiny", "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1,
    "hidden_act": "silu", "tie_word_embeddings": True, "rms_norm_eps": 1e-5,
}  # fmt: skip


def tiny_arrays():
    random = np.random.default_rng(1)

    def make(*shape):
        return random.standard_normal(shape).astype(np.float16)

    arrays = {"embed.weight": make(10, 8)}
    for n in range(2):
        arrays |= {f"layers.{n}.norm.weight": make(8), f"layers.{n}.q.weight": make(8, 8)}
        arrays |= {f"layers.{n}.k.weight": make(4, 8), f"layers.{n}.v.weight": make(4, 8)}
        arrays |= {f"layers.{n}.experts.{e}.up.weight": make(6, 8) for e in range(11)}
    return arrays


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(WORKED)
    return str(path)


@pytest.fixture
def folder(tmp_path):
    def save(arrays=None, **changes):
        config = {key: value for key, value in (CONFIG | changes).items() if value is not None}
        tensors = [Tensor.of(name, values) for name, values in (arrays or tiny_arrays()).items()]
        path = tmp_path / "folder"
        holdall.save(path, Model(tensors, assets={"config.json": json.dumps(config).encode()}), format="hf")
        return path

    return save


def test_there_and_back_gives_the_same_tensors(folder, recipe, tmp_path):
    arrays, source = tiny_arrays(), folder()
    report = holdall.convert(source, tmp_path / "m.gguf", recipe=recipe)
    assert report.changes[0] == "recipe tiny (Tiny): 31 tensors become 7"
    assert {"cast('f32'): 2 tensors", "stack: 2 tensors"} < set(report.changes)
    with holdall.open(tmp_path / "m.gguf") as model:
        for n in range(2):
            joined = np.concatenate([arrays[f"layers.{n}.{part}.weight"] for part in "qkv"])
            np.testing.assert_array_equal(model[f"blk.{n}.attn_qkv.weight"].numpy(), joined)
            experts = np.stack([arrays[f"layers.{n}.experts.{e}.up.weight"] for e in range(11)])
            np.testing.assert_array_equal(model[f"blk.{n}.ffn_up_exps.weight"].numpy(), experts)
            assert model[f"blk.{n}.attn_norm.weight"].numpy().dtype == np.float32
        assert model.metadata.kind("tiny.block_count") == "u32"
        assert model.metadata["general.architecture"] == "tiny"
        assert model.metadata["tiny.rope.dimension_count"] == 4
    holdall.convert(tmp_path / "m.gguf", tmp_path / "back", format="hf", recipe=recipe)
    with holdall.open(tmp_path / "back") as model:
        assert set(model) == set(arrays)
        for name, values in arrays.items():
            assert model[name].numpy().tobytes() == values.tobytes()
            assert (model[name].shape, model[name].numpy().dtype) == (values.shape, values.dtype)
        assert model.config == CONFIG


def test_everything_that_does_not_fit_is_in_one_message(folder, recipe, tmp_path):
    arrays = tiny_arrays()
    del arrays["layers.1.norm.weight"], arrays["layers.0.experts.4.up.weight"], arrays["layers.1.k.weight"]
    arrays["extra"] = np.zeros(3, np.float16)
    arrays["layers.0.q.weight"] = np.zeros((9, 8), np.float16)
    source = folder(arrays, hidden_act="gelu", rms_norm_eps="small", num_attention_heads=2)
    with pytest.raises(ContentError) as caught:
        holdall.convert(source, tmp_path / "m.gguf", recipe=recipe)
    for part in [
        "the recipe tiny does not fit, 7 things: ",
        "only silu is known",
        "tiny.attention.layer_norm_rms_epsilon: 'small' is no number",
        "no line takes the tensor 'extra'",
        "the tensor 'layers.1.norm.weight' is missing",
        "the tensor 'layers.0.experts.4.up.weight' is missing",
        "the tensor 'layers.1.k.weight' is missing",
        "tensor 'layers.0.q.weight' f16[17, 8] cannot be split into [8, 4, 4] along dimension 0",
        "--recipe none converts without one",
    ]:
        assert part in str(caught.value)
    assert not (tmp_path / "m.gguf").exists()
    holdall.convert(source, tmp_path / "m.gguf", recipe="none")


def test_a_missing_number_is_named(folder, recipe, tmp_path):
    source = folder(num_attention_heads=None)
    with pytest.raises(ContentError, match=re.escape("the configuration lacks num_attention_heads")):
        holdall.convert(source, tmp_path / "m.gguf", recipe=recipe)
    done = CliRunner().invoke(main, ["convert", str(source), str(tmp_path / "m.gguf"), "--recipe", recipe])
    assert done.exit_code == 1
    assert done.output.count("\n") == 1


def test_another_value_than_the_recipe_computes_is_refused_on_the_way_back(folder, recipe, tmp_path):
    holdall.convert(folder(), tmp_path / "m.gguf", recipe=recipe, metadata={"tiny.rope.dimension_count": 3})
    message = "tiny.rope.dimension_count is 3, and width would make 4 of it"
    with pytest.raises(ContentError, match=re.escape(message)):
        holdall.convert(tmp_path / "m.gguf", tmp_path / "back", format="hf", recipe=recipe)


def test_a_dry_run_shows_the_table(folder, recipe, tmp_path):
    words = ["convert", str(folder()), str(tmp_path / "m.gguf"), "--recipe", recipe, "--dry-run"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert re.search(r"layers\.1\.norm\.weight +blk\.1\.attn_norm\.weight +cast\('f32'\)", done.output)
    assert not (tmp_path / "m.gguf").exists()
    report = json.loads(CliRunner().invoke(main, [*words, "--json"]).output)["recipe"]
    assert (report["name"], report["backwards"], len(report["tensors"])) == ("tiny", False, 7)


def test_a_recipe_that_leads_elsewhere_is_refused(folder, recipe, tmp_path):
    message = "the recipe tiny leads to gguf, or back to hf, not from hf to oinf"
    with pytest.raises(UnsupportedError, match=message):
        holdall.convert(folder(), tmp_path / "m.oinf", recipe=recipe)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('family = "x"\nfrom = [\n', "line 3, column 1: invalid value"),
        ('family = "x"\nfrom = [1, 2', "line 2, column 13: unclosed array"),
        ('family = "x"\nfrom = }\n', "line 2, column 8: invalid value"),
    ],
)
def test_a_broken_recipe_file_is_a_sentence_and_nothing_is_written(text, place, folder, tmp_path):
    (tmp_path / "bad.toml").write_text(text)
    words = ["convert", str(folder()), str(tmp_path / "m.gguf"), "--recipe", str(tmp_path / "bad.toml")]
    done = CliRunner().invoke(main, words)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"holdall: {tmp_path / 'bad.toml'}, {place}\n"
    assert not (tmp_path / "m.gguf").exists()


def test_a_tied_head_is_a_copy_that_goes_again(folder, tmp_path):
    path = tmp_path / "tied.toml"
    path.write_text("""
family = "Tied"
from.formats = ["hf"]
from.match = { model_type = "tiny" }
to.formats = ["gguf"]
to.match = { "general.architecture" = "tied" }
tensors = [
    { from = "w", to = "a" },
    { from = "w", to = "head", do = ["duplicate", "transpose"] },
    { from = "n", to = "n", do = "add(1)" },
    { from = "old", do = "drop", optional = true },
]
""")
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    source = folder({"w": values, "n": np.full(2, 0.25, np.float32), "old": values})
    holdall.convert(source, tmp_path / "m.gguf", recipe=str(path))
    with holdall.open(tmp_path / "m.gguf") as model:
        assert model["head"].numpy().tolist() == values.T.tolist()
        assert model["n"].numpy().tolist() == [1.25, 1.25]
        assert "old" not in model
    holdall.convert(tmp_path / "m.gguf", tmp_path / "back", format="hf", recipe=str(path))
    with holdall.open(tmp_path / "back") as model:
        assert set(model) == {"w", "n"}
        assert model["n"].numpy().tolist() == [0.25, 0.25]
    with holdall.open(tmp_path / "m.gguf") as model:
        changed = [tensor if tensor.name != "head" else Tensor.of("head", values.T + 1) for tensor in model.tensors]
        holdall.save(tmp_path / "other.gguf", model.replace(tensors=changed))
    with pytest.raises(ContentError, match="tensor 'head' should be a copy of 'w', and has other values"):
        holdall.convert(tmp_path / "other.gguf", tmp_path / "back2", format="hf", recipe=str(path))


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("dtype", [np.int8, np.float64])
def test_pieces_are_those_of_numpy_beyond_every_buffer(held, dtype):
    values = np.arange(3 * 1024 * 1031, dtype=np.int64).astype(dtype).reshape(1031 * 2, 3, 512)

    def tensor(array):
        made = Tensor.of("w", array)
        if not held:  # bytes that can only be read in order
            made = made.replace(payload=Computed(array.nbytes, lambda: [array.tobytes()]))
        return made

    whole = tensor(values)
    for axis, sizes in [(0, [1000, 0, 1062]), (1, [1, 2]), (2, [500, 12])]:
        parts = pieces.split(whole, axis, sizes)
        for part, expected in zip(parts, np.split(values, np.cumsum(sizes)[:-1], axis), strict=True):
            np.testing.assert_array_equal(part.numpy(), expected)
        assert pieces.concatenate(parts, axis).numpy().tobytes() == values.tobytes()
    mixed = pieces.interleave(whole, 1031, 2)
    np.testing.assert_array_equal(mixed.numpy(), values)  # one row in each half
    flat = tensor(values.reshape(64, -1))
    expected = values.reshape(4, 2, 8, -1).swapaxes(1, 2).reshape(64, -1)
    np.testing.assert_array_equal(pieces.interleave(flat, 4, 2).numpy(), expected)
    assert pieces.interleave(pieces.interleave(flat, 4, 2), 4, 2, back=True).numpy().tobytes() == values.tobytes()
    np.testing.assert_array_equal(
        pieces.concatenate([flat, flat], 0, stacked=True).numpy(), np.stack([values.reshape(64, -1)] * 2)
    )
