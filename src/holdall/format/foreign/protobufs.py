"""Names protobuf messages of other programs, by the numbers and kinds of their first fields."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdall.format.foreign import Content

__all__ = ["name_protobuf"]

_VARINT, _BYTES = 0, 2
_OP = re.compile(rb"[A-Z][A-Za-z0-9_>]*")  # an operation of TensorFlow, such as Placeholder
# The fields of a TensorProto and their kinds.
_TENSOR = {1: (_VARINT, _BYTES), 2: (_VARINT,), **dict.fromkeys((4, 5, 6, 7, 8, 9, 10, 11, 12, 13), (_BYTES,))}
_TYPES = range(1, 29)


class _NoMessage(Exception):
    """The bytes are no protobuf message."""


def name_protobuf(front: bytes, size: int) -> Content | None:
    """Name a file of ``size`` bytes that begins with ``front``; None if it is no message that is known."""
    try:
        if _is_graph(front, size):
            return Content("is a TensorFlow graph (GraphDef, as frozen models are): export the model to ONNX")
        if _is_tensor(front, size):
            return Content("is a single ONNX tensor (TensorProto, as test data are): read it with onnx.numpy_helper")
    except _NoMessage:
        pass
    return None


def _is_graph(front: bytes, size: int) -> bool:
    """Whether the message begins with a node: its name, and an operation."""
    for number, kind, start, stop in _fields(front, 0, size):
        if (number, kind) != (1, _BYTES):
            return False
        inner = []
        for found in _fields(front, start, stop):
            inner.append(found)
            if len(inner) == 2:
                break
        if [found[:2] for found in inner] != [(1, _BYTES), (2, _BYTES)]:
            return False
        return _OP.fullmatch(front, inner[1][2], inner[1][3]) is not None
    return False


def _is_tensor(front: bytes, size: int) -> bool:
    """Whether the whole message is a tensor: a type, and values."""
    numbers = set()
    for number, kind, start, _ in _fields(front, 0, size):
        if kind not in _TENSOR.get(number, ()) or (number == 2 and start not in _TYPES):
            return False
        numbers.add(number)
    return 2 in numbers and not numbers.isdisjoint((4, 5, 6, 7, 9, 10, 11))


def _fields(front: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The number and kind of each field, and start and stop of its bytes; the value and end of a number."""
    while at < end and at < len(front):
        tag, at = _varint(front, at)
        number, kind = tag >> 3, tag & 7
        value, after = _varint(front, at)
        if not number or kind not in (_VARINT, _BYTES) or (kind == _BYTES and value > end - after):
            raise _NoMessage
        start, at = (value, after) if kind == _VARINT else (after, after + value)
        yield number, kind, start, at


def _varint(front: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(front[at : at + 10]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise _NoMessage
