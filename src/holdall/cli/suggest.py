"""What a misspelt name may have meant."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdall.model import Model
    from holdall.tensor import Tensor

__all__ = ["did_you_mean", "tensor_named"]

_MOST = 20_000  # names that are looked through: nobody waits for a suggestion


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question that follows a complaint, with the one or two nearest names; empty where none is near.

    >>> did_you_mean("verfy", ["info", "verify"])
    ". Did you mean 'verify'?"
    """
    from difflib import get_close_matches

    from holdall.cli.text import shorten

    near = get_close_matches(word[:200], islice(known, _MOST), n=2, cutoff=0.7)
    return f". Did you mean {' or '.join(repr(shorten(name, 100)) for name in near)}?" if near else ""


def tensor_named(model: Model, name: str) -> Tensor:
    """The tensor called ``name``; where there is none, the error says which may have been meant."""
    from holdall.errors import MissingError

    try:
        return model[name]
    except MissingError as error:
        raise MissingError(f"{error}{did_you_mean(name, model)}") from None
