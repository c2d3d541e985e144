"""Strict JSON documents: values with their offsets, duplicate keys, and errors that name byte and path.

The tokenizer of :mod:`holdall.binary.kernels` decides what is JSON; values are made only from what it accepted.

>>> document = decode(b'{"a": [1, 2], "a": [3]}')
>>> document.value, document.duplicates
({'a': [3]}, [Duplicate(path='$.a', offset=14)])
>>> document.offset("$.a[0]")
20
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain, pairwise
from math import isfinite
from typing import TYPE_CHECKING, Any

from holdall.base.buffer_sizes import buffer_size
from holdall.base.once import computed_once
from holdall.base.utf8 import utf8_breach
from holdall.binary.documents.base import DocumentError, Duplicate, TooManyValues, inner_path, member_path
from holdall.binary.kernels import json_tokens as tokens
from holdall.binary.kernels.json_tokens import ARRAY, ESCAPED, KEY, KIND, OBJECT, STRING
from holdall.errors import ContentError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from holdall.binary.layout import Buffer

__all__ = ["Document", "DocumentError", "Duplicate", "Tape", "breach", "decode", "encode", "tokenize"]

DEPTH = 128
DIGITS = 4300  # the most digits of an integer: longer ones take quadratic time, and Python itself refuses them
_BITS = 14_284  # the most bits of an integer, which never has more digits than that

_STEP = re.compile(r'\.([^.\["]+)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]')
_ROWS = buffer_size(4096)  # tokens converted at a time
_CONSTANTS = {tokens.TRUE: True, tokens.FALSE: False, tokens.NULL: None}


class Tape:
    """The bytes of one document and its tokens as columns."""

    def __init__(self, data: bytes, stored: bytearray) -> None:
        self.data = data
        self.stored = stored

    @computed_once
    def table(self) -> NDArray[np.uint32]:
        """One row for each token: kind, start, end, link."""
        import numpy as np

        return np.frombuffer(self.stored, "<u4").reshape(-1, 4)

    def __len__(self) -> int:
        return len(self.stored) // 16

    def row(self, index: int) -> tuple[int, int, int, int]:
        """Kind (with its flags), start, end and link of one token."""
        kind, start, end, link = self.table[index].tolist()
        return kind, start, end, link

    def rows(self) -> Iterator[list[int]]:
        """Kind, start, end and link of every token as Python integers, converted a block at a time."""
        for at in range(0, len(self), _ROWS):
            yield from self.table[at : at + _ROWS].tolist()

    def kind(self, index: int) -> int:
        """The kind of the token, without its flags."""
        return int(self.table[index, 0]) & KIND

    def offset(self, index: int) -> int:
        """The first byte of the token; that of a string is its quote."""
        kind, start, _, _ = self.row(index)
        return start - (kind & KIND in (KEY, STRING))

    def text(self, index: int) -> str:
        """The string or key at ``index``, unescaped."""
        kind, start, end, _ = self.row(index)
        return _unescape(self.data, kind, start, end)

    def texts(self, indexes: NDArray[np.uint32]) -> list[str]:
        """The strings or keys at all these indexes, unescaped."""
        import numpy as np

        from holdall.binary import kernels

        rows = self.table[indexes]
        starts = rows[:, 1].astype(np.uint64)
        found, bad = kernels.texts(self.data, starts, rows[:, 2] - starts)
        assert bad < 0, "the tokenizer has checked the UTF-8"
        for row in (rows[:, 0] & ESCAPED).nonzero()[0].tolist():
            found[row] = self.text(int(indexes[row]))
        return found

    def members(self, index: int) -> Iterator[tuple[int, int]]:
        """Key and value of every member of the object at ``index``."""
        at, end = index + 1, self.row(index)[3]
        while at < end:
            yield at, at + 1
            at = self.row(at + 1)[3]

    def items(self, index: int) -> Iterator[int]:
        """The elements of the array at ``index``."""
        at, end = index + 1, self.row(index)[3]
        while at < end:
            yield at
            at = self.row(at)[3]

    def find(self, path: str) -> int:
        """Find the index of the value at ``path``; KeyError when there is none."""
        index = 0
        for key, place in _split_path(path):
            found = None
            if key is not None and self.kind(index) == OBJECT:
                found = next((v for k, v in reversed(list(self.members(index))) if self.text(k) == key), None)
            elif place is not None and self.kind(index) == ARRAY:
                found = next((item for n, item in enumerate(self.items(index)) if n == place), None)
            if found is None:
                raise KeyError(path)
            index = found
        return index

    def path(self, wanted: int) -> str:
        """The path of the value or key at index ``wanted``."""
        path, index = "$", 0
        while index != wanted:
            if self.kind(index) == ARRAY:
                place, index = next((n, i) for n, i in enumerate(self.items(index)) if self.row(i)[3] > wanted)
                path += f"[{place}]"
            elif self.kind(index) == OBJECT:
                key, index = next((k, v) for k, v in self.members(index) if self.row(v)[3] > wanted)
                path += member_path(self.text(key))
                if key == wanted:
                    return path
            else:
                raise IndexError(wanted)
        return path


class Document:
    """A decoded document.

    ``value`` is made of plain Python objects; of equal keys the last one wins. ``duplicates`` lists each key that came
    again, with its byte.
    """

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.value, self.duplicates = _build(tape)

    def offset(self, path: str) -> int:
        """The byte at which the value at ``path`` begins; KeyError when there is none."""
        return self.tape.offset(self.tape.find(path))


def tokenize(data: Buffer, *, depth: int = DEPTH) -> Tape:
    """Check that a document is strict JSON and return its tape. No value is made yet."""
    from holdall.binary import kernels

    data = bytes(data)
    if len(data) >= 2**32 - 1:
        raise DocumentError(0, f"a document of {len(data)} bytes is too large: 4 GiB are the most", "$")
    tape, at, reason = kernels.json_tape(data, 0, len(data), depth)
    if reason is None:
        return Tape(data, tape)
    raise DocumentError(at, _describe(data, at, reason, depth), _find_path(data, tape))


def decode(data: Buffer, *, depth: int = DEPTH, most: int | None = None, unique: bool = False) -> Document:
    """Decode strict JSON (RFC 8259) in UTF-8; anything else raises :class:`DocumentError`.

    Integers are exact and floats must lie within float64. Nothing is deeper than ``depth``. What may be more than
    ``most`` values, keys included, raises :class:`TooManyValues` before one is made. With ``unique``, a key that an
    object has twice is an error too.
    """
    if most is not None and count_marks(data) >= most:
        raise TooManyValues(0, f"{most} values or more")
    document = Document(tokenize(data, depth=depth))
    for twice in document.duplicates[: int(unique)]:
        raise DocumentError(twice.offset, "a key comes twice", twice.path)
    return document


def count_marks(data: Buffer) -> int:
    """Count the bytes that begin or part values: a document has at most one value more, keys included.

    >>> count_marks(b'{"a": [1, 2]}')
    4
    """
    whole = bytes(data)
    return sum(whole.count(mark) for mark in (b",", b":", b"[", b"{"))


def encode(value: Any) -> bytes:
    """Encode ``value`` compactly in UTF-8. Members keep their order; ContentError for a value that JSON cannot hold.

    >>> encode({"b": [1, None], "a": "é"})
    b'{"b":[1,null],"a":"\\xc3\\xa9"}'
    """
    wrong = breach(value)
    if wrong:
        raise ContentError(f"JSON cannot hold the value: {wrong}")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def breach(value: Any, depth: int = DEPTH) -> str | None:
    """Why :func:`decode` would not give ``value`` back from strict JSON; None when it would.

    A tuple comes back as a list. Nothing may be deeper than ``depth``.

    >>> breach({"a": [1, None]}), breach([float("nan")]), breach({1: 2})
    (None, 'nan is not a number of JSON', 'the key 1 is not text')
    """
    return _breach(value, depth, depth)


def _breach(value: Any, left: int, depth: int) -> str | None:
    match value:
        case None | bool():
            return None
        case int():
            return None if value.bit_length() <= _BITS else f"an integer of {value.bit_length()} bits is too long"
        case float():
            return None if isfinite(value) else f"{value} is not a number of JSON"
        case str():
            return utf8_breach(value)
        case list() | tuple() | Mapping() if not left:
            return f"nested deeper than {depth}"
        case list() | tuple():
            return next(filter(None, (_breach(item, left - 1, depth) for item in value)), None)
        case Mapping():
            keys = (utf8_breach(key) if isinstance(key, str) else f"the key {key!r} is not text" for key in value)
            items = (_breach(item, left - 1, depth) for item in value.values())
            return next(filter(None, chain(keys, items)), None)
    return f"JSON holds no {type(value).__name__}"


class _Unusual(Exception):
    """The standard library met something that only the tape can locate."""


def _build(tape: Tape) -> tuple[Any, list[Duplicate]]:
    """Decode the value and find duplicate keys: by the standard library, or token by token to name a place."""
    try:
        return json.loads(tape.data, object_pairs_hook=_make_object, parse_float=_parse_finite), []
    except (_Unusual, RecursionError, ValueError):  # ValueError: an integer of too many digits
        return _build_by_token(tape)


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Unusual
    return found


def _parse_finite(text: str) -> float:
    value = float(text)
    if value - value != 0:  # infinite
        raise _Unusual
    return value


def _build_by_token(tape: Tape) -> tuple[Any, list[Duplicate]]:
    """Build the value token by token, without recursion."""
    duplicates: list[Duplicate] = []
    top: list[Any] = []
    open_: list[tuple[Any, int]] = [(top, len(tape))]  # containers around the token, and where each ends
    paths = [""]  # the path of each open container
    key = ""
    for index, (kind, start, end, link) in enumerate(tape.rows()):
        while open_[-1][1] <= index:
            open_.pop()
            paths.pop()
        inside = open_[-1][0]
        if kind & KIND == KEY:
            key = _unescape(tape.data, kind, start, end)
            if key in inside:
                duplicates.append(Duplicate(inner_path(paths[-1], member_path(key)), start - 1))
            continue
        value = _make_value(tape, index, kind, start, end)
        if kind & KIND in (OBJECT, ARRAY):
            step = member_path(key) if isinstance(inside, dict) else f"[{len(inside)}]"
            paths.append(inner_path(paths[-1], step) if inside is not top else "$")
            open_.append((value, link))
        if isinstance(inside, dict):
            inside[key] = value
        else:
            inside.append(value)
    return top[0], duplicates


def _make_value(tape: Tape, index: int, kind: int, start: int, end: int) -> Any:
    """Make the value of a token; a container is made empty."""
    match kind & KIND:
        case tokens.OBJECT:
            return {}
        case tokens.ARRAY:
            return []
        case tokens.STRING:
            return _unescape(tape.data, kind, start, end)
        case tokens.INT:
            digits = end - start - tape.data.startswith(b"-", start)
            if digits > DIGITS:
                raise DocumentError(start, f"an integer of {digits} digits is too long", tape.path(index))
            return int(tape.data[start:end])
        case tokens.FLOAT:
            number = float(tape.data[start:end])
            if number - number != 0:
                shown = tape.data[start : min(end, start + 40)].decode()
                raise DocumentError(start, f"{shown} is beyond the range of float64", tape.path(index))
            return number
        case constant:
            return _CONSTANTS[constant]


def _unescape(data: bytes, kind: int, start: int, end: int) -> str:
    if kind & ESCAPED:
        text: str = json.loads(data[start - 1 : end + 1])
        return text
    return data[start:end].decode()


def _split_path(path: str) -> Iterator[tuple[str | None, int | None]]:
    """Split a path into steps: (key, None) or (None, index)."""
    at = 1
    if not path.startswith("$"):
        raise KeyError(path)
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            raise KeyError(path)
        if step[2] is not None:
            yield None, int(step[2])
        else:
            yield (step[1] if step[1] is not None else json.loads(step[3])), None
        at = step.end()


def _describe(data: bytes, at: int, reason: str, depth: int) -> str:
    if reason == "nested too deep":
        return f"nested deeper than {depth}"
    found = f", not {chr(data[at])!r}" if at < len(data) and data[at] < 0x80 and reason.endswith("expected") else ""
    return reason + found


def _find_path(data: bytes, tape: bytearray) -> str:
    """Find the path of the value at which the tape of a broken document ends."""
    import numpy as np

    table = np.frombuffer(tape, "<u4").reshape(-1, 4)
    containers = np.flatnonzero(np.isin(table[:, 0] & KIND, (OBJECT, ARRAY)) & (table[:, 2] == 0))  # still open
    path = "$"
    for index, inner in pairwise([*containers.tolist(), len(table)]):
        depth = (int(table[index, 0]) >> tokens.DEPTH_SHIFT) + 1
        before = index + 1 + np.flatnonzero(table[index + 1 : inner, 0] >> tokens.DEPTH_SHIFT == depth)
        if int(table[index, 0]) & KIND == ARRAY:
            path += f"[{len(before)}]"
            continue
        keys = before[(table[before, 0] & KIND) == KEY]
        if len(keys):
            kind, start, end, _ = table[keys[-1]].tolist()
            path += member_path(_unescape(data, kind, start, end))
    return path
