"""The outline of a protobuf message whose fields have no known names: numbers, kinds and values, as far as it is one.

>>> [(item.depth, item.name, item.value) for item in outline_protobuf(b"\\x08\\x07\\x12\\x04\\x0a\\x02hi")]
[(0, 'field 1', 7), (0, 'field 2', None), (1, 'field 1', 'hi')]
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterator
from typing import NamedTuple

from holdall.binary.documents.base import DocumentError
from holdall.binary.documents.outline import SHOWN, Item

__all__ = ["BYTES", "VARINT", "Field", "outline_protobuf", "read_field"]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_NAMES = {VARINT: "varint", FIXED64: "fixed64", FIXED32: "fixed32"}
_MOST_NUMBER = (1 << 29) - 1
_LONGEST = 256  # bytes of a text or of plain bytes that an item carries
_DEEP = 64  # messages in messages that are opened
_TRIED = 8  # fields by which a message is recognized
_BLANKS = dict.fromkeys(map(ord, "\t\r\n"))


class Field(NamedTuple):
    """A field: its tag at byte ``at``, then its bytes from ``first`` to ``last``; ``value`` is that of a number."""

    number: int
    kind: int
    at: int
    first: int
    last: int
    value: int = 0


def read_field(data: bytes, at: int, stop: int) -> Field:
    """Read the field at byte ``at`` of a message that ends at ``stop``, of which ``data`` may be only the beginning.

    >>> read_field(b"\\x12\\x04hold", 0, 6)
    Field(number=2, kind=2, at=0, first=2, last=6, value=0)
    """
    tag, after = _read_varint(data, at, stop)
    number, kind = tag >> 3, tag & 7
    if not 0 < number <= _MOST_NUMBER:
        raise _refuse(at, f"a field has the number {number}, which is none")
    if kind == VARINT:
        value, last = _read_varint(data, after, stop)
        return Field(number, kind, at, after, last, value)
    size = 8 if kind == FIXED64 else 4
    if kind == BYTES:
        size, after = _read_varint(data, after, stop)
    elif kind not in (FIXED64, FIXED32):
        raise _refuse(at, f"field {number} is of the kind {kind}, which is none")
    if size > stop - after:
        raise _refuse(at, f"field {number} has {size} bytes, {stop - after} are left in its message")
    return Field(number, kind, at, after, after + size)


def outline_protobuf(data: bytes, base: int = 0, since: int = 0, size: int | None = None) -> Iterator[Item]:
    """List the fields of a message of ``size`` bytes, of which ``data`` is at least the beginning.

    It begins at byte ``base``; fields that end at or before byte ``since`` are left out. Bytes are opened as a message
    where they begin like one and are no text. What is wrong is raised as DocumentError.
    """
    stops, at = [len(data) if size is None else size], 0
    while stops:
        if at >= stops[-1]:
            stops.pop()
            continue
        field = read_field(data, at, stops[-1])
        at = field.last
        if base + field.last > since:
            inside = field.kind == BYTES and len(stops) <= _DEEP and _is_message(data, field.first, field.last)
            yield _make_item(data, base, field, len(stops) - 1, inside)
            if inside:
                stops.append(field.last)
                at = field.first


def _make_item(data: bytes, base: int, field: Field, depth: int, inside: bool) -> Item:
    first, last = field.first, field.last
    kind, whole = _NAMES.get(field.kind, "message"), True
    value: object = None
    if field.kind == BYTES and not inside:
        text, whole = _read_text(data, first, last), last - first <= _LONGEST
        kind, value = ("bytes", data[first : min(last, first + _LONGEST)]) if text is None else ("text", text)
    elif field.kind == VARINT:
        value = field.value
    elif not inside:
        value = int.from_bytes(data[first:last], "little")
    shown = data[first : min(last, first + SHOWN)]
    name, key = f"field {field.number}", base + field.at
    return Item(base + first, base + last, depth, name, kind, value, shown, key, whole=whole)


def _is_message(data: bytes, first: int, last: int) -> bool:
    """Whether bytes begin with fields, and are no line of text."""
    text = _read_text(data, first, last)
    if first == last or (text is not None and text.isprintable()):
        return False
    at = first
    try:
        for _ in range(_TRIED):
            if at >= min(last, len(data)):
                break
            at = read_field(data, at, last).last
    except DocumentError:
        return False
    return True


def _read_text(data: bytes, first: int, last: int) -> str | None:
    """The beginning of a text; None for what is none."""
    held = data[first : min(last, first + _LONGEST)]
    try:
        text = getincrementaldecoder("utf-8")().decode(held, final=len(held) == last - first)
    except UnicodeDecodeError:
        return None
    return text if text.translate(_BLANKS).isprintable() else None


def _read_varint(data: bytes, at: int, stop: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(data[at : min(at + 10, stop)]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80 and not value >> 64:
            return value, at + place + 1
    raise _refuse(at, "a number does not end, or has more than 64 bits")


def _refuse(at: int, message: str) -> DocumentError:
    return DocumentError(at, message, "the message")
