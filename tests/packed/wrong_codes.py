"""Models of GPTQ, AWQ, bitsandbytes, MXFP4, NVFP4, MLX and GGUF that are subtly wrong."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tests.packed.layouts import Content, Layout, add, put_beside, read_content

__all__ = ["WRONG_CODES"]


def _mix(content: Content, other: str) -> None:
    content.tensors |= {f"other.{name}": each for name, each in read_content(other).tensors.items()}


def _describe(content: Content, **settings: Any) -> None:
    """Change what is said of the first weight of four bits."""
    content.change(
        "0.gate_proj.weight.quant_state.bitsandbytes__nf4",
        lambda s: np.frombuffer(json.dumps(json.loads(s.tobytes()) | settings).encode(), np.uint8),
    )


_STATE = "model.layers.0.gate_proj.weight.quant_state.bitsandbytes__nf4"
_MAP = "model.layers.0.gate_proj.weight.quant_map"

WRONG_CODES = [
    # GPTQ, AWQ
    Layout(
        "no zero points of GPTQ",
        "gptq-4",
        lambda c: c.drop("q_proj.qzeros"),
        "gptq.part",
        "model.layers.0.q_proj.qweight",
    ),
    Layout(
        "no order of columns",
        "gptq-act-order",
        lambda c: c.drop("q_proj.g_idx"),
        "gptq.part",
        "model.layers.0.q_proj.qweight",
    ),
    Layout(
        "a group beyond the last",
        "gptq-4",
        lambda c: c.change("q_proj.g_idx", lambda g: g + 1),
        "gptq.group",
        "model.layers.0.q_proj.weight",
    ),
    Layout("other bits", "gptq-4", lambda c: c.state(bits=8), "gptq.shape", "model.layers.0.down_proj.scales"),
    Layout(
        "other bits, one group",
        "gptq-one-group",
        lambda c: c.state(bits=8),
        "gptq.shape",
        "model.layers.0.down_proj.qzeros",
    ),
    Layout(
        "another group of GPTQ",
        "gptq-4",
        lambda c: c.state(group_size=64),
        "gptq.shape",
        "model.layers.0.down_proj.scales",
    ),
    Layout("a group of zero", "gptq-4", lambda c: c.state(group_size=0), "gptq.settings"),
    Layout("an unknown layout of codes", "gptq-4", lambda c: c.state(checkpoint_format="marlin"), "gptq.settings"),
    Layout("two layouts of codes", "gptq-4", lambda c: c.state(format="gptq_v2"), "gptq.settings"),
    Layout("marlin, by its older name", "gptq-4", lambda c: c.state(is_marlin_format=True), "gptq.settings"),
    Layout(
        "two schemes in one folder",
        "gptq-4",
        lambda c: _mix(c, "bnb-nf4"),
        "gptq.left",
        "other.model.layers.0.gate_proj.weight",
    ),
    Layout(
        "codes and a plain weight",
        "gptq-4",
        add(model__layers__0__q_proj__weight=np.zeros((64, 96), np.float16)),
        "gptq.name",
        "model.layers.0.q_proj.weight",
    ),
    Layout(
        "GPTQ where AWQ is stated",
        "gptq-4",
        lambda c: c.state(quant_method="awq", format=None, checkpoint_format=None),
        "awq.shape",
    ),
    Layout("AWQ where GPTQ is stated", "awq-32", lambda c: c.state(quant_method="gptq"), "gptq.shape"),
    Layout(
        "bits of its own for a layer",
        "gptq-4",
        lambda c: c.state(dynamic={r"+:.*\.q_proj$": {"bits": 4, "group_size": 32}}),
        "gptq.settings",
        "model.layers.0.q_proj.weight",
    ),
    Layout(
        "an excluded layer that is packed",
        "gptq-4",
        lambda c: c.state(dynamic={r"-:model\.layers\.0": {}}),
        "gptq.settings",
        "model.layers.0.q_proj.weight",
    ),
    Layout("a pattern that looks ahead", "gptq-4", lambda c: c.state(dynamic={"-:(?!lm)": {}}), "gptq.settings"),
    Layout(
        "another version beside",
        "gptq-4",
        lambda c: (
            c.state(format=None, checkpoint_format=None),
            put_beside("quantize_config", bits=4, checkpoint_format="gptq_v2")(c),
        ),
        "gptq.settings",
        "quantize_config.json",
    ),
    Layout(
        "other bits beside", "gptq-4", put_beside("quantize_config", bits=8), "gptq.settings", "quantize_config.json"
    ),
    Layout(
        "another group beside",
        "gptq-one-group",
        put_beside("quantize_config", group_size=96),
        "gptq.settings",
        "quantize_config.json",
    ),
    Layout(
        "another scheme beside",
        "gptq-4",
        put_beside("quantize_config", quant_method="awq"),
        "gptq.settings",
        "quantize_config.json",
    ),
    Layout(
        "another group of AWQ beside",
        "awq-32",
        put_beside("quant_config", w_bit=4, q_group_size=128, version="GEMM"),
        "awq.settings",
        "quant_config.json",
    ),
    Layout("bits under two names", "awq-32", lambda c: c.state(w_bit=8), "awq.settings", "config.json"),
    Layout("zero points that are denied", "awq-32", lambda c: c.state(zero_point=False), "awq.settings"),
    Layout(
        "a plain layer that is packed", "awq-32", lambda c: c.state(modules_to_not_convert=["k_proj"]), "awq.settings"
    ),
    Layout("another layout of AWQ", "awq-32", lambda c: c.state(version="gemv"), "awq.settings"),
    # bitsandbytes
    Layout(
        "no description",
        "bnb-nf4",
        lambda c: c.drop(".0.gate_proj.weight.quant_state.bitsandbytes__nf4"),
        "bnb.left",
        "model.layers.0.gate_proj.weight",
    ),
    Layout(
        "no scales of blocks",
        "bnb-nf4",
        lambda c: c.drop(".0.gate_proj.weight.absmax"),
        "bnb.part",
        "model.layers.0.gate_proj.weight",
    ),
    Layout(
        "a shorter table",
        "bnb-nf4",
        lambda c: c.change("quant_map", lambda t: t[:8]),
        "bnb.shape",
        "model.layers.0.gate_proj.weight.quant_map",
    ),
    Layout(
        "no statistics of statistics",
        "bnb-nf4-nested",
        lambda c: c.drop("nested_absmax"),
        "bnb.part",
        "model.layers.0.gate_proj.weight",
    ),
    Layout(
        "a description that is no JSON",
        "bnb-nf4",
        lambda c: c.change("bitsandbytes__nf4", lambda s: s[:-1]),
        "bnb.state",
        "model.layers.0.gate_proj.weight.quant_state.bitsandbytes__nf4",
    ),
    Layout("FP4 in the description of NF4", "bnb-nf4", lambda c: _describe(c, quant_type="fp4"), "bnb.state", _STATE),
    Layout("int8 in the description of NF4", "bnb-nf4", lambda c: _describe(c, quant_type="int8"), "bnb.state", _STATE),
    Layout("a shape of many axes", "bnb-nf4", lambda c: _describe(c, shape=[1] * 63 + [24, 128]), "bnb.state", _STATE),
    Layout(
        "the table of FP4 for NF4",
        "bnb-nf4",
        lambda c: c.change("0.gate_proj.weight.quant_map", lambda t: read_content("bnb-fp4").tensors[_MAP]),
        "bnb.state",
        _MAP,
    ),
    Layout(
        "a table of zeros",
        "bnb-nf4",
        lambda c: c.change("0.gate_proj.weight.quant_map", lambda t: t * 0),
        "bnb.state",
        _MAP,
    ),
    Layout(
        "a table of no numbers",
        "bnb-nf4",
        lambda c: c.change("0.gate_proj.weight.quant_map", lambda t: t * np.float32(np.nan)),
        "bnb.state",
        _MAP,
    ),
    Layout(
        "int8 without scales",
        "bnb-int8",
        lambda c: c.drop("0.up_proj.SCB"),
        "bnb.left",
        "model.layers.0.up_proj.weight",
    ),
    Layout(
        "int8 by tiles",
        "bnb-int8",
        lambda c: c.change("0.up_proj.weight_format", lambda f: f + 1),
        "bnb.layout",
        "model.layers.0.up_proj.weight_format",
    ),
    # MXFP4, NVFP4, MLX
    Layout(
        "no exponents",
        "mxfp4-experts",
        lambda c: c.drop("gate_up_proj_scales"),
        "mxfp4.part",
        "model.layers.0.mlp.experts.gate_up_proj_blocks",
    ),
    Layout(
        "exponents without blocks",
        "mxfp4-experts",
        lambda c: c.drop("gate_up_proj_blocks"),
        "mxfp4.left",
        "model.layers.0.mlp.experts.gate_up_proj_scales",
    ),
    Layout(
        "blocks of another size",
        "mxfp4-experts",
        lambda c: c.change("gate_up_proj_blocks", lambda b: b.reshape(3, 32, 1, 32)),
        "mxfp4.shape",
        "model.layers.0.mlp.experts.gate_up_proj_blocks",
    ),
    Layout(
        "half of the scales",
        "nvfp4-stated",
        lambda c: c.change("0.o_proj.weight_scale", lambda s: s[:, :2]),
        "nvfp4.shape",
        "model.layers.0.o_proj.weight_scale",
    ),
    Layout(
        "no scale for all",
        "nvfp4-stated",
        lambda c: c.drop("0.o_proj.weight_scale_2"),
        "nvfp4.left",
        "model.layers.0.o_proj.weight_scale",
    ),
    Layout("no biases", "mlx-4", lambda c: c.drop("0.q_proj.biases"), "mlx.part", "model.layers.0.q_proj.weight"),
    Layout(
        "no scales of MLX", "mlx-4", lambda c: c.drop("0.q_proj.scales"), "mlx.left", "model.layers.0.q_proj.biases"
    ),
    Layout("other bits of MLX", "mlx-4", lambda c: c.state(bits=8), "mlx.shape", "model.layers.0.q_proj.scales"),
    Layout(
        "another group of MLX", "mlx-4", lambda c: c.state(group_size=32), "mlx.shape", "model.layers.0.q_proj.scales"
    ),
    Layout(
        "settings of another layer",
        "mlx-own-settings",
        lambda c: c.state(**{"model.layers.1.q_proj": {"bits": 4, "group_size": 32}}),
        "mlx.shape",
        "model.layers.1.q_proj.scales",
    ),
    Layout(
        "another kind of MLX", "mlx-4", lambda c: c.state(mode="mxfp4"), "mlx.settings", "model.layers.0.q_proj.scales"
    ),
    Layout("two descriptions", "mlx-4", lambda c: c.settings.update(bits=8), "mlx.settings", "config.json"),
    # GGUF
    Layout(
        "blocks of GGUF",
        "gptq-4",
        lambda c: (
            c.settings.clear(),
            c.state(quant_method="gguf"),
            add(x__qweight_type=np.uint8([2]), x__qweight=np.zeros((4, 18), np.uint8))(c),
        ),
        "gguf.blocks",
        "x.qweight_type",
    ),
]
