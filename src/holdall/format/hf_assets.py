"""Reads configuration and vocabulary from the files that Hugging Face libraries save with a model.

These are functions over the assets of a model, so they work for every container that holds such files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdall.base.check import Rule
from holdall.binary.documents.json import DocumentError, decode
from holdall.errors import ContentError, FormatError

if TYPE_CHECKING:
    from holdall.model.model import Model
    from holdall.model.vocab import Vocab

__all__ = ["ASSET", "config_of", "find_model_name", "folder_name", "kind_of_asset", "parse_asset"]
__all__ += ["special_tokens_of", "vocab_of"]

ASSET = Rule("core.asset", "the files of a tokenizer and a configuration can be parsed", "full")

# The files of tokenizers. Configurations are found by the beginning or the end of their names.
_TOKENIZER = {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "merges.txt"}
_TOKENIZER |= {"added_tokens.json", "spiece.model", "sentencepiece.bpe.model"}
_VOCABULARY = {"vocab.txt", "vocab.json"}
_SUFFIXES = {".json": "JSON", ".txt": "text", ".md": "text"}

_SPARE = 1024  # the most unused ids of a vocabulary, beyond as many as it has tokens


def parse_asset(assets: Mapping[str, bytes], name: str) -> Any:
    """Parse the JSON document called ``name``; None if there is none.

    Only here does holdall accept Infinity and NaN in JSON, because real configurations have them.
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


def kind_of_asset(name: str) -> str:
    """What the asset called ``name`` is: configuration, tokenizer, vocabulary, chat template, JSON, text or bytes.

    >>> [kind_of_asset(name) for name in ("vocab.txt", "1_Pooling/config.json", "model.dat")]
    ['vocabulary', 'configuration', 'bytes']
    """
    last = name.rpartition("/")[2]
    if last in _TOKENIZER:
        return "tokenizer"
    if last in _VOCABULARY:
        return "vocabulary"
    if last.startswith("chat_template"):
        return "chat template"
    if last.endswith(".json") and (last.startswith("config") or last.endswith("config.json")):
        return "configuration"
    return next((kind for suffix, kind in _SUFFIXES.items() if last.endswith(suffix)), "bytes")


def config_of(assets: Mapping[str, bytes]) -> dict[str, Any] | None:
    """The configuration in config.json; None if there is none.

    >>> config_of({"config.json": b'{"hidden_size": 8}'})
    {'hidden_size': 8}
    """
    found = parse_asset(assets, "config.json")
    return found if isinstance(found, dict) else None


def folder_name(model: Model) -> str:
    """The name of the folder that the model was opened from, or in which its file is; "" if there is none."""
    if not model.sources:
        return ""
    path = os.path.abspath(model.sources[0].name)  # noqa: PTH100 - names of sources are text
    folder = path if model.sources[0].is_folder else os.path.dirname(path)  # noqa: PTH120
    return os.path.basename(folder)  # noqa: PTH119


def find_model_name(model: Model) -> str:
    """Find what a model is called: as its configuration says, else as its Hugging Face folder; "" for all others."""
    try:
        config = model.config
    except FormatError:  # a name does not depend on a configuration that can be parsed
        config = None
    stated = config.get("_name_or_path") if isinstance(config, Mapping) else None
    path = stated.replace("\\", "/").rstrip("/") if isinstance(stated, str) else ""
    name = path.rpartition("/")[2]
    if name and name not in (".", ".."):
        return name
    return folder_name(model) if model.format == "hf" else ""


def vocab_of(assets: Mapping[str, bytes]) -> Vocab | None:
    """The vocabulary in vocab.txt, tokenizer.json or vocab.json, in order of ids; None if there is none.

    An id that no token has gets the empty text.

    >>> vocab = vocab_of({"vocab.json": b'{"b": 1, "a": 0}', "special_tokens_map.json": b'{"eos_token": "b"}'})
    >>> vocab.tokens, vocab.special
    (('a', 'b'), {'eos': 1})
    """
    from holdall.model.vocab import Vocab

    tokens = _read_tokens(assets)
    if tokens is None:
        return None
    special = _find_special(assets, tokens)
    return Vocab(tokens, special or None)  # with None, Vocab finds the special tokens by their usual spelling


def _read_tokens(assets: Mapping[str, bytes]) -> Sequence[str] | None:
    """Read the tokens in order of their ids."""
    more = parse_asset(assets, "added_tokens.json")
    added = more if isinstance(more, dict) else {}
    if "vocab.txt" in assets:
        lines = _read_lines(assets["vocab.txt"])
        return _order_by_id([*enumerate(lines), *((id, token) for token, id in added.items())])
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
            return _order_by_id(pairs)
    plain = parse_asset(assets, "vocab.json")
    if not isinstance(plain, dict):
        return None
    return _order_by_id([(id, token) for token, id in [*plain.items(), *added.items()]])


def _read_lines(data: bytes) -> Sequence[str]:
    from holdall.model.vocab import Vocab

    try:
        return Vocab.from_text(data).tokens
    except ContentError as error:
        raise FormatError(ASSET.id, None, str(error)) from None


def _order_by_id(pairs: Sequence[tuple[Any, Any]]) -> list[str] | None:
    """Return the tokens sorted by id; None if the ids are too far apart for a vocabulary."""
    known = [(id, token) for id, token in pairs if type(id) is int and id >= 0 and isinstance(token, str)]
    if not known or max(known)[0] >= 2 * len(known) + _SPARE:
        return None
    tokens = [""] * (max(known)[0] + 1)
    for id, token in reversed(known):  # so that the first of two tokens with one id wins
        tokens[id] = token
    return tokens


def _find_special(assets: Mapping[str, bytes], tokens: Sequence[str]) -> dict[str, int]:
    """Find the ids of special tokens by name ("cls", "eos"), as the files of the tokenizer state them."""
    ids = {token: id for id, token in reversed(list(enumerate(tokens)))}
    return {name: ids[token] for name, token in special_tokens_of(assets).items() if token in ids}


def special_tokens_of(assets: Mapping[str, bytes]) -> dict[str, str]:
    """How the files of the tokenizer spell special tokens, by name ("cls", "eos").

    >>> special_tokens_of({"special_tokens_map.json": b'{"eos_token": {"content": "</s>"}}'})
    {'eos': '</s>'}
    """
    spelled: dict[str, str] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        document = parse_asset(assets, name)
        for key, value in document.items() if isinstance(document, dict) else ():
            token = value.get("content") if isinstance(value, dict) else value
            if key.endswith("_token") and isinstance(token, str):
                spelled.setdefault(key.removesuffix("_token"), token)
    return spelled
