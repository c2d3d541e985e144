"""Dataclasses for ``from-dataclass``, which imports the module it is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["LAYER", "Layer", "Odd", "nothing"]


@dataclass
class Layer:
    """What OINF can hold."""

    w: list[float] = field(default_factory=lambda: [1.0, 2.0])
    model_type: str = "x"
    hidden_size: int = 4
    cls_token: Any = ""
    vocab_size: Any = 1
    w_2: Any = 0.5


@dataclass
class Odd:
    """What it cannot hold, or only after a look."""

    w: Any
    added_tokens: Any = field(default_factory=dict)
    self: Any = None


LAYER = Layer()


def nothing() -> None:
    """No dataclass."""
