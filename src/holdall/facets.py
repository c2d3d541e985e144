"""Configuration and vocabulary from the files that tokenizers and models are saved with.

Pure functions over a model's assets: whatever container holds ``config.json`` or ``tokenizer.json`` can answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdall.check import Rule
from holdall.documents.json import DocumentError, decode
from holdall.errors import ContentError, FormatError

if TYPE_CHECKING:
    from holdall.vocab import Vocab

__all__ = ["ASSET", "config_of", "parse_asset", "vocab_of"]

ASSET = Rule("core.asset", "the files of a tokenizer and a configuration can be parsed", "full")

_SPARE = 1024  # ids that no token has, beyond those that the tokens themselves account for


def parse_asset(assets: Mapping[str, bytes], name: str) -> Any:
    """The JSON document called ``name``; None where there is none.

    Infinity and NaN pass, unlike anywhere else in holdall: configurations in the wild have them.
    """
    if name not in assets:
        return None
    data = assets[name]
    try:
        return decode(data).value
    except DocumentError as error:
        try:
            return json.loads(data.decode())
        except (ValueError, RecursionError):
            raise FormatError(ASSET.id, error.offset, f"{name}: {error.message} [{error.path}]") from None


def config_of(assets: Mapping[str, bytes]) -> dict[str, Any] | None:
    """The configuration in config.json; None where there is none.

    >>> config_of({"config.json": b'{"hidden_size": 8}'})
    {'hidden_size': 8}
    """
    found = parse_asset(assets, "config.json")
    return found if isinstance(found, dict) else None


def vocab_of(assets: Mapping[str, bytes]) -> Vocab | None:
    """The vocabulary in vocab.txt, tokenizer.json or vocab.json, in order of ids; None where there is none.

    An id that no token has gets the empty text.

    >>> vocab = vocab_of({"vocab.json": b'{"b": 1, "a": 0}', "special_tokens_map.json": b'{"eos_token": "b"}'})
    >>> vocab.tokens, vocab.special
    (('a', 'b'), {'eos': 1})
    """
    from holdall.vocab import Vocab

    tokens = _tokens(assets)
    if tokens is None:
        return None
    special = _special(assets, tokens)
    return Vocab(tokens, special or None)  # none named: by their usual spelling


def _tokens(assets: Mapping[str, bytes]) -> Sequence[str] | None:
    """The tokens in order of their ids."""
    more = parse_asset(assets, "added_tokens.json")
    added = more if isinstance(more, dict) else {}
    if "vocab.txt" in assets:
        lines = _lines(assets["vocab.txt"])
        return _in_order([*enumerate(lines), *((id, token) for token, id in added.items())])
    tokenizer = parse_asset(assets, "tokenizer.json")
    if isinstance(tokenizer, dict):
        model = tokenizer.get("model")
        known = model.get("vocab") if isinstance(model, dict) else None
        pairs: list[tuple[Any, Any]] = []
        if isinstance(known, list):  # a unigram model: pairs of token and score
            pairs = [(id, pair[0]) for id, pair in enumerate(known) if isinstance(pair, list) and pair]
        elif isinstance(known, dict):
            pairs = [(id, token) for token, id in known.items()]
        rows = tokenizer.get("added_tokens")
        rows = rows if isinstance(rows, list) else []
        pairs += [(row.get("id"), row.get("content")) for row in rows if isinstance(row, dict)]
        if pairs:
            return _in_order(pairs)
    plain = parse_asset(assets, "vocab.json")
    if not isinstance(plain, dict):
        return None
    return _in_order([(id, token) for token, id in [*plain.items(), *added.items()]])


def _lines(data: bytes) -> Sequence[str]:
    from holdall.vocab import Vocab

    try:
        return Vocab.from_text(data).tokens
    except ContentError as error:
        raise FormatError(ASSET.id, None, str(error)) from None


def _in_order(pairs: Sequence[tuple[Any, Any]]) -> list[str] | None:
    """Tokens by id; None when the ids are too far apart to be a vocabulary."""
    known = [(id, token) for id, token in pairs if type(id) is int and id >= 0 and isinstance(token, str)]
    if not known or max(known)[0] >= 2 * len(known) + _SPARE:
        return None
    tokens = [""] * (max(known)[0] + 1)
    for id, token in reversed(known):  # of two tokens with one id the first counts
        tokens[id] = token
    return tokens


def _special(assets: Mapping[str, bytes], tokens: Sequence[str]) -> dict[str, int]:
    """The special tokens by name ("cls", "eos"), as the tokenizer's own files name them."""
    spelled: dict[str, str] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        document = parse_asset(assets, name)
        for key, value in document.items() if isinstance(document, dict) else ():
            token = value.get("content") if isinstance(value, dict) else value
            if key.endswith("_token") and isinstance(token, str):
                spelled.setdefault(key.removesuffix("_token"), token)
    ids = {token: id for id, token in reversed(list(enumerate(tokens)))}
    return {name: ids[token] for name, token in spelled.items() if token in ids}
