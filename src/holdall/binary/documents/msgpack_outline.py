"""The outline of a MessagePack document, also of a broken one, as far as it can be walked.

>>> [(item.start, item.stop, item.name, item.value) for item in outline_msgpack(b"\\x81\\xa1a\\x92\\x91\\x01\\x02")]
[(0, 7, '', None), (3, 7, 'a', None), (4, 6, '[0]', [1]), (6, 7, '[1]', 2)]
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

from holdall.binary.documents.base import DocumentError
from holdall.binary.documents.msgpack import DEPTH, REASONS
from holdall.binary.documents.outline import LONGEST, SHOWN, Item
from holdall.binary.kernels import msgpack_tokens as tokens
from holdall.binary.kernels.msgpack_reference import read_token
from holdall.binary.kernels.msgpack_tokens import ARRAY, BIN, EXT, MAP, STR

__all__ = ["outline_msgpack"]

_SMALL = 80  # bytes of a container without containers inside that is one item
_NAMES = ("nil", "boolean", "boolean", "integer", "integer", "float", "text", "bytes", "extension", "array", "map")


@dataclass(slots=True)
class _Frame:
    """A container that the walk is inside of: its kind, its values, and how many of them were met."""

    kind: int
    count: int
    met: int = 0


def outline_msgpack(data: bytes, base: int = 0, since: int = 0, depth: int = DEPTH) -> Iterator[Item]:
    """List the values of the document in ``data``, which begins at byte ``base`` and may be broken.

    Values that end at or before byte ``since`` are left out. What is wrong is raised at the end, as DocumentError.
    Zeros may follow the document.
    """
    at = yield from _Walk(data, base, since - base, depth).items()
    if any(data[at:]):
        raise DocumentError(at, f"{len(data) - at} more bytes follow the document")


class _Walk:
    def __init__(self, data: bytes, base: int, since: int, depth: int) -> None:
        self._data = data
        self._base = base
        self._since = since
        self._depth = depth

    def items(self) -> Generator[Item, None, int]:
        """Every value but those that end before the first wanted byte. Returns where the document ends."""
        frames: list[_Frame] = []
        at = 0
        while True:
            key, name = at, ""
            if frames:
                frame = frames[-1]
                name = f"[{frame.met}]"
                if frame.kind == MAP:
                    name, at = self._name(at)
                frame.met += 1
            kind, value, place, after = self._token(at)
            inside = kind in (ARRAY, MAP)
            stop, fine = self._end(at, after) if inside else (after, True)
            after = stop
            if stop > self._since:
                small = self._make_small(at, stop) if inside and fine and stop - at <= _SMALL else None
                keyed = key if key < at else None
                yield self._item(kind, value, place, at, stop, len(frames), name, keyed, small)
                if inside and small is None:
                    if len(frames) >= self._depth:
                        raise DocumentError(at, f"nested deeper than {self._depth}")
                    frames.append(_Frame(kind, value))
                    after = self._token(at)[3]
            at = after
            while frames and frames[-1].met == frames[-1].count:
                frames.pop()
            if not frames:
                return at

    def _token(self, at: int) -> tuple[int, int, int, int]:
        status, *token = read_token(self._data, at)
        if status:
            raise DocumentError(at, REASONS[status])
        kind, value, place, after = token
        return kind, value, place, after

    def _name(self, at: int) -> tuple[str, int]:
        """The key at ``at`` as text, and where its value begins."""
        kind, value, place, after = self._token(at)
        if kind in (ARRAY, MAP):
            raise DocumentError(at, REASONS[tokens.KEY])
        shown, _ = _make_value(self._data, kind, value, place, after)
        return shown if isinstance(shown, str) else repr(shown), after

    def _end(self, at: int, after: int) -> tuple[int, bool]:
        """Where the container at ``at`` ends, as far as there are bytes, and whether it is complete."""
        from holdall.binary import kernels

        data = self._data
        status, end, _, _ = kernels.msgpack_walk(data, at, len(data), self._depth, len(data))
        return (end, True) if not status else (len(data), False)

    def _make_small(self, at: int, stop: int) -> Any:
        """The container at ``at``, if it has none inside; else None."""
        from holdall.binary.documents.msgpack import decode

        try:
            made = decode(self._data[at:stop])
        except DocumentError:  # an extension that is no timestamp of Python
            return None
        parts = made.values() if isinstance(made, dict) else made
        return None if any(isinstance(part, (dict, list)) for part in parts) else made

    def _item(
        self, kind: int, value: int, place: int, at: int, stop: int, depth: int, name: str, key: int | None, small: Any
    ) -> Item:
        base, data = self._base, self._data
        made, whole, count = small, True, None
        if kind not in (ARRAY, MAP):
            made, whole = _make_value(data, kind, value, place, stop)
        elif small is None:
            count = value
        named = None if key is None else base + key
        shown = data[at : min(stop, at + SHOWN)]
        return Item(base + at, base + stop, depth, name, _NAMES[kind], made, shown, named, count, whole)


def _make_value(data: bytes, kind: int, value: int, place: int, stop: int) -> tuple[Any, bool]:
    """The value of a token, and whether it is all of it."""
    match kind:
        case tokens.NIL:
            return None, True
        case tokens.FALSE | tokens.TRUE:
            return kind == tokens.TRUE, True
        case tokens.UINT:
            return value, True
        case tokens.NEGATIVE:
            return value - (1 << 64), True
        case tokens.FLOAT:
            return struct.unpack(">d", value.to_bytes(8, "big"))[0], True
    held, whole = data[place : min(stop, place + LONGEST)], stop - place <= LONGEST
    if kind == STR:
        return held.decode("utf-8", "backslashreplace" if whole else "replace"), whole
    assert kind in (BIN, EXT)
    return held, whole
