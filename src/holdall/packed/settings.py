"""What the configuration of a model says of how it is packed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdall.errors import FormatError

if TYPE_CHECKING:
    from holdall.model.model import Model

__all__ = ["DOCUMENTS", "SETTINGS", "find_config", "find_contradiction", "find_flaw", "find_settings"]

SETTINGS = ("quantization_config", "compression_config", "quantization")  # the last is of MLX

# Files beside the weights that describe the scheme once more: without the scheme they would be wrong.
DOCUMENTS = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")


def find_config(model: Model) -> Mapping[str, Any]:
    """The configuration of ``model``; empty if it has none, or one that cannot be parsed."""
    try:
        config = model.config
    except FormatError:  # verification reports it
        return {}
    return config if isinstance(config, Mapping) else {}


def find_flaw(model: Model) -> str:
    """Say why ``config.json`` cannot be trusted with the scheme, or written anew; empty if it can or is not there."""
    if "config.json" not in model.assets:
        return ""
    import json

    try:
        text = model.assets["config.json"].decode()
        json.loads(text, object_pairs_hook=_make_object, parse_float=_parse_finite)
    except (ValueError, RecursionError) as error:
        return f"cannot be used: {error}"
    return ""


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"it has the key {key!r} twice, which may be two different things")
        found[key] = value
    return found


def _parse_finite(text: str) -> float:
    value = float(text)
    if value - value != 0:
        raise ValueError(f"{text[:40]} is beyond the range of float64")
    return value


def find_contradiction(config: Mapping[str, Any]) -> str:
    """Say which keys of a configuration describe the scheme differently; empty if none do."""
    found = [key for key in SETTINGS if isinstance(config.get(key), Mapping) and config[key]]
    if any(config[key] != config[found[0]] for key in found[1:]):
        return " and ".join(found)
    inner = config.get("text_config")
    if not isinstance(inner, Mapping):
        return ""
    stated = find_settings(inner)
    if found and stated is not None and stated != config[found[0]]:
        return f"{found[0]} and that of text_config"
    return find_contradiction(inner)


def find_settings(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Find what a configuration says of how the model is packed; None if it says nothing."""
    for key in SETTINGS:
        found = config.get(key)
        if isinstance(found, Mapping) and found:
            return found
    inner = config.get("text_config")
    return find_settings(inner) if isinstance(inner, Mapping) else None
