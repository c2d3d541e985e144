"""Compares what several places say of one scheme: two keys, a document beside config.json, and lists of plain layers.

Nothing tells which of two statements is right, and the libraries differ in which they read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdall.errors import FormatError
from holdall.format.hf_assets import parse_asset
from holdall.packed.finder import Finder
from holdall.packed.settings import DOCUMENTS

__all__ = ["compare_statements", "report_plain_layers"]

# The keys of one statement, from the newest to the oldest, and the value where none is stated.
_KEYS: Mapping[str, Mapping[tuple[str, ...], Any]] = {
    "gptq": {("bits", "w_bit"): None, ("group_size", "q_group_size"): -1, ("checkpoint_format", "format"): "gptq"},
    "awq": {
        ("bits", "w_bit"): None,
        ("group_size", "q_group_size"): -1,
        ("version", "format", "checkpoint_format"): "gemm",
        ("zero_point",): True,
    },
    "fp8": {("quant_algo",): "FP8", ("group_size",): None},
    "nvfp4": {("quant_algo",): "NVFP4", ("group_size",): None},
}
_METHOD = ("quant_method",)
_PLAIN = ("modules_to_not_convert", "ignored_layers", "exclude_modules")
_DEEPEST = 64  # parts of a name


def compare_statements(finder: Finder) -> None:
    """Report each statement of which the settings, and the documents beside them, say two different things."""
    for keys in _KEYS[finder.scheme]:
        stated = _list_stated(finder.settings, keys)
        if len(stated) > 1:
            finder.report("config.json", "settings", f"has two different things as {' and '.join(keys)}: {stated}")
    for name in DOCUMENTS:
        for keys, default in {**_KEYS[finder.scheme], _METHOD: None}.items():
            ours = _list_stated(finder.settings, keys) or ([] if default is None else [_simplify(default)])
            theirs = _list_stated(_read_document(finder, name), keys)
            if ours and any(each not in ours for each in theirs):
                text = f"has two different things as {' or '.join(keys)}: {theirs}, and in config.json {ours}"
                finder.report(name, "settings", text)


def report_plain_layers(finder: Finder) -> None:
    """Report the packed weights of layers that the settings name as plain."""
    names: set[str] = set()
    for key in _PLAIN:
        listed = finder.settings.get(key)
        names.update(each for each in listed if isinstance(each, str)) if isinstance(listed, list) else None
    for weight in finder.weights if names else ():
        if _has_name(weight.name.removesuffix(".weight"), names):
            finder.report(weight.names[0], "settings", "is packed, and the settings name its layer as plain")


def _has_name(layer: str, names: set[str]) -> bool:
    """Whether ``names`` have a layer, the end of its name, one around it, or a part of the name."""
    parts = layer.split(".")
    if not names.isdisjoint(parts):
        return True
    first, last = parts[:_DEEPEST], parts[-_DEEPEST:]
    return any(".".join(first[: at + 1]) in names or ".".join(last[at:]) in names for at in range(len(first)))


def _list_stated(settings: Mapping[str, Any], keys: tuple[str, ...]) -> list[Any]:
    """List the different values that ``keys`` have."""
    found: list[Any] = []
    for key in keys:
        value = _simplify(settings.get(key))
        if value is not None and value not in found:
            found.append(value)
    return found


def _simplify(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _read_document(finder: Finder, name: str) -> Mapping[str, Any]:
    try:
        found = parse_asset(finder.model.assets, name)
    except FormatError:  # verification reports it
        return {}
    inner = found.get("quantization") if isinstance(found, Mapping) else None  # of ModelOpt
    document = inner if isinstance(inner, Mapping) else found
    return document if isinstance(document, Mapping) else {}
