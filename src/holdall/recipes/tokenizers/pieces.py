"""What a tokenizer is in GGUF: tokens by id with a type each, scores or merges, and what llama.cpp does around them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdall.base.text import shorten
from holdall.errors import ContentError
from holdall.recipes.tokenizers.folder_files import AddedToken, FolderTokenizer, order_by_id

__all__ = ["BYTE", "CONTROL", "NORMAL", "UNKNOWN", "UNUSED", "USER_DEFINED", "Pieces", "byte_token", "mark_types"]
__all__ += ["pad_token", "read_merges", "read_vocabulary"]

# The types of tokens in tokenizer.ggml.token_type.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


@dataclass
class Pieces:
    """The tokenizer as GGUF states it; ``flags`` are further entries by the last word of their keys.

    ``ids`` are those of special tokens that this kind must have, whatever the configuration says.
    ``notes`` say where llama.cpp does something else than the tokenizer of the folder.
    """

    model: str
    tokens: list[str]
    types: list[int]
    pre: str = "default"
    scores: list[float] | None = None
    merges: list[str] | None = None
    flags: dict[str, Any] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def byte_token(value: int) -> str:
    """Return the token that stands for one byte where a vocabulary has no token for a character.

    >>> byte_token(10)
    '<0x0A>'
    """
    return f"<0x{value:02X}>"


def pad_token(id: int) -> str:
    """Return the text of a token that only fills the vocabulary up to the rows of the embeddings.

    >>> pad_token(130)
    '[PAD130]'
    """
    return f"[PAD{id}]"


def read_vocabulary(folder: FolderTokenizer) -> list[str]:
    """Read the tokens of a model whose vocabulary maps tokens to ids, added ones included, in order of their ids."""
    vocab = folder.model.get("vocab")
    if not isinstance(vocab, Mapping):
        raise ContentError("tokenizer.json has no vocabulary that maps tokens to ids")
    return order_by_id(vocab.items(), folder.added)


def read_merges(folder: FolderTokenizer) -> list[tuple[str, str]]:
    """Read the merges in order of their rank; both spellings, "a b" and ["a", "b"]."""
    merges, vocab = folder.model.get("merges"), folder.model.get("vocab")
    if not isinstance(merges, list) or not isinstance(vocab, Mapping):
        raise ContentError("tokenizer.json: the BPE model has no list of merges")
    found = []
    for rank, merge in enumerate(merges):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) and part for part in pair):
            raise ContentError(f"tokenizer.json: merge {rank} is not two tokens")
        for part in (*pair, "".join(pair)):
            if part not in vocab:
                needed = shorten(part, 40)
                raise ContentError(f"tokenizer.json: merge {rank} needs a token {needed!r}, and there is none")
        if any(" " in part for part in pair):
            raise ContentError(f"tokenizer.json: merge {rank} joins tokens that hold a space; GGUF has no place for it")
        found.append((pair[0], pair[1]))
    return found


def mark_types(tokens: Sequence[str], added: Iterable[AddedToken]) -> list[int]:
    """Return the type of each token: special added ones are CONTROL, other added ones USER_DEFINED."""
    types = [NORMAL] * len(tokens)
    for token in added:
        types[token.id] = CONTROL if token.special else USER_DEFINED
    return types
