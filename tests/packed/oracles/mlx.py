"""MLX, packed and decoded by mlx on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import torch

from tests.packed.oracles.packed import PackedModel, random_weight

__all__ = ["make_models"]

_TYPES = {torch.bfloat16: mx.bfloat16, torch.float16: mx.float16, torch.float32: mx.float32}


def make_models() -> Iterator[PackedModel]:
    """All numbers of bits, all sizes of groups, layers with settings of their own, and stacks of experts."""
    for bits, group in ((2, 32), (3, 64), (4, 64), (5, 32), (6, 128), (8, 64)):
        yield _make(f"mlx-{bits}", bits, group, torch.bfloat16 if bits != 4 else torch.float16)
    yield _make("mlx-own-settings", 4, 64, torch.bfloat16, own=(8, 32))
    yield _make("mlx-experts", 4, 32, torch.bfloat16, outer=(3,))


def _make(
    name: str,
    bits: int,
    group: int,
    dtype: torch.dtype,
    own: tuple[int, int] | None = None,
    outer: tuple[int, ...] = (),
) -> PackedModel:
    tensors = {"model.norm.weight": random_weight(99, 64, dtype=dtype)}
    expected, original = {}, {}
    stated: dict[str, Any] = {"group_size": group, "bits": bits}
    for seed, layer in enumerate(("model.layers.0.q_proj", "model.layers.1.q_proj")):
        here = own if own is not None and seed else (bits, group)
        if here == own:
            stated[layer] = {"group_size": here[1], "bits": here[0]}
        weight = random_weight(seed + 7 * bits, *outer, 24, 256, dtype=dtype)
        values = mx.array(weight.float().numpy()).astype(_TYPES[dtype])
        parts = mx.quantize(values, group_size=here[1], bits=here[0])
        wide = (parts[0], *(each.astype(mx.float32) for each in parts[1:]))  # so that mlx rounds once, too
        decoded = mx.dequantize(*wide, group_size=here[1], bits=here[0]).astype(_TYPES[dtype])
        for part, each in zip(("weight", "scales", "biases"), parts, strict=True):
            tensors[f"{layer}.{part}"] = _to_torch(each, dtype)
        expected[f"{layer}.weight"], original[f"{layer}.weight"] = _to_torch(decoded, dtype), weight
    config = {"torch_dtype": str(dtype).removeprefix("torch."), "quantization_config": dict(stated)}
    oracle = "packed and decoded by mlx"
    return PackedModel(
        name, "mlx", oracle, tensors, expected, stated, config, original, key="quantization"
    )  # fmt: skip


def _to_torch(values: mx.array, dtype: torch.dtype) -> torch.Tensor:
    if values.dtype == mx.uint32:
        return torch.from_numpy(np.array(values).view(np.int32)).view(torch.uint32)
    return torch.from_numpy(np.array(values.astype(mx.float32))).to(dtype)
