"""The tokenizer that the metadata of a GGUF file holds, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdall.base.repeats import find_repeat
from holdall.base.text import shorten
from holdall.errors import ContentError, UnsupportedError
from holdall.format.gguf import SPECIAL_WORDS
from holdall.recipes.tokenizers.pieces import NORMAL, UNUSED, pad_token

__all__ = ["HF_JSON", "KEY", "Stored", "read_stored"]

KEY = "tokenizer.ggml."
HF_JSON = "tokenizer.huggingface.json"  # GGUF has a place for the whole tokenizer.json

_MODELS = ("gpt2", "llama", "t5", "bert")


@dataclass(frozen=True)
class Stored:
    """The entries of a tokenizer; tokens that only fill the vocabulary up are left out, ``ids`` are by name ("bos")."""

    model: str
    pre: str
    tokens: list[str]
    types: list[int]
    scores: list[float] | None
    merges: list[tuple[str, str]] | None
    ids: dict[str, int]
    flags: Mapping[str, Any]

    def flag(self, name: str, usual: bool) -> bool:
        """Return what ``tokenizer.ggml.{name}`` says, or what llama.cpp takes without it."""
        value = self.flags.get(f"{KEY}{name}")
        return value if isinstance(value, bool) else usual


def read_stored(metadata: Mapping[str, Any]) -> Stored:
    """Read the tokenizer in the metadata of a GGUF file."""
    model = metadata.get(f"{KEY}model")
    if model is None:
        raise ContentError(f"the metadata has no {KEY}model: there is no tokenizer in it")
    if model not in _MODELS:
        shown = shorten(str(model), 40)
        raise UnsupportedError(f"{KEY}model is {shown!r}; tokenizers are made of {', '.join(_MODELS)}")
    tokens = _list(metadata, "tokens", str)
    if not tokens:
        raise ContentError(f"the metadata has no {KEY}tokens: the vocabulary is missing")
    twice = find_repeat(tokens)
    if twice is not None:
        raise ContentError(f"{KEY}tokens has {shorten(tokens[twice], 40)!r} twice, last as token {twice}")
    types = _list(metadata, "token_type", int) or [NORMAL] * len(tokens)
    scores = _list(metadata, "scores", (int, float))
    for name, column in (("token_type", types), ("scores", scores)):
        if column is not None and len(column) != len(tokens):
            raise ContentError(f"{KEY}{name} has {len(column)} items for {len(tokens)} tokens")
    while types and types[-1] == UNUSED and tokens[-1] == pad_token(len(tokens) - 1):
        tokens.pop(), types.pop()
    if scores is not None:
        scores = [float(score) for score in scores[: len(tokens)]]
    pre = metadata.get(f"{KEY}pre")
    return Stored(
        model=model,
        pre=pre if isinstance(pre, str) else "default",
        tokens=tokens,
        types=types,
        scores=scores,
        merges=_read_merges(metadata, set(tokens)),
        ids=_read_ids(metadata, len(tokens)),
        flags=metadata,
    )


def _list(metadata: Mapping[str, Any], name: str, kind: Any) -> list[Any] | None:
    value = metadata.get(f"{KEY}{name}")
    if value is None:
        return None
    items = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(items, list) or not all(isinstance(item, kind) for item in items):
        raise ContentError(f"{KEY}{name} is not a list of {'texts' if kind is str else 'numbers'}")
    return list(items)


def _read_merges(metadata: Mapping[str, Any], known: set[str]) -> list[tuple[str, str]] | None:
    stored = _list(metadata, "merges", str)
    if stored is None:
        return None
    merges = []
    for rank, merge in enumerate(stored):
        at = merge.find(" ", 1)  # as llama.cpp parts them
        pair = merge[:at], merge[at + 1 :]
        for part in (*pair, "".join(pair)):
            if at < 0 or part not in known:
                raise ContentError(f"{KEY}merges: merge {rank}, {shorten(merge, 40)!r}, is not of two tokens that join")
        merges.append(pair)
    return merges


def _read_ids(metadata: Mapping[str, Any], count: int) -> dict[str, int]:
    found = {}
    for name, word in SPECIAL_WORDS.items():
        id = metadata.get(f"{KEY}{word}_token_id")
        if isinstance(id, int) and not isinstance(id, bool) and 0 <= id < count:
            found[name] = id
    return found
