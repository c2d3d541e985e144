"""Names protobuf messages of other programs, by the numbers and kinds of their first fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from holdall.binary.documents.base import DocumentError
from holdall.binary.documents.protobuf_outline import BYTES, VARINT, Field, read_field
from holdall.format.foreign import Content

__all__ = ["name_protobuf"]

_OP = re.compile(rb"[A-Z][A-Za-z0-9_>]*")  # an operation of TensorFlow, such as Placeholder
# The fields of a TensorProto and their kinds.
_TENSOR = {1: (VARINT, BYTES), 2: (VARINT,), **dict.fromkeys((4, 5, 6, 7, 8, 9, 10, 11, 12, 13), (BYTES,))}
_TYPES = range(1, 29)


def name_protobuf(front: bytes, size: int) -> Content | None:
    """Name a file of ``size`` bytes that begins with ``front``; None if it is no message that is known."""
    try:
        if _is_graph(front, size):
            return Content("is a TensorFlow graph (GraphDef, as frozen models are): export the model to ONNX")
        if _is_tensor(front, size):
            return Content("is a single ONNX tensor (TensorProto, as test data are): read it with onnx.numpy_helper")
    except DocumentError:
        pass
    return None


def _is_graph(front: bytes, size: int) -> bool:
    """Whether the message begins with a node: its name, and an operation."""
    for field in _fields(front, 0, size):
        if (field.number, field.kind) != (1, BYTES):
            return False
        inner = list(islice(_fields(front, field.first, field.last), 2))
        if [found[:2] for found in inner] != [(1, BYTES), (2, BYTES)]:
            return False
        return _OP.fullmatch(front, inner[1].first, inner[1].last) is not None
    return False


def _is_tensor(front: bytes, size: int) -> bool:
    """Whether the whole message is a tensor: a type, and values."""
    numbers = set()
    for field in _fields(front, 0, size):
        if field.kind not in _TENSOR.get(field.number, ()) or (field.number == 2 and field.value not in _TYPES):
            return False
        numbers.add(field.number)
    return 2 in numbers and not numbers.isdisjoint((4, 5, 6, 7, 9, 10, 11))


def _fields(front: bytes, at: int, end: int) -> Iterator[Field]:
    """The fields that begin in ``front``; numbers and bytes are all that the messages here have."""
    while at < end and at < len(front):
        field = read_field(front, at, end)
        if field.kind not in (VARINT, BYTES):
            raise DocumentError(at, f"field {field.number} is of another kind")
        yield field
        at = field.last
