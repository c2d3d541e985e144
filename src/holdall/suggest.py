"""What a misspelt name may have meant."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from itertools import islice, takewhile
from operator import eq

__all__ = ["did_you_mean"]

_MOST = 20_000  # names that are looked through, so that a question does not take longer than the work
_COMPARED = 500  # of these, names that are compared letter by letter: those that begin and end alike
_LONGEST = 200  # letters of a name that is compared


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question that follows a complaint, with the one or two nearest names; empty where none is near.

    >>> did_you_mean("verfy", ["info", "verify"])
    ". Did you mean 'verify'?"
    """
    from difflib import get_close_matches

    if not 0 < len(word) <= _LONGEST:
        return ""
    short = [name for name in islice(known, _MOST) if len(name) <= _LONGEST]
    if len(short) > _COMPARED:
        short = nlargest(_COMPARED, short, key=lambda name: _alike(word, name))
    near = get_close_matches(word, short, n=2, cutoff=0.7)
    return f". Did you mean {' or '.join(map(repr, near))}?" if near else ""


def _alike(a: str, b: str) -> int:
    """How many letters two words have in common from either end."""
    return _shared(a, b) + _shared(a[::-1], b[::-1])


def _shared(a: str, b: str) -> int:
    return sum(1 for _ in takewhile(bool, map(eq, a, b)))
