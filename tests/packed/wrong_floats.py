"""Models of FP8 and compressed-tensors that are subtly wrong."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tests.packed.layouts import Content, Layout, add, put_beside

__all__ = ["WRONG_FLOATS"]


def _weights(content: Content) -> dict[str, Any]:
    """The settings of the first group of compressed-tensors."""
    found: dict[str, Any] = content.settings["config_groups"]["group_0"]["weights"]
    return found


def _cast_codes(content: Content) -> None:
    content.change("q_proj.weight", lambda codes: codes.astype(np.float32).astype(ml_dtypes.bfloat16))


def _set_target(content: Content, *targets: str) -> None:
    content.settings["config_groups"]["group_0"]["targets"] = list(targets)


WRONG_FLOATS = [
    # FP8
    Layout("a missing scale", "fp8-blocks", lambda c: c.drop("q_proj.weight_scale_inv"), "fp8.part", "a.q_proj.weight"),
    Layout(
        "a scale without codes",
        "fp8-blocks",
        lambda c: c.drop("q_proj.weight"),
        "fp8.left",
        "a.q_proj.weight_scale_inv",
    ),
    Layout("another format of floats", "fp8-blocks", lambda c: c.state(fmt="e5m2"), "fp8.settings", "a.q_proj.weight"),
    Layout("an unknown format of floats", "fp8-blocks", lambda c: c.state(fmt="e3m4"), "fp8.settings"),
    Layout(
        "a plain layer that is packed",
        "fp8-blocks",
        lambda c: c.state(modules_to_not_convert=["lm_head", "a.q_proj"]),
        "fp8.settings",
        "a.q_proj.weight",
    ),
    Layout(
        "another scheme of ModelOpt beside",
        "fp8-modelopt",
        put_beside("hf_quant_config", quantization={"quant_algo": "NVFP4", "group_size": 16}),
        "fp8.settings",
        "hf_quant_config.json",
    ),
    Layout("codes that were cast", "fp8-blocks", _cast_codes, "fp8.left", "a.q_proj.weight_scale_inv"),
    Layout(
        "blocks of another size",
        "fp8-blocks",
        lambda c: c.state(weight_block_size=[32, 64]),
        "fp8.shape",
        "a.q_proj.weight_scale_inv",
    ),
    Layout(
        "blocks and no size",
        "fp8-blocks",
        lambda c: c.state(weight_block_size=None),
        "fp8.shape",
        "a.q_proj.weight_scale_inv",
    ),
    Layout("a size of zero", "fp8-blocks", lambda c: c.state(weight_block_size=[0, 32]), "fp8.settings"),
    Layout(
        "transposed scales",
        "fp8-blocks",
        lambda c: c.change("q_proj.weight_scale_inv", np.transpose),
        "fp8.shape",
        "a.q_proj.weight_scale_inv",
    ),
    Layout(
        "one scale where blocks are stated",
        "fp8-one-scale",
        lambda c: c.state(weight_block_size=[8, 8]),
        "fp8.shape",
        "model.o_proj.weight_scale_inv",
    ),
    Layout(
        "scales of integers",
        "fp8-blocks",
        lambda c: c.change("q_proj.weight_scale_inv", lambda s: s.astype(np.int32)),
        "fp8.dtype",
        "a.q_proj.weight_scale_inv",
    ),
    Layout(
        "int8 where FP8 is stated",
        "fp8-rows",
        lambda c: c.change("gate_proj.weight", lambda w: w.view(np.int8)),
        "fp8.dtype",
        "model.gate_proj.weight",
    ),
    Layout(
        "two scales",
        "fp8-blocks",
        lambda c: c.tensors.update({"a.q_proj.weight_scale": np.float32([1])}),
        "fp8.part",
        "a.q_proj.weight",
    ),
    Layout(
        "a scale of inputs that weights need",
        "fp8-modelopt",
        add(model__v_proj__pre_quant_scale=np.ones(32, np.float32)),
        "fp8.left",
        "model.v_proj.pre_quant_scale",
    ),
    Layout(
        "ComfyUI without codes",
        "comfy-e4m3",
        lambda c: c.drop("blocks.0.weight"),
        "comfy.part",
        "diffusion_model.blocks.0.scale_weight",
    ),
    # compressed-tensors
    Layout(
        "no scale",
        "ct-int4-groups",
        lambda c: c.drop("q_proj.weight_scale"),
        "compressed-tensors.part",
        "model.layers.0.q_proj.weight_packed",
    ),
    Layout(
        "no shape",
        "ct-int4-groups",
        lambda c: c.drop("q_proj.weight_shape"),
        "compressed-tensors.part",
        "model.layers.0.q_proj.weight_packed",
    ),
    Layout(
        "another shape",
        "ct-int4-groups",
        lambda c: c.change("q_proj.weight_shape", lambda s: s[::-1]),
        "compressed-tensors.shape",
        "model.layers.0.q_proj.weight_shape",
    ),
    Layout(
        "a negative shape",
        "ct-int4-groups",
        lambda c: c.change("q_proj.weight_shape", lambda s: -s),
        "compressed-tensors.shape",
        "model.layers.0.q_proj.weight_shape",
    ),
    Layout(
        "another group",
        "ct-int4-groups",
        lambda c: _weights(c).update(group_size=64),
        "compressed-tensors.shape",
        "model.layers.0.q_proj.weight_scale",
    ),
    Layout(
        "more bits",
        "ct-int4-groups",
        lambda c: _weights(c).update(num_bits=8),
        "compressed-tensors.shape",
        "model.layers.0.q_proj.weight_shape",
    ),
    Layout("bits as text", "ct-int4-groups", lambda c: _weights(c).update(num_bits="4"), "compressed-tensors.settings"),
    Layout("an unknown format", "ct-int4-groups", lambda c: c.state(format="marlin-24"), "compressed-tensors.settings"),
    Layout(
        "sparse weights",
        "ct-int4-groups",
        lambda c: c.state(sparsity_config={"format": "sparse-bitmask"}),
        "compressed-tensors.settings",
    ),
    Layout(
        "no zero points",
        "ct-int4-zeros",
        lambda c: c.drop("q_proj.weight_zero_point"),
        "compressed-tensors.part",
        "model.layers.0.q_proj.weight_packed",
    ),
    Layout(
        "zero points that are not stated",
        "ct-int4-zeros",
        lambda c: _weights(c).update(symmetric=True),
        "compressed-tensors.dtype",
        "model.layers.0.q_proj.weight_zero_point",
    ),
    Layout(
        "columns in another order",
        "ct-int4-groups",
        add(model__layers__0__q_proj__weight_g_idx=np.zeros(64, np.int32)),
        "compressed-tensors.part",
        "model.layers.0.q_proj.weight_g_idx",
    ),
    Layout(
        "columns in an order that is missing",
        "ct-int4-groups",
        lambda c: _weights(c).update(actorder="group"),
        "compressed-tensors.part",
        "model.layers.0.q_proj.weight_packed",
    ),
    Layout(
        "an unknown order", "ct-int4-groups", lambda c: _weights(c).update(actorder="x"), "compressed-tensors.settings"
    ),
    Layout(
        "no group for a layer",
        "ct-mixed",
        lambda c: c.settings["config_groups"].pop("group_1"),
        "compressed-tensors.group",
        "model.layers.0.q_proj.weight",
    ),
    Layout(
        "two groups for a layer",
        "ct-mixed",
        lambda c: _set_target(c, "Linear"),
        "compressed-tensors.group",
        "model.layers.0.q_proj.weight",
    ),
    Layout(
        "a group of another type",
        "ct-mixed",
        lambda c: _set_target(c, "re:.*q_proj$"),
        "compressed-tensors.dtype",
        "model.layers.0.q_proj.weight",
    ),
    Layout(
        "an ignored layer that is packed",
        "ct-int8-rows",
        lambda c: c.state(ignore=["re:.*q_proj"]),
        "compressed-tensors.group",
        "model.layers.0.q_proj.weight",
    ),
    Layout(
        "one scale for all of them missing",
        "ct-nvfp4",
        lambda c: c.drop("q_proj.weight_global_scale"),
        "compressed-tensors.part",
        "model.layers.0.q_proj.weight_packed",
    ),
    Layout(
        "exponents for integers",
        "ct-int8-rows",
        lambda c: c.change("q_proj.weight_scale", lambda s: np.ones(s.shape, np.uint8)),
        "compressed-tensors.dtype",
        "model.layers.0.q_proj.weight_scale",
    ),
]
