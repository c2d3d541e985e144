"""What ``info`` tells of a model's make: kinds of layers, tied and duplicate tensors, files beside the weights."""

import json

import numpy as np
import pytest

import holdall
from holdall.operations.overview import name_kind

KINDS = {
    "embedding": ["model.embed_tokens.weight", "transformer.wte.weight", "token_embd.weight", "wpe.weight",
                  "embeddings.position_embeddings.weight"],
    "norm": ["model.layers.0.input_layernorm.weight", "blk.0.attn_norm.weight", "h.1.ln_1.bias", "ln_f.weight",
             "bn1.running_mean", "encoder.layer.0.attention.output.LayerNorm.weight", "layers.0.norm.weight"],
    "attention": ["model.layers.0.self_attn.q_proj.weight", "h.0.attn.c_attn.weight", "blk.3.attn_q.weight",
                  "encoder.layer.0.attention.output.dense.weight", "layers.0.attention.qkv", "decoder.q_proj.weight"],
    "feed-forward": ["model.layers.0.mlp.up_proj.weight", "blk.3.ffn_down.weight", "h.0.mlp.c_fc.weight",
                     "encoder.layer.0.output.dense.weight", "encoder.layer.0.intermediate.dense.bias",
                     "layers.1.feed_forward.w1.weight", "block.experts.3.w2.weight"],
    "convolution": ["layer1.0.conv1.weight", "conv_stem.weight"],
    "recurrent": ["lstm.weight_ih_l0", "rnn.bias_hh_l1"],
    "head": ["lm_head.weight", "output.weight", "classifier.bias", "cls.predictions.bias"],
    "other": ["w", "graph.node[3].value", "scale", ""],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in KINDS.items() for name in names])
def test_kinds_of_layers(kind, name):
    assert name_kind(name) == kind


@pytest.mark.parametrize(
    ("names", "attention"),
    [
        (["message_passing.W_i.weight", "message_passing.W_h.weight", "message_passing.W_o.weight"], 0),
        (["layers.0.W_q.weight", "layers.0.W_k.weight", "layers.0.W_v.weight", "layers.0.W_o.weight"], 4),
        (["layers.0.query.weight", "layers.0.key.weight", "layers.0.value.bias", "layers.0.out.weight"], 4),
        (["a.W_q.weight", "a.W_k.weight", "b.W_o.weight"], 2),
        (["memory.key.weight", "out.weight", "x.value.bias"], 0),
    ],
)
def test_letters_are_attention_only_beside_their_siblings(cli, tmp_path, names, attention):
    holdall.save(tmp_path / "m.safetensors", {name: np.zeros(2) for name in [*names, "norm.weight"]})
    kinds = json.loads(cli("info", "--json", tmp_path / "m.safetensors").output)["kinds"]
    assert sum(kind["tensors"] for kind in kinds if kind["kind"] == "attention") == attention


def test_a_long_name_takes_no_time():
    assert name_kind("." * 1_000_000 + "attn.") == "attention"
    assert name_kind("_" * 1_000_000) == "other"


def test_parameters_by_kind(cli, tmp_path):
    path = tmp_path / "m.safetensors"
    holdall.save(path, {
        "model.embed_tokens.weight": np.zeros((10, 4), np.float16), "layers.0.mlp.up_proj.weight": np.zeros((4, 4)),
        "layers.0.mlp.down_proj.weight": np.zeros((4, 4)), "norm.weight": np.zeros(4),
    })  # fmt: skip
    facts = json.loads(cli("info", "--json", path).output)
    assert facts["kinds"] == [
        {"kind": "embedding", "tensors": 1, "parameters": 40},
        {"kind": "feed-forward", "tensors": 2, "parameters": 32},
        {"kind": "norm", "tensors": 1, "parameters": 4},
    ]
    assert sum(kind["parameters"] for kind in facts["kinds"]) == facts["parameters"] == 76
    shown = cli("info", path).output
    assert "layers        tensors  parameters  share" in shown and "52.6%" in shown


def test_names_that_tell_nothing_show_no_table(cli, tmp_path):
    holdall.save(tmp_path / "m.npz", {"a": np.zeros(3), "b": np.ones(3)})
    assert "layers" not in cli("info", tmp_path / "m.npz").output


def test_tied_and_duplicate_tensors(cli, tmp_path):
    torch = pytest.importorskip("torch")
    shared = torch.arange(12.0).reshape(3, 4)
    content = {
        "embed.weight": shared,
        "lm_head.weight": shared,
        "a": torch.ones(5),
        "b": torch.ones(5),
        "c": torch.ones(6),
    }
    torch.save(content, tmp_path / "m.pt")
    facts = json.loads(cli("info", "--json", "--duplicates", tmp_path / "m.pt").output)
    assert facts["tied"] == [["embed.weight", "lm_head.weight"]]
    assert facts["duplicates"] == [["a", "b"]]
    shown = cli("info", "--duplicates", tmp_path / "m.pt").output
    assert "embed.weight = lm_head.weight" in shown
    assert "a = b" in shown
    assert "duplicates" not in cli("info", tmp_path / "m.pt").output


def test_empty_tensors_are_not_tied(cli, tmp_path):
    holdall.save(tmp_path / "m.safetensors", {"a": np.zeros(0), "b": np.zeros(0), "c": np.zeros((0, 3))})
    facts = json.loads(cli("info", "--json", "--duplicates", tmp_path / "m.safetensors").output)
    assert (facts["tied"], facts["duplicates"]) == ([], [])


def test_files_beside_the_weights(cli, tmp_path):
    holdall.save(tmp_path / "model.safetensors", {"w": np.zeros(3, np.float32)})
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "training.log").write_text("x")
    (tmp_path / "notes.bin").write_bytes(b"x")
    (tmp_path / "model.onnx.data").write_bytes(bytes(5000))
    facts = json.loads(cli("info", "--json", tmp_path).output)
    assert "config.json" in facts["assets"]
    assert set(facts["beside"]) | set(facts["assets"]) == {
        "config.json",
        "training.log",
        "notes.bin",
        "model.onnx.data",
    }
    assert facts["beside"] == {"model.onnx.data": 5000}
    shown = cli("info", tmp_path).output
    assert all(name in shown for name in ("config.json", "training.log", "notes.bin"))
    assert "model.onnx.data  5.00 kB" in shown


def test_of_many_files_beside_the_weights_the_first_are_shown(cli, tmp_path):
    holdall.save(tmp_path / "model.safetensors", {"w": np.zeros(3, np.float32)})
    for number in range(25):
        (tmp_path / f"m{number:02}.onnx").write_bytes(bytes(number))
    (tmp_path / "z.pt").symlink_to("/nowhere")
    facts = json.loads(cli("info", "--json", tmp_path).output)["beside"]
    assert (len(facts), facts["m07.onnx"], facts["z.pt"]) == (26, 7, None)
    shown = cli("info", tmp_path).output
    assert "m19.onnx" in shown and "m20.onnx" not in shown and "and 6 more" in shown
