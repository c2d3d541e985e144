"""What the exporters of gpt.rs make of small models, written down by hand from their rules, in numpy.

A family is a state dict under the names of its source, the configuration beside it, and the checkpoint: kind,
configuration, and every tensor. docs/formats/gptrs.md states the rules. Nothing here imports holdall.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


@dataclass
class Family:
    """One model: what goes in, and what the exporter writes."""

    source: Arrays
    settings: dict[str, Any]  # config.json of the source
    kind: str
    config: dict[str, Any]
    tensors: Arrays
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # all of them, spelled out


def _maker(seed: int) -> Callable[..., NDArray[np.float32]]:
    random = np.random.default_rng(seed)
    return lambda *shape: random.standard_normal(shape, np.float32)


# -- GPT-2 ------------------------------------------------------------------------------------------------------------

GPT2_SHAPES = {
    "tok_embeddings.weight": (11, 8),
    "pos_embeddings": (6, 8),
    "blocks.0.attention.w_qkv": (8, 24),
    "blocks.0.attention.b_qkv": (24,),
    "blocks.0.attention.w_out": (8, 8),
    "blocks.0.attention.b_out": (8,),
    "blocks.0.feed_forward.w_in": (8, 16),
    "blocks.0.feed_forward.b_in": (16,),
    "blocks.0.feed_forward.w_out": (16, 8),
    "blocks.0.feed_forward.b_out": (8,),
    "blocks.0.ln_1.gamma": (8,),
    "blocks.0.ln_1.beta": (8,),
    "blocks.0.ln_2.gamma": (8,),
    "blocks.0.ln_2.beta": (8,),
    "blocks.1.attention.w_qkv": (8, 24),
    "blocks.1.attention.b_qkv": (24,),
    "blocks.1.attention.w_out": (8, 8),
    "blocks.1.attention.b_out": (8,),
    "blocks.1.feed_forward.w_in": (8, 16),
    "blocks.1.feed_forward.b_in": (16,),
    "blocks.1.feed_forward.w_out": (16, 8),
    "blocks.1.feed_forward.b_out": (8,),
    "blocks.1.ln_1.gamma": (8,),
    "blocks.1.ln_1.beta": (8,),
    "blocks.1.ln_2.gamma": (8,),
    "blocks.1.ln_2.beta": (8,),
    "final_ln.gamma": (8,),
    "final_ln.beta": (8,),
    "lm_head": (8, 11),
}


def make_gpt2(*, tied: bool = True, n_inner: int | None = 16) -> Family:
    """Two layers, 8 wide. Conv1D weights are [in, out] in both worlds; the head is turned."""
    make = _maker(1)
    inner = n_inner or 32
    source: Arrays = {"transformer.wte.weight": make(11, 8), "transformer.wpe.weight": make(6, 8)}
    out: Arrays = {
        "tok_embeddings.weight": source["transformer.wte.weight"],
        "pos_embeddings": source["transformer.wpe.weight"],
    }
    for n in range(2):
        h, b = f"transformer.h.{n}", f"blocks.{n}"
        for there, here, shape in [
            ("attn.c_attn.weight", "attention.w_qkv", (8, 24)),
            ("attn.c_attn.bias", "attention.b_qkv", (24,)),
            ("attn.c_proj.weight", "attention.w_out", (8, 8)),
            ("attn.c_proj.bias", "attention.b_out", (8,)),
            ("mlp.c_fc.weight", "feed_forward.w_in", (8, inner)),
            ("mlp.c_fc.bias", "feed_forward.b_in", (inner,)),
            ("mlp.c_proj.weight", "feed_forward.w_out", (inner, 8)),
            ("mlp.c_proj.bias", "feed_forward.b_out", (8,)),
            ("ln_1.weight", "ln_1.gamma", (8,)),
            ("ln_1.bias", "ln_1.beta", (8,)),
            ("ln_2.weight", "ln_2.gamma", (8,)),
            ("ln_2.bias", "ln_2.beta", (8,)),
        ]:
            out[f"{b}.{here}"] = source[f"{h}.{there}"] = make(*shape)
    out["final_ln.gamma"] = source["transformer.ln_f.weight"] = make(8)
    out["final_ln.beta"] = source["transformer.ln_f.bias"] = make(8)
    if tied:
        out["lm_head"] = source["transformer.wte.weight"].T
    else:
        source["lm_head.weight"] = make(11, 8)
        out["lm_head"] = source["lm_head.weight"].T
    settings = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": 11,
        "n_positions": 6,
        "n_embd": 8,
        "n_layer": 2,
        "n_head": 2,
        "n_inner": n_inner,
        "resid_pdrop": 0.25,
        "layer_norm_epsilon": 1e-05,
        "activation_function": "gelu_new",
        "tie_word_embeddings": tied,
    }
    config = {
        "vocab_size": 11,
        "context_length": 6,
        "embed_dim": 8,
        "num_layers": 2,
        "num_heads": 2,
        "mlp_ratio": 2 if n_inner else 4,
        "dropout": 0.25,
    }
    return Family(source, settings, "gpt", config, out, GPT2_SHAPES if n_inner else {})


# -- Mistral and Ministral --------------------------------------------------------------------------------------------

MISTRAL_SHAPES = {
    "tok_embeddings.weight": (13, 12),
    "blocks.0.attention.w_qkv": (12, 32),
    "blocks.0.attention.w_out": (16, 12),
    "blocks.0.feed_forward.w_gate": (12, 20),
    "blocks.0.feed_forward.w_up": (12, 20),
    "blocks.0.feed_forward.w_down": (20, 12),
    "blocks.0.norm_1.gamma": (12,),
    "blocks.0.norm_2.gamma": (12,),
    "blocks.1.attention.w_qkv": (12, 32),
    "blocks.1.attention.w_out": (16, 12),
    "blocks.1.feed_forward.w_gate": (12, 20),
    "blocks.1.feed_forward.w_up": (12, 20),
    "blocks.1.feed_forward.w_down": (20, 12),
    "blocks.1.norm_1.gamma": (12,),
    "blocks.1.norm_2.gamma": (12,),
    "final_norm.gamma": (12,),
    "lm_head": (12, 13),
}
_YARN = {"factor": 16.0, "original_max_position_embeddings": 64, "mscale": 1.0, "mscale_all_dim": 1.0}
_YARN |= {"beta_fast": 32.0, "beta_slow": 1.0}
ROPES: dict[str, tuple[dict[str, Any], float, dict[str, Any]]] = {  # settings, rope_theta, rope_scaling
    "none": ({}, 10000.0, {"kind": "none"}),
    "null": ({"rope_scaling": None, "rope_theta": 1e6}, 1e6, {"kind": "none"}),
    "default": ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, 1e6, {"kind": "none"}),
    "linear": (
        {"rope_scaling": {"type": "linear", "factor": 2}, "rope_theta": 5e5},
        5e5,
        {"kind": "linear", "factor": 2.0},
    ),
    "yarn": (
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, **_YARN, "llama_4_scaling_beta": 0.1}},
        1e6,
        {"kind": "yarn", **_YARN},
    ),
    "short yarn": (
        {"rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 8, "truncate": False}},
        10000.0,
        {"kind": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "truncate": False},
    ),
}


def make_mistral(rope: str = "none", *, tied: bool = False, model_type: str = "mistral") -> Family:
    """Two layers, 12 wide, 4 heads of 4 and 2 of keys and values: heads are not hidden_size // heads wide."""
    make = _maker(2)
    source: Arrays = {"model.embed_tokens.weight": make(13, 12)}
    out: Arrays = {"tok_embeddings.weight": source["model.embed_tokens.weight"]}
    for n in range(2):
        there, here = f"model.layers.{n}", f"blocks.{n}"
        q, k, v = make(16, 12), make(8, 12), make(8, 12)
        o, gate, up, down = make(12, 16), make(20, 12), make(20, 12), make(12, 20)
        before, after = make(12), make(12)
        source |= {
            f"{there}.self_attn.q_proj.weight": q,
            f"{there}.self_attn.k_proj.weight": k,
            f"{there}.self_attn.v_proj.weight": v,
            f"{there}.self_attn.o_proj.weight": o,
            f"{there}.mlp.gate_proj.weight": gate,
            f"{there}.mlp.up_proj.weight": up,
            f"{there}.mlp.down_proj.weight": down,
            f"{there}.input_layernorm.weight": before,
            f"{there}.post_attention_layernorm.weight": after,
        }
        out |= {
            f"{here}.attention.w_qkv": np.concatenate([q.T, k.T, v.T], axis=1),
            f"{here}.attention.w_out": o.T,
            f"{here}.feed_forward.w_gate": gate.T,
            f"{here}.feed_forward.w_up": up.T,
            f"{here}.feed_forward.w_down": down.T,
            f"{here}.norm_1.gamma": before,
            f"{here}.norm_2.gamma": after,
        }
    out["final_norm.gamma"] = source["model.norm.weight"] = make(12)
    if not tied:
        source["lm_head.weight"] = make(13, 12)
    out["lm_head"] = source.get("lm_head.weight", source["model.embed_tokens.weight"]).T
    stated, theta, scaling = ROPES[rope]
    settings = {
        "model_type": model_type,
        "architectures": ["MistralForCausalLM"],
        "vocab_size": 13,
        "max_position_embeddings": 128,
        "hidden_size": 12,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "intermediate_size": 20,
        "rms_norm_eps": 1e-06,
        "hidden_act": "silu",
        "tie_word_embeddings": tied,
        **stated,
    }
    config = {
        "vocab_size": 13,
        "context_length": 128,
        "embed_dim": 12,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 4,
        "kv_head_dim": 4,
        "mlp_hidden_dim": 20,
        "rms_norm_eps": 1e-06,
        "rope_theta": theta,
        "rotary_dim": 4,
        "rope_scaling": scaling,
    }
    return Family(source, settings, "ministral", config, out, MISTRAL_SHAPES)


