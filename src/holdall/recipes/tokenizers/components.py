"""The parts of a tokenizer.json: normalizers and pre-tokenizers as flat lists of steps that can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdall.errors import ContentError

__all__ = ["describe", "split_steps"]

_INNER = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}
_INNER["post_processor"] = "processors"

# What a step does when it does not say; files of older versions of the library leave these out.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "ByteLevel": {"add_prefix_space": True, "use_regex": True},
    "Split": {"behavior": "Isolated", "invert": False},
    "Digits": {"individual_digits": False},
    "Punctuation": {"behavior": "Isolated"},
    "BertNormalizer": {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
    "Metaspace": {"replacement": "▁", "split": True},
}
# What changes offsets in the text and no id, and what is an older spelling of another member.
_WITHOUT_EFFECT = {"ByteLevel": {"trim_offsets"}, "Metaspace": {"str_rep", "add_prefix_space"}}
_MOST = 64  # steps; real tokenizers have at most ten


def split_steps(part: Any, name: str) -> tuple[Mapping[str, Any], ...]:
    """Return the steps of one part of tokenizer.json, sequences in sequences taken apart, with defaults filled in.

    >>> split_steps({"type": "Sequence", "normalizers": [{"type": "NFC"}]}, "normalizer")
    ({'type': 'NFC'},)
    """
    found: list[Mapping[str, Any]] = []
    waiting = [part]
    while waiting:
        step = waiting.pop()
        if step is None:
            continue
        if not isinstance(step, Mapping) or not isinstance(step.get("type"), str):
            raise ContentError(f"tokenizer.json: {name} holds a {type(step).__name__} that is not a step with a type")
        if step["type"] == "Sequence":
            inner = step.get(_INNER[name])
            if not isinstance(inner, list):
                raise ContentError(f"tokenizer.json: a Sequence of {name} has no list of {_INNER[name]}")
            waiting += reversed(inner)
        else:
            found.append(_complete(step))
        if len(found) + len(waiting) > _MOST:
            raise ContentError(f"tokenizer.json: {name} has more than {_MOST} steps")
    return tuple(found)


def _complete(step: Mapping[str, Any]) -> dict[str, Any]:
    kind = step["type"]
    complete = {"type": kind, **_DEFAULTS.get(kind, {}), **step}
    if kind == "Metaspace" and "prepend_scheme" not in step:
        complete["prepend_scheme"] = "always" if step.get("add_prefix_space", True) else "never"
    pattern = step.get("pattern")
    if isinstance(pattern, Mapping) and isinstance(pattern.get("Regex"), str):
        # A line end in a regular expression and its escape mean the same.
        complete["pattern"] = {"Regex": pattern["Regex"].replace("\r", "\\r").replace("\n", "\\n")}
    return {key: value for key, value in complete.items() if key not in _WITHOUT_EFFECT.get(kind, ())}


def describe(steps: Sequence[Mapping[str, Any]]) -> str:
    """Name the steps for a message, with what they state.

    >>> describe([{"type": "Digits", "individual_digits": True}, {"type": "NFC"}])
    'Digits(individual_digits=true), NFC'
    """
    return ", ".join(_describe_step(step) for step in steps) or "none"


def _describe_step(step: Mapping[str, Any]) -> str:
    said = []
    for key, value in step.items():
        inner = next(iter(value.values()), None) if isinstance(value, Mapping) and len(value) == 1 else value
        if key != "type" and isinstance(inner, (bool, int, float, str)):
            said.append(f"{key}={str(inner).lower() if isinstance(inner, bool) else inner}")
    return f"{step['type']}({', '.join(said)})" if said else f"{step['type']}"
