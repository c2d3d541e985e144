"""The items of an outline: what a document holds, part by part, each with its place."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LONGEST", "SHOWN", "Item"]

SHOWN = 32  # bytes of an item that it carries
LONGEST = 4096  # bytes of a text of which the whole value is made


@dataclass(frozen=True, slots=True)
class Item:
    """One part of a document: bytes ``start`` to ``stop``, ``depth`` messages or containers inside the document.

    ``value`` is None for what has items inside; ``count`` says how many, where that is known. ``key`` is where the name
    or the tag before the value begins. ``data`` are the first bytes. If not ``whole``, the value is only a beginning.

    >>> Item(8, 12, 1, "a", "string", "hi", b'"hi"').value
    'hi'
    """

    start: int
    stop: int
    depth: int
    name: str
    kind: str
    value: object = None
    data: bytes = b""
    key: int | None = None
    count: int | None = None
    whole: bool = True
