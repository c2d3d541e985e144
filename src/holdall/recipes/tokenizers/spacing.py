"""How SentencePiece-like tokenizers treat spaces: each becomes ▁, and a text may get one more at its beginning."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdall.base.text import shorten
from holdall.errors import ContentError, UnsupportedError
from holdall.recipes.tokenizers.components import describe, split_steps
from holdall.recipes.tokenizers.folder_files import FolderTokenizer

__all__ = ["SPACE", "Spacing", "read_spacing"]

SPACE = "▁"

_METASPACE = (
    "llama.cpp puts a space before every text, and Metaspace only before one without: "
    "a text that begins with a space, also one after a special token, gets other ids"
)
_FIRST = "llama.cpp also puts a space before a text that follows a special token, which prepend_scheme first does not"
_AT_END = "llama.cpp removes spaces at the end of a text, also before a special token, with those that are doubled"
_WHITE = "llama.cpp parts words at spaces only: tabs and line ends get other ids"


@dataclass
class Spacing:
    """What normalizer and pre-tokenizer do, in the words of GGUF; ``parted`` says that no token crosses a space."""

    prefix: bool = False
    prepends: bool = False  # as a normalizer, which also changes what added tokens are looked for
    parted: bool = False
    removes_extra: bool = False
    strips: bool = False  # spaces at the end, which llama.cpp removes with those that are doubled
    charsmap: bytes = b""
    escapes: bool = False
    notes: list[str] = field(default_factory=list)


def read_spacing(folder: FolderTokenizer, *, unigram: bool) -> Spacing:
    """Read what a tokenizer does with spaces; UnsupportedError that shows its steps if llama.cpp cannot do the same."""
    normal = split_steps(folder.document.get("normalizer"), "normalizer")
    steps = split_steps(folder.document.get("pre_tokenizer"), "pre_tokenizer")
    spacing = Spacing()
    known = all(_read_step(step, spacing, unigram) for step in (*normal, *steps))
    if not known or not spacing.escapes or (spacing.strips and not spacing.removes_extra):
        found = shorten(f"normalizer {describe(normal)}, pre-tokenizer {describe(steps)}", 1500)
        raise UnsupportedError(f"tokenizer.json: llama.cpp has no way to treat spaces as this tokenizer does: {found}")
    if spacing.removes_extra and not spacing.strips:
        spacing.notes.append(_AT_END)
    if not spacing.charsmap and any(step["type"] == "WhitespaceSplit" for step in steps):
        spacing.notes.append(_WHITE)
    return spacing


def _read_step(step: Mapping[str, Any], spacing: Spacing, unigram: bool) -> bool:
    """Add what one step does; False for a step that llama.cpp does not have."""
    match step["type"]:
        case "Prepend" if step.get("prepend") == SPACE:
            spacing.prefix = spacing.prepends = True
        case "Replace" if step.get("pattern") == {"String": " "} and step.get("content") == SPACE:
            spacing.escapes = True
        case "Split" if step.get("pattern") == {"String": " "} and step.get("behavior") == "MergedWithPrevious":
            return spacing.escapes  # then there are no spaces left to part at
        case "Metaspace" if step.get("replacement") == SPACE and not spacing.escapes:
            return _read_metaspace(step, spacing)
        case "Replace" if unigram and step.get("pattern") == {"Regex": " {2,}"} and step.get("content") in (" ", SPACE):
            spacing.removes_extra = True
        case "WhitespaceSplit" if unigram:
            spacing.removes_extra = spacing.parted = spacing.strips = True
        case "Strip" if unigram and step.get("strip_left") is False:
            spacing.strips = True
        case "Precompiled" if unigram:
            spacing.charsmap = _decode_charsmap(step.get("precompiled_charsmap"))
        case _:
            return False
    return True


def _read_metaspace(step: Mapping[str, Any], spacing: Spacing) -> bool:
    scheme = step.get("prepend_scheme")
    spacing.escapes = True
    spacing.prefix = scheme != "never"
    spacing.parted = spacing.parted or step.get("split") is True
    if spacing.prefix and not spacing.removes_extra:
        spacing.notes.append(_METASPACE)
    if scheme == "first":
        spacing.notes.append(_FIRST)
    return scheme in ("always", "first", "never")


def _decode_charsmap(text: Any) -> bytes:
    try:
        return base64.b64decode(text if isinstance(text, str) else b"!", validate=True)
    except (binascii.Error, ValueError):
        raise ContentError("tokenizer.json: precompiled_charsmap is not base64") from None
