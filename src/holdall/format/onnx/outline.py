"""What explain opens in ONNX files: the fields of all messages, by name."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdall.base.check import Check
from holdall.binary.documents.outline import LONGEST, SHOWN, Item
from holdall.errors import FormatError
from holdall.format.onnx.field_names import DATA_TYPES, find_fields
from holdall.format.onnx.wire import BYTES, FIXED32, FIXED64, VARINT, Field, Walker
from holdall.format.outline import Outline, Place, stop_at

if TYPE_CHECKING:
    from holdall.limits import Limits
    from holdall.model.model import Model
    from holdall.source import Source

__all__ = ["outline"]

_WIRES = {VARINT: "varint", FIXED64: "fixed64", BYTES: "bytes", FIXED32: "fixed32"}
_CODES = {"float": "f", "double": "d"}
_PACKED = ("int64", "int32", "uint64", "enum", *_CODES)
_MANY = 64  # numbers of a packed field that are read
_SIGNED = ("int64", "int32", "enum")


def outline(place: Place, source: Source, model: Model | None, limits: Limits) -> Outline | None:
    """The fields whose tags lie in a range of the model: ranges end where the bytes of a tensor begin."""
    if place.name != "protobuf":
        return None
    return _Walk(source, limits).outline(place)


@dataclass(slots=True)
class _Message:
    """A message that the walk is inside of."""

    kind: str
    at: int  # where its next field begins
    stop: int
    fields: Iterator[Field]
    met: Counter[int] = field(default_factory=Counter)


class _Walk:
    """A walk over the model from range to range: the next one goes on where the last one ended."""

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source = source
        self._walker = Walker(source, Check(limits=limits))
        self._most = 3 * limits.nesting + 8  # three messages for each graph inside another, and the types of values
        self._reached: list[_Message] = []  # the messages around the end of the last range; none if it was left early

    def outline(self, place: Place) -> Outline:
        """The fields whose tags lie in ``place``."""
        start, stop = place.start, place.stop
        return Outline("protobuf", lambda since: self._walk(start, stop, since), stop - start, resume=self.outline)

    def _enter(self, kind: str, first: int, last: int) -> _Message:
        return _Message(kind, first, last, _list_fields(self._walker, first, last))

    def _walk(self, start: int, stop: int, since: int) -> Iterator[Item]:
        """The fields with tags in ``start`` to ``stop``; from a byte ``since`` on, also the messages around it."""
        source, walker, around = self._source, self._walker, self._reached
        self._reached = []
        if since or not around or around[-1].at > start:
            around = [self._enter("ModelProto", 0, source.size)]
        while around:
            message = around[-1]
            tag = message.at
            if tag >= stop and stop < source.size:  # at the end of the file, messages that are cut say so
                self._reached = around
                return
            found = next(message.fields, None)
            if found is None:
                around.pop()
                continue
            number, wire, first, last = found
            value_at = walker.value_at if wire == VARINT else first
            message.at = last
            place = message.met[number]
            message.met[number] += 1
            if last <= max(start, since):
                continue
            item = _item(source, message.kind, len(around) - 1, place, tag, value_at, found, walker)
            if tag >= start or since:
                yield item
            if wire == BYTES and item.kind[:1].isupper():
                if len(around) >= self._most:
                    raise stop_at(tag, f"nested deeper than {self._most} messages")
                around.append(self._enter(item.kind, first, last))


def _list_fields(walker: Walker, start: int, stop: int) -> Iterator[Field]:
    """The fields of a message; of one that is cut, also the part that is there."""
    try:
        yield from walker.fields(start, stop)
    except FormatError as error:
        if error.offset is not None and error.offset < stop:
            tag, at = walker.varint(error.offset, stop)
            if tag & 7 == BYTES:
                _, first = walker.varint(at, stop)
                yield tag >> 3, BYTES, first, stop
        raise


def _item(
    source: Source, message: str, depth: int, place: int, tag: int, first: int, found: Field, walker: Walker
) -> Item:  # fmt: skip
    number, wire, value, last = found
    name, type = find_fields(message).get(number, (f"field {number}", _WIRES[wire]))
    inside = type[:1].isupper()
    if (inside and wire != BYTES) or (not inside and not _fits(type, wire)):
        name, type, inside = f"{name} (as {_WIRES[wire]})", _WIRES[wire], False
    shown = source.read(first, min(last - first, SHOWN))
    if inside:
        return Item(first, last, depth, f"{name}[{place}]", type, None, shown, tag)
    made, whole = _make_value(source, type, wire, value, first, last, walker)
    if message == "TensorProto" and name == "data_type" and isinstance(made, int) and 0 <= made < len(DATA_TYPES):
        type = f"{type} {DATA_TYPES[made]}"
    return Item(first, last, depth, name, type, made, shown, tag, whole=whole)


def _fits(type: str, wire: int) -> bool:
    """Whether a field of ``type`` may be stored as ``wire``; numbers may also come packed."""
    if wire == BYTES:
        return type in _PACKED or type in ("string", "bytes")
    return wire == {"float": FIXED32, "double": FIXED64, "fixed32": FIXED32, "fixed64": FIXED64,
                    "string": BYTES, "bytes": BYTES}.get(type, VARINT)  # fmt: skip


def _make_value(
    source: Source, type: str, wire: int, value: int, first: int, last: int, walker: Walker
) -> tuple[object, bool]:  # fmt: skip
    if wire == VARINT:
        return _sign(value, type), True
    held = source.read(first, min(last - first, LONGEST))
    whole = last - first <= LONGEST
    if type == "string":
        return held.decode("utf-8", "backslashreplace" if whole else "replace"), whole
    if wire == BYTES and type in _PACKED:
        return _unpack(held, type, first, last, walker)
    if type in _CODES:
        return struct.unpack("<" + _CODES[type], held)[0], True
    return held, whole


def _unpack(held: bytes, type: str, first: int, last: int, walker: Walker) -> tuple[list[float], bool]:
    """The first numbers of a packed field, and whether they are all."""
    if type in _CODES:
        size = struct.calcsize("<" + _CODES[type])
        if (last - first) % size:
            raise stop_at(first, f"{last - first} bytes are not a whole number of {type} values")
        count = min(_MANY, (last - first) // size)
        return list(struct.unpack_from(f"<{count}{_CODES[type]}", held)), count * size == last - first
    found: list[float] = []
    at = first
    while at < last and len(found) < _MANY:
        value, at = walker.varint(at, last)
        found.append(_sign(value, type))
    return found, at == last


def _sign(value: int, type: str) -> int:
    return value - (1 << 64) if type in _SIGNED and value >> 63 else value
