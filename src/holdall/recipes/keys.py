"""Dotted keys: paths into documents, and those of a family of models under the name of its architecture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdall.errors import ContentError
from holdall.model.metadata import Entry
from holdall.recipes.expressions import find_key

__all__ = ["flatten_keys", "is_used", "list_keys", "name_key", "nest_keys", "set_key", "with_architecture"]


def set_key(values: dict[str, Any], key: str, value: Any) -> None:
    """Set the value of a dotted key, as a path into documents.

    >>> config = {}
    >>> set_key(config, "rope_scaling.factor", 8.0)
    >>> config
    {'rope_scaling': {'factor': 8.0}}
    """
    *parents, last = key.split(".")
    for parent in parents:
        inner = values.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise ContentError(f"{parent} is a value, and no table for {key}")
        values = inner
    values[last] = value


def with_architecture(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``values`` with those of the architecture also as ``arch.``, so that families can share recipes.

    >>> with_architecture({"general.architecture": "llama", "llama.block_count": 2})["arch"]
    {'block_count': 2}
    """
    architecture = values.get("general.architecture")
    if not isinstance(architecture, str):
        return values
    prefix = f"{architecture}."
    inner = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
    return {**values, "arch": inner} if inner else values


def name_key(key: str, architecture: str) -> str:
    """Return ``key`` with the name of the architecture in the place of ``arch.`` at its beginning."""
    return f"{architecture}.{key[5:]}" if key.startswith("arch.") else key


def list_keys(values: Mapping[str, Any]) -> list[str]:
    """List the keys, of tables those inside, as dotted keys."""
    keys = []
    for key, value in values.items():
        inner = [f"{key}.{each}" for each in list_keys(value)] if isinstance(value, Mapping) and value else [key]
        keys += inner
    return keys


def is_used(key: str, used: set[str]) -> bool:
    """Whether a key, or a table around it, is one of those ``used``."""
    return key in used or any(key.startswith(f"{each}.") for each in used)


def nest_keys(entries: list[Entry]) -> list[Entry]:
    """Return entries with dotted keys as documents."""
    nested: dict[str, Any] = {}
    for entry in entries:
        set_key(nested, entry.key, entry.value)
    return [Entry(key, value) for key, value in nested.items()]


def flatten_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return documents as values with dotted keys."""
    return {key: find_key(values, key) for key in list_keys(values)}
