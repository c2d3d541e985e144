"""The tensors of a model added up: how many bytes they take, and what it takes to read them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdall.model.forms import Forms
    from holdall.model.payload import Payload

__all__ = ["Totals", "Work", "add_up", "add_work"]


@dataclass(slots=True)
class Totals:
    """Tensors of one dtype, added up."""

    tensors: int = 0
    elements: int = 0
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """What it takes to read tensors once: the bytes that are made of them, and the bytes of files that are read.

    ``wasted`` are those that are read of a tensor beyond what it becomes, as of a matrix for one of its columns.
    """

    made: int = 0
    read: int = 0
    wasted: int = 0


def add_work(payloads: Iterable[Payload | None]) -> Work:
    """What it takes to read ``payloads`` once, each by itself.

    >>> from holdall.model.payload import InMemory
    >>> add_work([InMemory(b"four"), None])
    Work(made=4, read=0, wasted=0)
    """
    made = read = wasted = 0
    for payload in payloads:
        if payload is not None:
            needed, passed = payload.made, sum(stop - start for _, start, stop in payload.spans())
            made += needed
            read += passed
            wasted += max(0, passed - needed)
    return Work(made, read, wasted)


def add_up(forms: Forms) -> dict[str, Totals]:
    """Count, elements and bytes by dtype name, in order of first appearance."""
    import numpy as np

    totals: dict[str, Totals] = {}
    for form, count in zip(forms.kinds, np.bincount(forms.codes, minlength=len(forms.kinds)).tolist(), strict=True):
        total = totals.setdefault(str(form.dtype), Totals())
        total.tensors += count
        total.elements += count * prod(form.shape)
        total.nbytes += count * (form.size or 0)
    return totals