def make_mistral3(*, tied: bool = True) -> Family:
    """A Ministral that also sees images: its text part has a prefix and a configuration inside; the rest is dropped."""
    text = make_mistral("yarn", tied=tied, model_type="ministral3")
    source = {f"language_model.{name}": array for name, array in text.source.items()}
    source["vision_tower.patch_conv.weight"] = np.zeros((2, 3, 2, 2), np.float32)
    source["vision_tower.transformer.layers.0.ffn_norm.weight"] = np.zeros(2, np.float32)
    source["multi_modal_projector.linear_1.weight"] = np.zeros((2, 2), np.float32)
    settings = {"model_type": "mistral3", "text_config": text.settings, "vision_config": {"hidden_size": 2}}
    settings |= {} if tied else {"tie_word_embeddings": False}
    return Family(source, settings, text.kind, text.config, text.tensors, text.shapes)


# -- convolutions with batch norms ------------------------------------------------------------------------------------


def _fold(source: Arrays, conv: str, norm: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Fold a batch norm into the convolution before it, each step rounded to f32 as torch rounds it."""
    gamma, beta = source[f"{norm}.weight"], source[f"{norm}.bias"]
    mean, var = source[f"{norm}.running_mean"], source[f"{norm}.running_var"]
    scale = gamma * (np.float32(1) / np.sqrt(var + np.float32(1e-5)))
    weight = source[f"{conv}.weight"] * scale.reshape(-1, 1, 1, 1)
    return weight, (np.zeros_like(mean) - mean) * scale + beta


def _add_conv(source: Arrays, make: Any, conv: str, norm: str, shape: tuple[int, int, int, int]) -> None:
    source[f"{conv}.weight"] = make(*shape)
    for part in ("weight", "bias", "running_mean"):
        source[f"{norm}.{part}"] = make(shape[0])
    source[f"{norm}.running_var"] = np.abs(make(shape[0])) + np.float32(0.1)
    source[f"{norm}.num_batches_tracked"] = np.array(7, np.int64)


def make_resnet34(classes: int = 1000) -> Family:
    """All 16 blocks, with 2 to 5 channels in place of 64 to 512."""
    make = _maker(3)
    source: Arrays = {}
    out: Arrays = {}

    def add(conv: str, norm: str, here: str, shape: tuple[int, int, int, int]) -> None:
        _add_conv(source, make, conv, norm, shape)
        out[f"{here}.weight"], out[f"{here}.bias"] = _fold(source, conv, norm)

    add("conv1", "bn1", "conv1", (2, 3, 7, 7))
    before = 2
    for stage, (blocks, channels) in enumerate([(3, 2), (4, 3), (6, 4), (3, 5)], start=1):
        for block in range(blocks):
            place = f"layer{stage}.{block}"
            add(f"{place}.conv1", f"{place}.bn1", f"{place}.conv1", (channels, before, 3, 3))
            add(f"{place}.conv2", f"{place}.bn2", f"{place}.conv2", (channels, channels, 3, 3))
            if stage > 1 and block == 0:
                shape = (channels, before, 1, 1)
                add(f"{place}.downsample.0", f"{place}.downsample.1", f"{place}.downsample", shape)
            before = channels
    out["fc.weight"] = source["fc.weight"] = make(classes, 5)
    out["fc.bias"] = source["fc.bias"] = make(classes)
    return Family(source, {}, "resnet34", {"num_classes": classes}, out)


def make_mobilenet_v2(classes: int = 1000) -> Family:
    """All 17 blocks, with few channels. The first block is not expanded."""
    make = _maker(4)
    source: Arrays = {}
    out: Arrays = {}

    def add(conv: str, norm: str, here: str, shape: tuple[int, int, int, int]) -> None:
        _add_conv(source, make, conv, norm, shape)
        out[f"{here}.weight"], out[f"{here}.bias"] = _fold(source, conv, norm)

    add("features.0.0", "features.0.1", "stem", (2, 3, 3, 3))
    add("features.1.conv.0.0", "features.1.conv.0.1", "blocks.0.depthwise", (2, 1, 3, 3))
    add("features.1.conv.1", "features.1.conv.2", "blocks.0.project", (3, 2, 1, 1))
    for block in range(1, 17):
        there, here = f"features.{block + 1}.conv", f"blocks.{block}"
        add(f"{there}.0.0", f"{there}.0.1", f"{here}.expand", (6, 3, 1, 1))
        add(f"{there}.1.0", f"{there}.1.1", f"{here}.depthwise", (6, 1, 3, 3))
        add(f"{there}.2", f"{there}.3", f"{here}.project", (3, 6, 1, 1))
    add("features.18.0", "features.18.1", "head", (4, 3, 1, 1))
    out["classifier.weight"] = source["classifier.1.weight"] = make(classes, 4)
    out["classifier.bias"] = source["classifier.1.bias"] = make(classes)
    return Family(source, {}, "mobilenet_v2", {"num_classes": classes}, out)
