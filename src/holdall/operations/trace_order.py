"""The execution order of a trace: as listed, as in the file, or by the names of its tensors.

A tensor archive is sorted by name, so that the order in which a program made its tensors is not in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Literal

__all__ = ["Order", "order_steps"]

Order = Literal["listed", "file", "names"]

# Parts of names in the order in which models run, first for the whole model, then inside a block. gpt-rs calls the
# tensors of its traces so: input.nhwc, stem.conv1, layer1.0.downsample, blocks.3.expand.relu6, avgpool, logits.
_FIRST = ["input", "inputs", "tokens", "tok_embeddings", "wte", "pos_embeddings", "wpe", "embeddings", "stem"]
_LAST = [
    "final_ln",
    "ln_f",
    "norm",
    "head",
    "avgpool",
    "flatten",
    "pooler",
    "classifier",
    "fc",
    "lm_head",
    "logits",
    "output",
    "outputs",
]
_INSIDE = [
    "ln_1",
    "norm1",
    "attention",
    "attn",
    "ln_2",
    "norm2",
    "feed_forward",
    "mlp",
    "downsample",
    "expand",
    "depthwise",
    "project",
    "conv",
    "conv1",
    "bn1",
    "relu",
    "relu1",
    "relu6",
    "maxpool",
    "conv2",
    "bn2",
    "conv3",
    "bn3",
    "add",
    "relu2",
    "relu3",
    "out",
    "output",
]

Key = tuple[int, tuple[tuple[int, int | str], ...]]


def order_steps(a: Sequence[str], b: Sequence[str], listed: Iterable[str] | None = None) -> tuple[list[str], Order]:
    """Return all names of two traces in execution order, and where the order comes from.

    Listed names come first. Else the order of a file counts whose names are not sorted: its writer chose it. Else names
    are sorted by the place that models give to their parts, with numbers as numbers.

    >>> order_steps(["stem", "blocks", "logits"], ["blocks", "head"])
    (['stem', 'blocks', 'head', 'logits'], 'file')
    >>> order_steps(["blocks.10.add", "blocks.2.add", "input", "logits"], [])
    (['input', 'blocks.2.add', 'blocks.10.add', 'logits'], 'names')
    """
    present = dict.fromkeys([*a, *b])
    if listed is not None:
        wanted = [name for name in dict.fromkeys(listed) if name in present]
        rest = order_steps([n for n in a if n not in set(wanted)], [n for n in b if n not in set(wanted)])[0]
        return [*wanted, *rest], "listed"
    for names, other in ((a, b), (b, a)):
        if list(names) != sorted(names):
            return _merge(names, other), "file"
    return sorted(present, key=_key_of), "names"


def _merge(names: Sequence[str], other: Sequence[str]) -> list[str]:
    """Return ``names``, with those that only ``other`` has after the name that they follow there."""
    known = set(names)
    followers: dict[str | None, list[str]] = {}
    before: str | None = None
    for name in other:
        if name in known:
            before = name
        else:
            followers.setdefault(before, []).append(name)
    found = list(followers.get(None, ()))
    for name in names:
        found += [name, *followers.get(name, ())]
    return found


def _key_of(name: str) -> Key:
    parts = name.replace("/", ".").split(".")
    first = parts[0]
    if first in _FIRST:
        stage = _FIRST.index(first)
    elif first in _LAST:
        stage = len(_FIRST) + 1 + _LAST.index(first)
    else:
        stage = len(_FIRST)  # a block, or what no list knows
    return stage, tuple(chain.from_iterable(map(_split_part, parts)))


@lru_cache(maxsize=1 << 12)  # many names have the same parts
def _split_part(part: str) -> tuple[tuple[int, int | str], ...]:
    """Return a part of a name for comparing: its place among the known ones, else its text with numbers as numbers."""
    if part in _INSIDE:
        return ((0, _INSIDE.index(part)),)
    pieces = re.split(r"([0-9]{1,18})", part)
    return tuple((1, int(text)) if text.isdecimal() else (2, text) for text in pieces if text)
