"""Models that are right in an unusual way."""

from __future__ import annotations

import numpy as np

from tests.packed.layouts import Layout, add, put_beside

__all__ = ["RIGHT"]

RIGHT = [
    Layout("a setting for a scheme that is not there", "fp8-blocks", lambda c: c.state(activation_scheme="static")),
    Layout(
        "the same settings once more",
        "gptq-4",
        put_beside("quantize_config", bits=4, group_size=32, quant_method="gptq", checkpoint_format="gptq"),
    ),
    Layout(
        "the same settings under older names",
        "awq-32",
        put_beside("quant_config", w_bit=4, q_group_size=32, version="GEMM", zero_point=True),
    ),
    Layout("settings for a layer that is not there", "gptq-4", lambda c: c.state(dynamic={"-:lm_head": {}})),
    Layout("names of plain layers", "awq-32", lambda c: c.state(modules_to_not_convert=["lm_head", "q", "odel"])),
    Layout(
        "columns in their own order",
        "ct-int4-groups",
        lambda c: c.settings["config_groups"]["group_0"]["weights"].update(actorder="static"),
    ),
    Layout("a bias beside codes", "gptq-4", add(model__layers__0__q_proj__bias=np.zeros(64, np.float16))),
    Layout(
        "no order of columns where none is needed",
        "gptq-4",
        lambda c: (c.drop("q_proj.g_idx"), c.drop("down_proj.g_idx")),
    ),
    Layout("words without a sign", "gptq-4", lambda c: c.change("q_proj.qweight", lambda w: w.view(np.uint32))),
    Layout("the older key of the version", "gptq-v2", lambda c: c.settings.pop("format")),
    Layout("the newer key of the version", "gptq-v2", lambda c: c.settings.pop("checkpoint_format")),
    Layout("a group as long as a row", "gptq-one-group", lambda c: (c.drop("down_proj.g_idx"), c.drop("q_proj.g_idx"))),
    Layout(
        "zeros as zero points",
        "ct-int8-rows",
        add(model__layers__0__q_proj__weight_zero_point=np.zeros((48, 1), np.int8)),
    ),
    Layout(
        "zeros as zero points of words",
        "ct-int4-groups",
        add(model__layers__0__q_proj__weight_zero_point=np.zeros((48, 2), np.int8)),
    ),
    Layout(
        "scales of rows without an axis",
        "ct-fp8-rows",
        lambda c: c.change("q_proj.weight_scale", lambda s: s.reshape(-1)),
    ),
    Layout(
        "settings of a text model",
        "ct-int4-groups",
        lambda c: c.config.update(text_config={"quantization_config": c.config.pop("quantization_config")}),
    ),
    Layout(
        "settings under their older name",
        "ct-int4-groups",
        lambda c: c.config.update(compression_config=c.config.pop("quantization_config")),
    ),
    Layout("settings of MLX under one name", "mlx-4", lambda c: c.config.pop("quantization_config")),
    Layout("a layer of MLX that stays plain", "mlx-4", add(model__head__weight=np.ones((4, 4), np.float16))),
    Layout("a description of four bits alone", "bnb-nf4", lambda c: c.config.pop("quantization_config")),
    Layout("a mask of bytes", "bnb-nf4", add(model__attn__mask=np.ones((4, 4), np.uint8))),
    Layout(
        "a learned scale elsewhere",
        "fp8-blocks",
        add(logit_scale=np.float32([4.6]), model__norm__scale=np.ones(4, np.float32)),
    ),
]
