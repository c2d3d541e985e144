"""What explain opens in GGUF files: metadata entries, with the key, the type and the value or its elements."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdall.binary.documents.outline import LONGEST, SHOWN, Item
from holdall.format.gguf.layout import ARRAY, KINDS, STRING
from holdall.format.outline import Outline, Place, ReadAhead, stop_at

if TYPE_CHECKING:
    from holdall.limits import Limits
    from holdall.model.model import Model
    from holdall.source import Source

__all__ = ["outline"]

_NAMES = {**{tag: kind.name for tag, kind in KINDS.items()}, STRING: "string", ARRAY: "array"}


def outline(place: Place, source: Source, model: Model | None, limits: Limits) -> Outline | None:
    """The outline of one metadata entry."""
    if place.name != "metadata":
        return None
    entry = _Entry(source, place.start, place.stop, limits.nesting)
    return Outline("metadata entry", entry.walk, place.stop - place.start)


class _Entry:
    def __init__(self, source: Source, start: int, stop: int, nesting: int) -> None:
        self._ahead = ReadAhead(source, stop)
        self._start = start
        self._stop = stop
        self._nesting = nesting

    def walk(self, since: int) -> Iterator[Item]:
        """Key, type and value; elements of arrays one by one."""
        key, at = self._text("key", self._start, 0)
        tag, after = self._tag("type", at)
        for item in key, tag:
            if item.stop > since:
                yield item
        yield from self._value("value", tag.value, after, 0, since)

    def _value(self, name: str, tag: object, at: int, depth: int, since: int) -> Iterator[Item]:
        """The value at ``at``, whose type is ``tag``, and what is inside it."""
        todo = [(name, tag, at, depth, 1, 0)]  # runs of values of one type: the name and the count, and how many came
        while todo:
            name, tag, at, depth, count, done = todo.pop()
            if done == count:
                if todo:  # the values around it go on after it
                    todo[-1] = (*todo[-1][:2], at, *todo[-1][3:])
                continue
            shown = name if depth == 0 else f"[{done}]"
            if tag == ARRAY:
                if depth > self._nesting:
                    raise stop_at(at, f"nested deeper than {self._nesting}")
                head = self._bytes(at, 12)
                inner, inside = struct.unpack("<IQ", head)
                kind = f"array of {_NAMES.get(inner, f'type {inner}')}"
                if at + 12 > since:
                    yield Item(at, at + 12, depth, shown, kind, None, head, count=inside)
                after = at + 12
                past = min(inside, max(0, since - after) // KINDS[inner].size) if inner in KINDS else 0
                after += past * KINDS[inner].size if past else 0
                todo += [(name, tag, at, depth, count, done + 1), (name, inner, after, depth + 1, inside, past)]
                continue
            item, at = self._scalar(shown, tag, at, depth)
            todo.append((name, tag, at, depth, count, done + 1))
            if item.stop > since:
                yield item

    def _scalar(self, name: str, tag: object, at: int, depth: int) -> tuple[Item, int]:
        if tag == STRING:
            return self._text(name, at, depth)
        kind = KINDS.get(tag) if isinstance(tag, int) else None
        if kind is None:
            raise stop_at(at, f"the type {tag} is unknown")
        data = self._bytes(at, kind.size)
        value = struct.unpack("<" + kind.code, data)[0]
        return Item(at, at + kind.size, depth, name, kind.name, value, data), at + kind.size

    def _text(self, name: str, at: int, depth: int) -> tuple[Item, int]:
        """The text after its counter at ``at``."""
        size = int.from_bytes(self._bytes(at, 8), "little")
        first, stop = at + 8, at + 8 + size
        if stop > self._stop:
            raise stop_at(at, f"a string of {size} bytes runs past the {self._stop - first} that are left")
        held, whole = self._bytes(first, min(size, LONGEST)), size <= LONGEST
        text = held.decode("utf-8", "backslashreplace" if whole else "replace")
        return Item(first, stop, depth, name, "string", text, held[:SHOWN], at, whole=whole), stop

    def _tag(self, name: str, at: int) -> tuple[Item, int]:
        data = self._bytes(at, 4)
        tag = int.from_bytes(data, "little")
        return Item(at, at + 4, 0, name, f"u32 {_NAMES.get(tag, 'unknown')}", tag, data), at + 4

    def _bytes(self, at: int, size: int) -> bytes:
        data = self._ahead.read(at, size) if at < self._stop or not size else b""
        if len(data) < size:
            raise stop_at(at, f"the entry ends after {len(data)} of {size} bytes")
        return data
