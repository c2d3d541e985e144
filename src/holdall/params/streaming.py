"""``runtime.weight_streaming`` of a gpt-rs configuration: how much of a model is kept, and what is loaded at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import floor
from typing import Any

from holdall.errors import ContentError

__all__ = ["Streaming"]

_BLOCK = re.compile(r"blocks\.([0-9]{1,9})\..+", re.DOTALL)
_SIZES = ("device_budget_bytes", "cache_budget_cap_bytes", "prefetch_layers", "small_param_persist_threshold")


@dataclass(frozen=True, slots=True)
class Streaming:
    """``budget`` in bytes, None for no limit; ``small`` parameters are pinned; ``keep`` says whether others stay.

    >>> config = {"runtime": {"weight_streaming": {"enabled": True, "device_weights_percent": 0.25}}}
    >>> Streaming.of(config, total=1000).budget
    250
    """

    budget: int | None = None
    small: int = 0
    keep: bool = True
    prefetch_layers: int = 0

    @classmethod
    def of(cls, config: Any, total: int) -> Streaming:
        """Read the settings for a model of ``total`` bytes from ``config``; without them, the defaults."""
        runtime = config.get("runtime") if isinstance(config, Mapping) else None
        stated = runtime.get("weight_streaming") if isinstance(runtime, Mapping) else None
        if not isinstance(stated, Mapping):
            return cls()
        knobs = {key: value for key, value in stated.items() if value is not None and key != "enabled"}
        enabled = stated.get("enabled", False)
        if not isinstance(enabled, bool):
            raise ContentError(f"weight_streaming.enabled is {enabled!r}, not true or false")
        if not enabled:
            if knobs:
                raise ContentError(f"weight_streaming is not enabled, but sets {', '.join(sorted(map(str, knobs)))}")
            return cls()
        sizes = {key: _parse_size(key, knobs.get(key)) for key in _SIZES}
        budget = _find_least(sizes["device_budget_bytes"], _share(knobs.get("device_weights_percent"), total))
        if budget is not None:  # a cap alone is not a budget
            budget = _find_least(budget, sizes["cache_budget_cap_bytes"])
        small = sizes["small_param_persist_threshold"] or 0
        return cls(budget, small, budget is not None, sizes["prefetch_layers"] or 0)

    def names_to_prefetch(self, names: Iterable[str]) -> list[str]:
        """Return the parameters to load at once: those of the first blocks, in the order of the model.

        >>> Streaming(prefetch_layers=1).names_to_prefetch(["blocks.1.w", "blocks.0.w", "wte"])
        ['blocks.0.w']
        """
        found = ((name, _BLOCK.fullmatch(name)) for name in names)
        return [name for name, block in found if block is not None and int(block[1]) < self.prefetch_layers]


def _parse_size(key: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ContentError(f"weight_streaming.{key} is {value!r}, not a size")


def _share(percent: Any, total: int) -> int | None:
    if percent is None:
        return None
    number = isinstance(percent, (int, float)) and not isinstance(percent, bool)
    if not number or not 0 <= percent <= 1:
        raise ContentError(f"weight_streaming.device_weights_percent is {percent!r}, not from 0 to 1")
    share: int = floor(total * percent)
    return share


def _find_least(a: int | None, b: int | None) -> int | None:
    return min((size for size in (a, b) if size is not None), default=None)
