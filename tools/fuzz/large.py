"""Makes inputs of a megabyte from seeds, by repeating or stretching one part of a file."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from tools.fuzz.anatomy import anatomy
from tools.fuzz.framing import frame, source_of, unframe
from tools.fuzz.mend import MEND
from tools.fuzz.mutate import documents_of, put_document, repeat_row, splice
from tools.fuzz.subjects import Subject

__all__ = ["large"]

SIZE = 1 << 20


def large(data: bytes, subject: Subject, chance: random.Random) -> Iterator[bytes]:
    """Yield the seed with each table entry repeated, each region stretched, and a list of each document repeated."""
    files = unframe(data)
    parts = tuple(anatomy(source_of(files, subject.start), subject.format(files)))
    for part in parts:
        many = max(2, SIZE // part.size)
        grown = dict(files)
        if part.kind == "table":
            repeat_row(grown, parts, part, many, subject)
        else:
            stored = files[part.member][part.start : part.stop]
            splice(grown, parts, part.member, part.start, part.stop, stored * many, subject)
        yield _mend(grown, subject)
    for document in documents_of(files, parts, subject):
        for grow in (_repeat, _lengthen, _nest):
            grown = dict(files)
            with suppress(Exception):  # not every tree can grow, or be written afterwards
                put_document(grown, parts, document, subject, partial(grow, chance=chance))
                yield _mend(grown, subject)


def _mend(files: dict[str, bytes], subject: Subject) -> bytes:
    if subject.name in MEND:
        MEND[subject.name](files)
    return frame(files)


def _lists(tree: Any) -> Iterator[list[Any]]:
    if isinstance(tree, list):
        if tree:
            yield tree
        for item in tree:
            yield from _lists(item)


def _repeat(tree: Any, chance: random.Random) -> Any:
    """Repeat one item of a list thousands of times, up to a megabyte."""
    chosen = chance.choice(list(_lists(tree)))
    item = chance.choice(chosen)
    chosen += [item] * min(20_000, SIZE // len(repr(item)))
    return tree


def _lengthen(tree: Any, chance: random.Random) -> Any:
    """Make a text or bytes a megabyte long, or a number long."""
    lists = [found for found in _lists(tree) if any(isinstance(item, (str, bytes, int)) for item in found)]
    chosen = chance.choice(lists)
    at = chance.choice([place for place, item in enumerate(chosen) if isinstance(item, (str, bytes, int))])
    item = chosen[at]
    chosen[at] = 10**4000 if isinstance(item, int) else (item or type(item)()) * (SIZE // max(1, len(item)))
    return tree


def _nest(tree: Any, chance: random.Random) -> Any:
    """Nest a list in many others."""
    chosen = chance.choice(list(_lists(tree)))
    deep: Any = 1
    for _ in range(900):
        deep = [deep]
    chosen[chance.randrange(len(chosen))] = deep
    return tree
