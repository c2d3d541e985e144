"""Reading metadata values, in two steps.

:func:`locate` walks over a value, proves that the file holds all of it, and returns where it is; :func:`decode` makes
the Python value. A vocabulary of 256,000 tokens is located when the file is opened and decoded when it is asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdall.base.check import Check
from holdall.binary import kernels
from holdall.format.gguf import rules
from holdall.format.gguf.growing_front import GrowingFront
from holdall.format.gguf.layout import ARRAY, KINDS, STRING, TEXT

__all__ = ["Array", "Located", "Nest", "Scalar", "Text", "Texts", "decode", "locate"]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number or a boolean."""

    tag: int
    at: int

    kind = property(lambda self: KINDS[self.tag].name)


@dataclass(frozen=True, slots=True)
class Text:
    """A string; ``at`` is its first byte, after the counter."""

    at: int
    size: int
    kind = "string"


@dataclass(frozen=True, slots=True)
class Array:
    """Numbers or booleans, one after the other."""

    tag: int
    at: int
    count: int

    kind = property(lambda self: f"array:{KINDS[self.tag].name}")


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Strings, one after the other: where each begins, and how long it is."""

    starts: NDArray[np.uint64]
    sizes: NDArray[np.uint64]
    kind = "array:string"

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.starts)


@dataclass(frozen=True, slots=True)
class Nest:
    """Arrays in an array."""

    items: Sequence[Located]

    @property
    def kind(self) -> str:
        """``array:`` and the kind of the inner arrays; these state their kinds themselves, and kinds may differ."""
        kinds = {item.kind for item in self.items}
        return f"array:{kinds.pop()}" if len(kinds) == 1 else "array:array"

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.items)


Located: TypeAlias = Scalar | Text | Array | Texts | Nest


def locate(front: GrowingFront, tag: int, at: int, key: str, check: Check, depth: int = 0) -> tuple[Located, int]:
    """Return the value of type ``tag`` at byte ``at``, and the byte after it."""
    what = f"the value of {key!r}"
    if tag in KINDS:
        end = at + KINDS[tag].size
        front.reach(end, at, what)
        return Scalar(tag, at), end
    if tag == STRING:
        front.reach(at + 8, at, what)
        size = int.from_bytes(front.data[at : at + 8], "little")
        end = at + 8 + size
        check.limit("metadata_bytes", size if end <= front.size else 0, at, f"gguf: {what}: bytes of a string")
        front.reach(end, at, what)
        return Text(at + 8, size), end
    if tag != ARRAY:
        rule = rules.ARRAY_TYPE if depth else rules.TYPE
        check.fail(rule, at, f"gguf: {what}: type {tag} is unknown")
    return _locate_array(front, at, key, check, depth + 1)


def _locate_array(front: GrowingFront, at: int, key: str, check: Check, depth: int) -> tuple[Located, int]:
    """Return the array at byte ``at``, and the byte after it."""
    what = f"the array {key!r}"
    front.reach(at + 12, at, what)
    tag, count = struct.unpack_from("<IQ", front.data, at)
    start = at + 12
    if tag not in KINDS and tag not in (STRING, ARRAY):
        check.fail(rules.ARRAY_TYPE, at, f"gguf: {what}: elements of type {tag} are unknown")
    least = KINDS[tag].size if tag in KINDS else TEXT.min_size if tag == STRING else 12
    if count > (front.size - start) // least:  # checked before the count is used
        message = f"gguf: {what}: {count} elements of at least {least} bytes in the {front.size - start} left"
        check.fail(rules.ARRAY_COUNT, at + 4, message)
    if tag in KINDS:
        front.reach(start + count * least, start, what)
        return Array(tag, start, count), start + count * least
    if tag == STRING:
        check.limit("metadata_bytes", count * least, at, f"gguf: {what}: bytes")
        columns = front.scan(TEXT, start, count, what, check.limits.metadata_bytes)
        if columns.failed is not None:
            message = f"gguf: {what}: string {len(columns)} of {count} runs past the end of the file at {front.size}"
            check.fail(rules.END, columns.end, message)
        return Texts(columns["text@"], columns["text#"]), columns.end
    check.limit("nesting", depth + 1, at, f"gguf: {what}: arrays in arrays")
    check.note(rules.NESTED, at, f"gguf: {what} holds arrays")
    items = []
    for _ in range(count):
        item, start = _locate_array(front, start, key, check, depth + 1)
        items.append(item)
    return Nest(items), start


def decode(located: Located, data: bytearray, key: str, check: Check) -> Any:
    """Decode the value that was located in ``data``, the front of the file: numbers as arrays, strings as lists."""
    match located:
        case Scalar():
            return _decode_scalar(located, data, key, check)
        case Text(at, size):
            try:
                return data[at : at + size].decode()
            except UnicodeDecodeError as error:
                check.fail(rules.STRING_UTF8, at + error.start, f"gguf: metadata {key!r}: the string is not UTF-8")
        case Texts(starts, sizes):
            texts, bad = kernels.texts(data, starts, sizes)
            if bad >= 0:
                message = f"gguf: metadata {key!r}: string {bad} of {len(starts)} is not UTF-8"
                check.fail(rules.STRING_UTF8, int(starts[bad]), message)
            return texts
        case Array(tag, at, count):
            kind = KINDS[tag]
            if kind.name == "bool":
                _check_bools(np.frombuffer(data, np.uint8, count, at), at, key, check)
            # A copy is aligned, and does not keep the front of the file alive.
            return np.frombuffer(data, f"<{kind.code}", count, at).copy()
        case Nest(items):
            return [decode(item, data, key, check) for item in items]


def _decode_scalar(located: Scalar, data: bytearray, key: str, check: Check) -> Any:
    kind = KINDS[located.tag]
    if kind.name == "bool":
        _check_bools(np.frombuffer(data, np.uint8, 1, located.at), located.at, key, check)
    (value,) = struct.unpack_from("<" + kind.code, data, located.at)
    if value != value and struct.pack("<" + kind.code, value) != data[located.at : located.at + kind.size]:
        return np.frombuffer(data, f"<{kind.code}", 1, located.at)[0]  # a NaN that a Python float would change
    return value


def _check_bools(stored: NDArray[np.uint8], at: int, key: str, check: Check) -> None:
    if stored.size and stored.max() > 1:
        place = int((stored > 1).argmax())
        check.fail(rules.BOOL, at + place, f"gguf: metadata {key!r}: a boolean of {stored[place]}")
