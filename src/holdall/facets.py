"""Facets out of a model's assets: what Hugging Face files say, whatever container they came in."""

from __future__ import annotations

from typing import Any

from holdall.errors import FormatError
from holdall.metadata import Assets
from holdall.vocab import Vocab

__all__ = ["config_of", "vocab_of"]

_SPARE = 1024  # ids that no token has, beyond those that the tokens themselves account for


def config_of(assets: Assets) -> dict[str, Any] | None:
    """The configuration in config.json; None where there is none.

    >>> config_of(Assets({"config.json": b'{"hidden_size": 8}'}))
    {'hidden_size': 8}
    """
    found = _document(assets, "config.json")
    return found if isinstance(found, dict) else None


def vocab_of(assets: Assets) -> Vocab | None:
    """The vocabulary in tokenizer.json or vocab.json, in order of ids; None where there is none.

    An id that no token has gets the empty text.

    >>> vocab_of(Assets({"vocab.json": b'{"b": 1, "a": 0}'})).tokens
    ('a', 'b')
    """
    tokenizer = _document(assets, "tokenizer.json")
    ids: dict[str, Any] = {}
    if isinstance(tokenizer, dict):
        model = tokenizer.get("model")
        known = model.get("vocab") if isinstance(model, dict) else None
        if isinstance(known, list):  # a unigram model: pairs of token and score
            ids = {pair[0]: id for id, pair in enumerate(known) if isinstance(pair, list) and pair}
        elif isinstance(known, dict):
            ids = dict(known)
        added = tokenizer.get("added_tokens")
        for token in added if isinstance(added, list) else []:
            if isinstance(token, dict) and isinstance(token.get("content"), str):
                ids.setdefault(token["content"], token.get("id"))
    if not ids:
        plain = _document(assets, "vocab.json")
        ids = plain if isinstance(plain, dict) else {}
    return _in_order(ids)


def _in_order(ids: dict[Any, Any]) -> Vocab | None:
    pairs = [(id, token) for token, id in ids.items() if type(id) is int and isinstance(token, str) and id >= 0]
    if not pairs or max(pairs)[0] >= 2 * len(pairs) + _SPARE:
        return None
    tokens = [""] * (max(pairs)[0] + 1)
    for id, token in reversed(pairs):  # of two tokens with one id the first counts
        tokens[id] = token
    return Vocab(tokens)


def _document(assets: Assets, name: str) -> Any:
    from holdall.documents.json import DocumentError, decode

    if name not in assets:
        return None
    try:
        return decode(assets[name]).value
    except DocumentError as error:
        raise FormatError("core.asset", None, f"{name}: {error}") from None
