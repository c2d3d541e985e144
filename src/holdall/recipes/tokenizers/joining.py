"""BPE on its own tokens: in which order they join, and whether joining by scores gives the same as joining by merges.

SentencePiece, and llama.cpp with it, joins any two neighbours whose text is a token, the one of the best score first.
A tokenizer.json lists the pairs that may join. Both give the same ids if every token that has two halves left at the
end is joined: what happens inside the letters of a token does not depend on its neighbours as long as nothing joins
over its ends. So it is enough to split each token into letters once and to join them by the merges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from holdall.base.text import shorten
from holdall.errors import ContentError, UnsupportedError
from holdall.recipes.tokenizers.pieces import NORMAL

__all__ = ["merges_of_scores", "rank_tokens"]

_WORK = 100_000_000  # pairs to look at; the 256,000 tokens of Gemma need 20 million


def rank_tokens(tokens: Iterable[str], merges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Return which token joins before which others, from 0 on; tokens that never join are left out.

    UnsupportedError for a token that llama.cpp would join and the merges do not.

    >>> rank_tokens(["a", "b", "c", "ab", "abc"], [("a", "b"), ("ab", "c")])
    {'ab': 0, 'abc': 1}
    """
    ranks: dict[tuple[str, str], int] = {}
    for rank, pair in enumerate(merges):
        ranks.setdefault(pair, rank)
    last = {}
    work = 0
    for token in tokens:
        work += len(token) ** 2
        if work > _WORK:
            shown = f"{shorten(token, 40)!r} of {len(token)} letters"
            raise ContentError(f"tokenizer.json: tokens such as {shown} are too long for BPE")
        if len(token) < 2:
            continue
        parts, rank = _join(token, ranks)
        if len(parts) == 1:
            last[token] = rank
        elif len(parts) == 2:
            halves = " and ".join(repr(shorten(part, 40)) for part in parts)
            raise UnsupportedError(f"tokenizer.json: no merge joins {halves} to a token, and llama.cpp would join them")
    return {token: place for place, token in enumerate(sorted(last, key=last.__getitem__))}


def _join(token: str, ranks: dict[tuple[str, str], int]) -> tuple[list[str], int]:
    """Join the letters of a token as BPE does; return what is left, and the rank of the last merge."""
    parts, last, never = list(token), -1, 1 << 62
    found = [ranks.get(pair, never) for pair in pairwise(parts)]
    while found:
        best = min(found)
        if best == never:
            break
        at = found.index(best)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
        del found[at]
        if at:
            found[at - 1] = ranks.get((parts[at - 1], parts[at]), never)
        if at < len(found):
            found[at] = ranks.get((parts[at], parts[at + 1]), never)
        last = best
    return parts, last


def merges_of_scores(tokens: Sequence[str], types: Sequence[int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Make the merges that give what joining by scores gives: all halves of each token, the best token first.

    >>> merges_of_scores(["a", "b", "ab", "aba"], [1, 1, 1, 1], [-9.0, -9.0, 0.0, -1.0])
    [('a', 'b'), ('ab', 'a')]
    """
    if len(scores) != len(tokens):
        raise ContentError("the metadata has no tokenizer.ggml.scores, by which pieces join")
    pieces = {token: id for id, token in enumerate(tokens) if types[id] == NORMAL}
    if sum(len(token) ** 2 for token in pieces) > _WORK:
        raise ContentError("tokenizer.ggml.tokens: the tokens are too long for BPE")
    found = []
    for token in sorted(pieces, key=lambda token: (-scores[pieces[token]], pieces[token])):
        halves = ((token[:at], token[at:]) for at in range(1, len(token)))
        found += [pair for pair in halves if pair[0] in pieces and pair[1] in pieces]
    return found
