"""A packed model that a library made, and what that library makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

__all__ = ["PackedModel", "random_weight"]


@dataclass(frozen=True)
class PackedModel:
    """What a folder holds, and the weights by the library.

    ``oracle`` says who packed and who decoded. ``roundings`` is how many roundings of its type a decoded number may
    differ by. ``original`` are the weights before they were packed, where there are any.
    """

    name: str
    scheme: str
    oracle: str
    tensors: Mapping[str, torch.Tensor]
    expected: Mapping[str, torch.Tensor]
    settings: Mapping[str, Any] | None
    config: Mapping[str, Any] = field(default_factory=dict)
    original: Mapping[str, torch.Tensor] = field(default_factory=dict)
    key: str = "quantization_config"
    roundings: int = 0

    def write_config(self) -> dict[str, Any]:
        """The whole configuration."""
        return {"model_type": "tiny", **self.config} | (
            {} if self.settings is None else {self.key: dict(self.settings)}
        )


def random_weight(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normal numbers, the same in every run."""
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 0.05).to(dtype)
