"""Suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from itertools import islice, takewhile
from operator import eq

__all__ = ["did_you_mean"]

_MOST = 20_000  # names that are considered, so that a suggestion does not take longer than the work
_COMPARED = 500  # names that are compared letter by letter: those that share the most letters at both ends
_LONGEST = 200  # letters; longer names are not compared


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Make a question to end an error message with, naming the one or two nearest names; empty if none is near.

    >>> did_you_mean("verfy", ["info", "verify"])
    ". Did you mean 'verify'?"
    """
    from difflib import get_close_matches

    if not 0 < len(word) <= _LONGEST:
        return ""
    short = [name for name in islice(known, _MOST) if len(name) <= _LONGEST]
    if len(short) > _COMPARED:
        short = nlargest(_COMPARED, short, key=lambda name: _count_shared_ends(word, name))
    near = get_close_matches(word, short, n=2, cutoff=0.7)
    return f". Did you mean {' or '.join(map(repr, near))}?" if near else ""


def _count_shared_ends(a: str, b: str) -> int:
    """Count the letters that two words share at their beginnings and ends."""
    return _count_shared(a, b) + _count_shared(a[::-1], b[::-1])


def _count_shared(a: str, b: str) -> int:
    return sum(1 for _ in takewhile(bool, map(eq, a, b)))
