"""The configuration of a checkpoint: strict JSON with a kind, or a legacy gpt configuration without one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from holdall.base.check import Rule
from holdall.binary.documents.json import breach as json_breach
from holdall.errors import ContentError
from holdall.format.gptrs import rules

__all__ = ["breach", "encode", "is_legacy", "member_breach", "normalize"]

_U64 = 1 << 64

_LEGACY_SIZES = ("vocab_size", "context_length", "embed_dim", "num_layers", "num_heads", "mlp_ratio")
_STREAMING_SIZES = ("device_budget_bytes", "cache_budget_cap_bytes", "prefetch_layers", "small_param_persist_threshold")

_BENCHMARK = re.compile(r"benchmark(?:\(cache=([0-9]+)\))?")

Breach = tuple[Rule, str, str]  # rule, path inside the document, message


def breach(value: Any) -> Breach | None:
    """The first rule that a decoded configuration breaks; None when it breaks none."""
    if not isinstance(value, dict):
        return rules.CONFIG_KIND, "$", f"the configuration is {_describe(value)}, not an object"
    if not isinstance(value.get("kind"), str):
        wrong = _legacy_breach(value)
        if wrong is not None:
            return rules.CONFIG_KIND, "$", f"there is no kind, and it is no complete legacy gpt configuration: {wrong}"
        return None
    runtime = value.get("runtime")
    if runtime is None:
        return None
    if not isinstance(runtime, dict):
        return rules.CONFIG_RUNTIME, "$.runtime", f"runtime is {_describe(runtime)}, not an object"
    wrong = _overrides_breach(runtime.get("functional_overrides", {})) or _streaming_breach(
        runtime.get("weight_streaming", {})
    )
    return None if wrong is None else (rules.CONFIG_RUNTIME, "$.runtime", wrong)


def is_legacy(value: Mapping[str, Any]) -> bool:
    """Whether a valid configuration is a legacy one, which has no kind."""
    return not isinstance(value.get("kind"), str)


def normalize(value: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as current programs see it: with a kind, and without a runtime that is null."""
    if is_legacy(value):
        return {"kind": "gpt", "config": dict(value)}
    found = {key: part for key, part in value.items() if key != "runtime" or part is not None}
    found.setdefault("config", None)
    return found


def encode(value: Any) -> bytes:
    """Encode the bytes of a configuration: compact JSON in ASCII, with the keys in their order."""
    members = dict(value) if isinstance(value, Mapping) else value
    wrong = breach(members)
    if wrong is not None:
        raise ContentError(f"gptrs: {wrong[2]} [{wrong[1]}]")
    unwritable = json_breach(members)
    if unwritable is not None:
        raise ContentError(f"gptrs: the configuration cannot be written as JSON: {unwritable}")
    return json.dumps(members, separators=(",", ":"), allow_nan=False).encode()


def member_breach(key: str, value: Any) -> str | None:
    """Why a configuration cannot have the member ``key`` with ``value``; None when it can."""
    unwritable = json_breach({key: value})
    if unwritable is not None:
        return unwritable
    if key == "kind":
        return None if isinstance(value, str) else f"kind is {_describe(value)}, not a text"
    wrong = breach({"kind": "", key: value})
    return None if wrong is None else wrong[2]


def _legacy_breach(value: dict[str, Any]) -> str | None:
    for key in _LEGACY_SIZES:
        if not _is_size(value.get(key)):
            return f"{key} is {_describe(value[key])}" if key in value else f"{key} is missing"
    dropout = value.get("dropout")
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)):
        return f"dropout is {_describe(dropout)}" if "dropout" in value else "dropout is missing"
    return _overrides_breach(value.get("functional_overrides", {}))


def _overrides_breach(value: Any) -> str | None:
    if not isinstance(value, dict):
        return f"functional_overrides is {_describe(value)}, not an object"
    for name, policy in value.items():
        if not isinstance(policy, str) or not _is_policy(policy.strip()):
            return f"the override of {name!r} is {policy!r}; benchmark, benchmark(cache=N) or force=NAME are known"
    return None


def _is_policy(policy: str) -> bool:
    if policy.startswith("force="):
        return bool(policy.removeprefix("force=").strip())
    found = _BENCHMARK.fullmatch(policy)
    if found is None:
        return not policy
    digits = found[1]
    return digits is None or (len(digits) <= 20 and 0 < int(digits) < _U64)


def _streaming_breach(value: Any) -> str | None:
    if not isinstance(value, dict):
        return f"weight_streaming is {_describe(value)}, not an object"
    if not isinstance(value.get("enabled", False), bool):
        return f"weight_streaming.enabled is {_describe(value['enabled'])}, not a boolean"
    for key in _STREAMING_SIZES:
        if value.get(key) is not None and not _is_size(value[key]):
            return f"weight_streaming.{key} is {_describe(value[key])}, not a size"
    percent = value.get("device_weights_percent")
    if percent is not None and (isinstance(percent, bool) or not isinstance(percent, (int, float))):
        return f"weight_streaming.device_weights_percent is {_describe(percent)}, not a number"
    return None


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _U64


def _describe(value: Any) -> str:
    """Return ``value`` in an error message: a number or its type."""
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value) if not isinstance(value, int) or abs(value) < _U64 else "a huge number"
    names: dict[type, str] = {dict: "an object", list: "an array", str: "a text"}
    return names.get(type(value), type(value).__name__)
