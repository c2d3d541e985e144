"""The index of a sharded model, as Hugging Face libraries write and read it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from holdall.errors import ContentError
from holdall.model.tensor import Tensor
from holdall.sink.plan import Plan

__all__ = ["plan_index"]


def plan_index(parts: Mapping[str, Sequence[Tensor]], metadata: Mapping[str, Any] | None = None) -> Plan:
    """Plan the index of ``parts``, which maps file names to their tensors. ``metadata`` goes beside total_size."""
    weight_map: dict[str, str] = {}
    total = 0
    for file, tensors in parts.items():
        for tensor in tensors:
            if tensor.name in weight_map:
                raise ContentError(f"safetensors: two tensors are called {tensor.name!r}")
            weight_map[tensor.name] = file
            total += tensor.nbytes
    content = {"metadata": {**(metadata or {}), "total_size": total}, "weight_map": weight_map}
    plan = Plan()
    plan.put((json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode())
    return plan
