"""The tokenizer of a Hugging Face folder: its files read, checked and joined, before anything is made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdall.base.repeats import find_repeat
from holdall.base.text import shorten
from holdall.errors import ContentError
from holdall.format.hf_assets import parse_asset, special_tokens_of
from holdall.model.vocab import SPECIAL_TOKENS, Vocab
from holdall.recipes.tokenizers.templates import make_added, make_template

__all__ = ["AddedToken", "FolderTokenizer", "order_by_id", "read_configs", "read_folder"]

_CONFIG = "tokenizer_config.json"


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token that is found in the text before words are parted. A ``special`` one is not shown in decoded text."""

    id: int
    content: str
    special: bool
    normalized: bool = False
    strips: bool = False  # takes the white space beside it, or stands only between words


@dataclass(frozen=True)
class FolderTokenizer:
    """What the files of a folder say of its tokenizer.

    ``document`` is tokenizer.json, ``config`` tokenizer_config.json, ``model_config`` config.json, ``special`` the
    spelling of special tokens by name ("bos"), ``templates`` the chat templates by name ("default").
    """

    document: Mapping[str, Any]
    added: tuple[AddedToken, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    model_config: Mapping[str, Any] = field(default_factory=dict)
    generation_config: Mapping[str, Any] = field(default_factory=dict)
    special: Mapping[str, str] = field(default_factory=dict)
    templates: Mapping[str, str] = field(default_factory=dict)

    @property
    def model(self) -> Mapping[str, Any]:
        """The model in tokenizer.json."""
        found = self.document.get("model")
        if not isinstance(found, Mapping):
            raise ContentError("tokenizer.json has no model")
        return found


def read_folder(assets: Mapping[str, bytes]) -> FolderTokenizer:
    """Read the tokenizer that the files of a folder hold.

    >>> read_folder({"tokenizer.json": b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}'}).model["type"]
    'BPE'
    """
    config = _object(assets, _CONFIG)
    document = _object(assets, "tokenizer.json")
    if not document and "vocab.txt" in assets:
        document = _word_piece_document(assets["vocab.txt"], config)
    if not document:
        raise ContentError("the folder has no tokenizer.json, from which a tokenizer for GGUF is made")
    special = special_tokens_of(assets)
    document = _join_added(document, _object(assets, "added_tokens.json"), special.values())
    return replace(
        read_configs(assets),
        document=document,
        added=tuple(_read_added(row, number) for number, row in enumerate(document["added_tokens"])),
        config=config,
        special=special,
        templates=_chat_templates(assets, config),
    )


def read_configs(assets: Mapping[str, bytes]) -> FolderTokenizer:
    """Read config.json and generation_config.json, which state ids of special tokens also without a tokenizer."""
    configs = {name: _object(assets, f"{name}.json") for name in ("config", "generation_config")}
    return FolderTokenizer({}, model_config=configs["config"], generation_config=configs["generation_config"])


def _word_piece_document(vocab: bytes, config: Mapping[str, Any]) -> dict[str, Any]:
    """Make the tokenizer.json that BERT has, for a folder of older days that has the vocabulary alone."""
    tokens = Vocab.from_text(vocab).tokens
    twice = find_repeat(tokens)
    if twice is not None:
        shown = f"{shorten(tokens[twice], 40)!r} has the ids {tokens.index(tokens[twice])} and {twice}"
        raise ContentError(f"vocab.txt: token {shown}")
    normalizer = {
        "type": "BertNormalizer",
        "lowercase": config.get("do_lower_case", True),
        "strip_accents": config.get("strip_accents"),
        "handle_chinese_chars": config.get("tokenize_chinese_chars", True),
    }
    ids = {token: id for id, token in enumerate(tokens)}
    around = [SPECIAL_TOKENS[name] if SPECIAL_TOKENS[name] in ids else None for name in ("cls", "sep")]
    model = {"type": "WordPiece", "unk_token": SPECIAL_TOKENS["unk"], "max_input_chars_per_word": 100}
    return {
        "added_tokens": [make_added(ids[name], name, special=True) for name in SPECIAL_TOKENS.values() if name in ids],
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": make_template(around[0], around[1], ids, once=True),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {**model, "continuing_subword_prefix": "##", "vocab": ids},
    }


def _object(assets: Mapping[str, bytes], name: str) -> Mapping[str, Any]:
    found = parse_asset(assets, name)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise ContentError(f"{name} holds a {type(found).__name__}, not an object")
    return found


def _join_added(document: Mapping[str, Any], more: Mapping[str, Any], special: Iterable[str]) -> dict[str, Any]:
    """Return tokenizer.json with the tokens that only added_tokens.json has, and with all special ones.

    transformers adds a token that tokenizer_config.json calls special, even if tokenizer.json has it for a common one.
    """
    rows = document.get("added_tokens") or []
    if not isinstance(rows, list):
        raise ContentError(f"tokenizer.json: added_tokens is a {type(rows).__name__}, not a list")
    known = {row.get("content") for row in rows if isinstance(row, Mapping) and isinstance(row.get("content"), str)}
    others = [make_added(id, content, special=False) for content, id in more.items() if content not in known]
    known.update(more)
    left = [token for token in dict.fromkeys(special) if token not in known]
    ids = _ids_of(document) if left else {}
    others += [make_added(ids[token], token, special=True) for token in left if token in ids]
    return {**document, "added_tokens": [*rows, *others]}


def _ids_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the ids of the tokens of the model; those of a unigram model are their places."""
    model = document.get("model")
    vocab = model.get("vocab") if isinstance(model, Mapping) else None
    if isinstance(vocab, list):
        return {row[0]: id for id, row in enumerate(vocab) if isinstance(row, list) and row and isinstance(row[0], str)}
    return vocab if isinstance(vocab, Mapping) else {}


def _read_added(row: Any, number: int) -> AddedToken:
    if not isinstance(row, Mapping) or type(row.get("id")) is not int or not isinstance(row.get("content"), str):
        raise ContentError(f"tokenizer.json: added token {number} has no id and content")
    flags = {name: row.get(name) is True for name in ("special", "normalized", "lstrip", "rstrip", "single_word")}
    strips = flags["lstrip"] or flags["rstrip"] or flags["single_word"]
    return AddedToken(row["id"], row["content"], flags["special"], flags["normalized"], strips)


def _chat_templates(assets: Mapping[str, bytes], config: Mapping[str, Any]) -> dict[str, str]:
    """Find the chat templates by name: in files of their own first, as transformers does, then in the configuration."""
    found: dict[str, str] = {}
    stated = config.get("chat_template")
    if "chat_template.jinja" in assets:
        found["default"] = _decode(assets, "chat_template.jinja")
        folder, suffix = "additional_chat_templates/", ".jinja"
        for name in assets:
            if name.startswith(folder) and name.endswith(suffix):
                found[name[len(folder) : -len(suffix)]] = _decode(assets, name)
    elif isinstance(stated, str):
        found["default"] = stated
    elif isinstance(stated, list):
        for item in stated:
            if not isinstance(item, Mapping) or not all(isinstance(item.get(key), str) for key in ("name", "template")):
                raise ContentError(f"{_CONFIG}: a chat template has no name and template")
            found[item["name"]] = item["template"]
    elif stated is not None:
        raise ContentError(f"{_CONFIG}: chat_template is a {type(stated).__name__}, not text")
    else:
        document = _object(assets, "chat_template.json").get("chat_template")
        if isinstance(document, str):
            found["default"] = document
    return found


def _decode(assets: Mapping[str, bytes], name: str) -> str:
    try:
        return assets[name].decode()
    except UnicodeDecodeError as error:
        raise ContentError(f"{name}: byte {error.start} is not UTF-8") from None


def order_by_id(pairs: Iterable[tuple[str, Any]], added: Iterable[AddedToken] = ()) -> list[str]:
    """Order tokens by their ids. ContentError for an id without a token, two tokens of one id, two ids of one token.

    >>> order_by_id([("b", 1), ("a", 0)])
    ['a', 'b']
    """
    ids: dict[str, int] = {}
    tokens: dict[int, str] = {}
    for token, id in [*pairs, *((each.content, each.id) for each in added)]:
        if type(id) is not int or id < 0:
            raise ContentError(f"tokenizer.json: the id of token {shorten(token, 40)!r} is not a number from 0")
        if ids.setdefault(token, id) != id:
            raise ContentError(f"tokenizer.json: token {shorten(token, 40)!r} has the ids {ids[token]} and {id}")
        if tokens.setdefault(id, token) != token:
            both = f"{shorten(tokens[id], 40)!r} and {shorten(token, 40)!r}"
            raise ContentError(f"tokenizer.json: the tokens {both} have one id, {id}")
    if not tokens:
        raise ContentError("tokenizer.json has no vocabulary")
    missing = next((id for id in range(len(tokens)) if id not in tokens), None)
    if missing is not None:
        raise ContentError(f"tokenizer.json: no token has the id {missing}, and one has {max(tokens)}")
    return [tokens[id] for id in range(len(tokens))]
