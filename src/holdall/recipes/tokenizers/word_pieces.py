"""WordPiece, the tokenizer of BERT: llama.cpp marks the beginning of a word and BERT marks all other pieces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdall.base.text import shorten
from holdall.errors import ContentError, UnsupportedError
from holdall.recipes.tokenizers.components import describe, split_steps
from holdall.recipes.tokenizers.folder_files import FolderTokenizer
from holdall.recipes.tokenizers.pieces import CONTROL, NORMAL, Pieces, mark_types, read_vocabulary
from holdall.recipes.tokenizers.spacing import SPACE

__all__ = ["CONTINUES", "make_word_pieces", "mark_word", "unmark_word"]

CONTINUES = "##"
_MARKS = "where accents are stripped, llama.cpp also drops spacing marks (vowels of Hindi) and most of Hangul"
_LONG = "llama.cpp has no longest word; a word of more than 100 letters is the unknown token in BERT, and not there"


def mark_word(token: str) -> str:
    """Return the token as llama.cpp spells it: with a phantom space if it begins a word, bare if it continues one.

    >>> mark_word("play"), mark_word("##ing")
    ('▁play', 'ing')
    """
    return token.removeprefix(CONTINUES) if token.startswith(CONTINUES) else f"{SPACE}{token}"


def unmark_word(token: str) -> str:
    """Return the token as BERT spells it.

    >>> unmark_word("▁play"), unmark_word("ing")
    ('play', '##ing')
    """
    return token.removeprefix(SPACE) if token.startswith(SPACE) else f"{CONTINUES}{token}"


def make_word_pieces(folder: FolderTokenizer) -> Pieces:
    """Make what GGUF calls ``bert`` of a WordPiece tokenizer."""
    model = folder.model
    if model.get("continuing_subword_prefix", CONTINUES) != CONTINUES:
        raise UnsupportedError(f"tokenizer.json: pieces inside a word begin otherwise than with {CONTINUES}")
    options = _read_normalizer(folder)
    tokens = read_vocabulary(folder)
    types = mark_types(tokens, folder.added)
    ids = _find_ids(folder, tokens)
    for id in ids.values():
        types[id] = CONTROL  # a file without added_tokens, such as vocab.txt, has no other mark of them
    tokens = [mark_word(token) if kind == NORMAL else token for token, kind in zip(tokens, types, strict=True)]
    pieces = Pieces("bert", tokens, types, ids=ids, notes=[_LONG])
    if options["normalizer.strip_accents"]:
        pieces.notes.append(_MARKS)
    pieces.flags.update(options)
    count = folder.model_config.get("type_vocab_size")
    pieces.flags["token_type_count"] = count if type(count) is int and 0 < count < 1 << 31 else 2
    return pieces


def _find_ids(folder: FolderTokenizer, tokens: list[str]) -> dict[str, int]:
    """Find the tokens that llama.cpp cannot do without; it calls the token before a text bos, and BERT calls it cls."""
    spelled = {"cls": "[CLS]", "sep": "[SEP]", "unk": folder.model.get("unk_token", "[UNK]")}
    found = {}
    for name, usual in spelled.items():
        token = folder.special.get(name, usual)
        if token not in tokens:
            raise ContentError(f"tokenizer.json: there is no {name} token, and WordPiece in llama.cpp needs one")
        found[name] = tokens.index(token)
    return {**found, "bos": found["cls"]}


def _read_normalizer(folder: FolderTokenizer) -> dict[str, Any]:
    """Read whether letters are made small and accents dropped; UnsupportedError if words are parted otherwise."""
    normal = split_steps(folder.document.get("normalizer"), "normalizer")
    steps = split_steps(folder.document.get("pre_tokenizer"), "pre_tokenizer")
    step: Mapping[str, Any] = normal[0] if len(normal) == 1 else {}
    cleans = step.get("clean_text", True) and step.get("handle_chinese_chars", True)
    if step.get("type") != "BertNormalizer" or not cleans or [each["type"] for each in steps] != ["BertPreTokenizer"]:
        found = shorten(f"normalizer {describe(normal)}, pre-tokenizer {describe(steps)}", 1500)
        raise UnsupportedError(f"tokenizer.json: llama.cpp parts words as BERT does, and not with {found}")
    lowercase = step.get("lowercase", True) is not False
    accents = step.get("strip_accents")
    strips = lowercase if accents is None else accents is True
    return {"normalizer.lowercase": lowercase, "normalizer.strip_accents": strips}
