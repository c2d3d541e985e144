"""SentencePiece-like tokenizers: BPE with byte fallback (Llama 1 and 2, Mistral, Gemma) and unigram (T5, XLM-R)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from holdall.base.text import shorten
from holdall.errors import ContentError, UnsupportedError
from holdall.recipes.tokenizers.byte_level import refuse_variants
from holdall.recipes.tokenizers.folder_files import FolderTokenizer, order_by_id
from holdall.recipes.tokenizers.joining import rank_tokens
from holdall.recipes.tokenizers.pieces import (
    BYTE,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    Pieces,
    byte_token,
    mark_types,
    read_merges,
    read_vocabulary,
)
from holdall.recipes.tokenizers.spacing import SPACE, Spacing, read_spacing

__all__ = ["make_sentence_bpe", "make_unigram"]

_TIES = "GGUF stores scores with 32 bits: ways of equal sum, as in a long run of one letter, may be chosen otherwise"
_NORMALIZED = "llama.cpp finds added tokens anywhere; this tokenizer finds one only where a space or the text begins"


def make_sentence_bpe(folder: FolderTokenizer) -> Pieces:
    """Make what GGUF calls ``llama`` of BPE with byte fallback: scores in the order of the merges.

    llama.cpp has no use for the merges, but without them the way back could only guess in which order halves join.
    """
    refuse_variants(folder)
    spacing = read_spacing(folder, unigram=False)
    model = folder.model
    tokens = read_vocabulary(folder)
    missing = sum(byte_token(byte) not in model["vocab"] for byte in range(256))
    if model.get("byte_fallback") is not True or missing or model.get("ignore_merges") is True:
        why = f"{missing} of the 256 byte tokens are missing" if missing else "this one has another rule"
        raise UnsupportedError(f"tokenizer.json: llama.cpp joins pieces by merges and falls back to bytes; {why}")
    merges = read_merges(folder)
    types = _mark_sentence_types(folder, tokens, model.get("unk_token"))
    for byte in range(256):
        types[model["vocab"][byte_token(byte)]] = BYTE
    _refuse_crossing(tokens, types, spacing)
    ranks = rank_tokens([token for token, kind in zip(tokens, types, strict=True) if kind == NORMAL], merges)
    pieces = Pieces("llama", tokens, types, scores=list(_score(tokens, types, ranks)))
    pieces.merges = [" ".join(pair) for pair in merges]
    return _finish(folder, pieces, spacing)


def _score(tokens: Sequence[str], types: Sequence[int], ranks: Mapping[str, int]) -> Iterator[float]:
    """Yield the score of each token: 0 for the first that joins, one less for each further one, letters last."""
    for id, (token, kind) in enumerate(zip(tokens, types, strict=True)):
        yield 0.0 if kind != NORMAL else -float(ranks.get(token, len(ranks) + id))


def make_unigram(folder: FolderTokenizer) -> Pieces:
    """Make what GGUF calls ``t5`` of a unigram tokenizer."""
    spacing = read_spacing(folder, unigram=True)
    model = folder.model
    if model.get("byte_fallback") is True:
        raise UnsupportedError("tokenizer.json: a unigram model with byte fallback, which llama.cpp does not have")
    rows = model.get("vocab")
    if not isinstance(rows, list) or not rows:
        raise ContentError("tokenizer.json: the unigram model has no list of tokens and scores")
    for id, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != 2 or not isinstance(row[0], str) or not _is_number(row[1]):
            raise ContentError(f"tokenizer.json: token {id} of the unigram model is not a text and a finite score")
    unknown = model.get("unk_id")
    if type(unknown) is not int or not 0 <= unknown < len(rows):
        raise ContentError("tokenizer.json: the unigram model names no token for what it does not know")
    tokens = order_by_id(((row[0], id) for id, row in enumerate(rows)), folder.added)
    types = _mark_sentence_types(folder, tokens, tokens[unknown])
    _refuse_crossing(tokens, types, spacing)
    scores = [float(row[1]) for row in rows] + [0.0] * (len(tokens) - len(rows))
    pieces = Pieces("t5", tokens, types, scores=scores, ids={"unk": unknown}, notes=[_TIES])
    pieces.flags["remove_extra_whitespaces"] = spacing.removes_extra
    if spacing.charsmap:
        pieces.flags["precompiled_charsmap"] = spacing.charsmap
    return _finish(folder, pieces, spacing)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e38 and isfinite(value)


def _mark_sentence_types(folder: FolderTokenizer, tokens: list[str], unknown: Any) -> list[int]:
    """Mark the types. An added token with ▁ that is looked for before spaces are replaced is an ordinary piece."""
    types = mark_types(tokens, folder.added)
    for token in folder.added:
        if types[token.id] == USER_DEFINED and SPACE in token.content and not token.normalized:
            types[token.id] = NORMAL
    if isinstance(unknown, str) and unknown in tokens:
        types[tokens.index(unknown)] = UNKNOWN
    return types


def _refuse_crossing(tokens: Sequence[str], types: Sequence[int], spacing: Spacing) -> None:
    if not spacing.parted:
        return
    for token, kind in zip(tokens, types, strict=True):
        if kind == NORMAL and SPACE in token[1:]:
            shown = f"token {shorten(token, 40)!r} has a space in it, but words are parted at spaces"
            raise UnsupportedError(f"tokenizer.json: {shown}; llama.cpp does not part them and would use the token")


def _finish(folder: FolderTokenizer, pieces: Pieces, spacing: Spacing) -> Pieces:
    """Write spaces of tokens that llama.cpp looks for before it replaces them, and add what is common to both kinds."""
    for id, kind in enumerate(pieces.types):
        if kind == USER_DEFINED:
            pieces.tokens[id] = pieces.tokens[id].replace(SPACE, " ")
    pieces.flags["add_space_prefix"] = spacing.prefix
    pieces.notes += spacing.notes
    if spacing.prepends and any(token.normalized for token in folder.added):
        pieces.notes.append(_NORMALIZED)
    return pieces
