"""Inputs of a megabyte, made from seeds: one part of a file many times over, or much longer than it was."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from holdall.testing.fuzz.anatomy import anatomy
from holdall.testing.fuzz.framing import framed, source_of, unframed
from holdall.testing.fuzz.mend import MEND
from holdall.testing.fuzz.mutate import documents_of, put_document, repeat_row, splice
from holdall.testing.fuzz.subjects import Subject

__all__ = ["large"]

SIZE = 1 << 20


def large(data: bytes, subject: Subject, chance: random.Random) -> Iterator[bytes]:
    """The seed with each table entry repeated, each region stretched, and a list of each document repeated."""
    files = unframed(data)
    parts = tuple(anatomy(source_of(files, subject.start), subject.format(files)))
    for part in parts:
        many = max(2, SIZE // part.size)
        grown = dict(files)
        if part.kind == "table":
            repeat_row(grown, parts, part, many, subject)
        else:
            stored = files[part.member][part.start : part.stop]
            splice(grown, parts, part.member, part.start, part.stop, stored * many, subject)
        yield _mended(grown, subject)
    for document in documents_of(files, parts, subject):
        for grow in (_repeated, _lengthened, _nested):
            grown = dict(files)
            with suppress(Exception):  # not every tree has a place to grow, or can be written then
                put_document(grown, parts, document, subject, partial(grow, chance=chance))
                yield _mended(grown, subject)


def _mended(files: dict[str, bytes], subject: Subject) -> bytes:
    if subject.name in MEND:
        MEND[subject.name](files)
    return framed(files)


def _lists(tree: Any) -> Iterator[list[Any]]:
    if isinstance(tree, list):
        if tree:
            yield tree
        for item in tree:
            yield from _lists(item)


def _repeated(tree: Any, chance: random.Random) -> Any:
    """One item of some list, thousands of times, but no more than a megabyte of it."""
    chosen = chance.choice(list(_lists(tree)))
    item = chance.choice(chosen)
    chosen += [item] * min(20_000, SIZE // len(repr(item)))
    return tree


def _lengthened(tree: Any, chance: random.Random) -> Any:
    """A text or bytes of a megabyte, or a long number."""
    lists = [found for found in _lists(tree) if any(isinstance(item, (str, bytes, int)) for item in found)]
    chosen = chance.choice(lists)
    at = chance.choice([place for place, item in enumerate(chosen) if isinstance(item, (str, bytes, int))])
    item = chosen[at]
    chosen[at] = 10**4000 if isinstance(item, int) else (item or type(item)()) * (SIZE // max(1, len(item)))
    return tree


def _nested(tree: Any, chance: random.Random) -> Any:
    """Lists in lists in lists."""
    chosen = chance.choice(list(_lists(tree)))
    deep: Any = 1
    for _ in range(900):
        deep = [deep]
    chosen[chance.randrange(len(chosen))] = deep
    return tree
