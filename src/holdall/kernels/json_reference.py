"""Strict JSON (RFC 8259) as a tape of tokens: the readable twin of the C tokenizer, and the columns read off a tape.

A tape is a buffer of tokens in document order, four uint32 each::

    kind   the low 4 bits are one of the constants below, ESCAPED marks a string with escapes,
           and from bit 8 on it says how many containers are open around the token
    start  of a string: after its opening quote
    end    of a string: at its closing quote
    link   the index after this value and everything inside it: the next sibling, or the end of the container

An object is followed by KEY, value, KEY, value, ...; an array by its values.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from holdall.kernels.buffers import array_of, check_size, view_of

if TYPE_CHECKING:
    from holdall.kernels.buffers import Bytes

__all__ = ["json_records", "json_tape", "json_uints", "json_words"]

OBJECT, ARRAY, KEY, STRING, INT, FLOAT, TRUE, FALSE, NULL = range(1, 10)
KIND, ESCAPED, DEPTH_SHIFT = 15, 16, 8
ABSENT = 255  # of json_words: none of the words

EARLY = "the document ends too early"

_SPACE = re.compile(rb"[ \t\n\r]*")
_PLAIN = re.compile(rb'[^"\\\x00-\x1f\x80-\xff]*')
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NUMBER_START = re.compile(rb"-?(?:0|[0-9]*)(?:(?<=[0-9])\.[0-9]*)?(?:(?<=[0-9])[eE][+-]?[0-9]*)?")
_UNIT = re.compile(rb"\\u([0-9a-fA-F]{4})")
_UTF8 = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
    rb"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
)
_WORDS = {b"t": (b"true", TRUE), b"f": (b"false", FALSE), b"n": (b"null", NULL)}


class _Wrong(Exception):
    """What is wrong, and where."""


def json_tape(data: Bytes, start: int, stop: int, depth: int, /) -> tuple[bytearray, int, str | None]:
    """Tokenize ``data[start:stop]``: the tape, and where and why it ended early (``None``: it did not).

    Strict: UTF-8 without a byte order mark, no control characters in strings, no half surrogate pairs, no NaN, nothing
    but white space after the value, at most ``depth`` containers inside each other. A document is below 4 GiB.
    """
    check_size(start, stop, depth)
    view = view_of(data)
    if start > stop or stop > len(view):
        raise ValueError(f"no range {start} to {stop} in {len(view)} bytes")
    if stop >= 2**32 - 1 or depth > 2**24 - 2:
        raise ValueError("a document is below 4 GiB and a depth below 2**24")
    walk = _Walk(bytes(view[:stop]), depth)
    at, reason = stop, None
    try:
        walk.document(start)
    except _Wrong as wrong:
        at, reason = wrong.args
    return bytearray(np.array(walk.tokens, np.uint32).tobytes()), at, reason


class _Walk:
    """One document. ``open`` holds the indexes of the containers around the place reached."""

    def __init__(self, data: bytes, depth: int) -> None:
        self.data = data
        self.max_depth = depth
        self.tokens: list[list[int]] = []
        self.open: list[int] = []

    def put(self, kind: int, start: int, end: int) -> None:
        self.tokens.append([kind | len(self.open) << DEPTH_SHIFT, start, end, len(self.tokens) + 1])

    def space(self, at: int) -> int:
        match = _SPACE.match(self.data, at)
        assert match is not None
        return match.end()

    def must_go_on(self, at: int) -> int:
        """Where the next character is; there must be one."""
        at = self.space(at)
        if at >= len(self.data):
            raise _Wrong(len(self.data), EARLY)
        return at

    def document(self, at: int) -> None:
        if self.data.startswith(b"\xef\xbb\xbf", at):
            raise _Wrong(at, "a byte order mark")
        at = self.value(self.must_go_on(at))
        while self.open:
            at = self.member(self.must_go_on(at))
        at = self.space(at)
        if at < len(self.data):
            raise _Wrong(at, "something follows the document")

    def member(self, at: int) -> int:
        """The next member of the innermost container, or its end."""
        container = self.tokens[self.open[-1]]
        is_object = container[0] & KIND == OBJECT
        bracket = b"}" if is_object else b"]"
        empty = self.open[-1] == len(self.tokens) - 1
        found = self.data[at : at + 1]
        if found == bracket:
            self.open.pop()
            container[2:] = at + 1, len(self.tokens)
            return at + 1
        if not empty:
            if found != b",":
                raise _Wrong(at, f"a comma or {bracket.decode()} is expected")
            at = self.must_go_on(at + 1)
        return self.value(self.key(at) if is_object else at)

    def key(self, at: int) -> int:
        """The key at ``at``; returns where its value is."""
        if self.data[at] != ord('"'):
            raise _Wrong(at, "a key is expected")
        at = self.must_go_on(self.string(at, KEY))
        if self.data[at] != ord(":"):
            raise _Wrong(at, "a colon is expected")
        return self.must_go_on(at + 1)

    def value(self, at: int) -> int:
        """The scalar at ``at``, or the start of the container there; returns the place after it."""
        data, first = self.data, self.data[at : at + 1]
        if first == b'"':
            return self.string(at, STRING)
        if first in (b"{", b"["):
            if len(self.open) >= self.max_depth:
                raise _Wrong(at, "nested too deep")
            self.put(OBJECT if first == b"{" else ARRAY, at, 0)
            self.tokens[-1][3] = self.open[-1] if self.open else 0
            self.open.append(len(self.tokens) - 1)
            return at + 1
        if first in _WORDS:
            word, kind = _WORDS[first]
            if not data.startswith(word, at):
                raise _Wrong(at, "a value is expected")
            self.put(kind, at, at + len(word))
            return at + len(word)
        if first not in b"-0123456789":
            raise _Wrong(at, "a value is expected")
        return self.number(at)

    def number(self, at: int) -> int:
        longest = _NUMBER_START.match(self.data, at)
        assert longest is not None
        number = _NUMBER.fullmatch(self.data, at, longest.end())
        if number is None:
            raise _Wrong(longest.end(), EARLY if longest.end() >= len(self.data) else "a digit is expected")
        self.put(INT if number[1] is number[2] is None else FLOAT, at, number.end())
        return number.end()

    def string(self, quote: int, kind: int) -> int:
        """The string whose opening quote is at ``quote``; returns the place after its closing one."""
        data, at = self.data, quote + 1
        while True:
            plain = _PLAIN.match(data, at)
            assert plain is not None
            at = plain.end()
            if at >= len(data):
                raise _Wrong(len(data), EARLY)
            byte = data[at]
            if byte == ord('"'):
                self.put(kind, quote + 1, at)
                return at + 1
            if byte == ord("\\"):
                kind |= ESCAPED
                at += self.escape(at)
            elif byte < 0x20:
                raise _Wrong(at, "a control character in a string")
            else:
                sequence = _UTF8.match(data, at)
                if sequence is None:
                    raise _Wrong(at, "not UTF-8")
                at = sequence.end()

    def escape(self, at: int) -> int:
        """Bytes of the escape at ``at``."""
        data = self.data
        if at + 1 >= len(data):
            raise _Wrong(len(data), EARLY)
        if data[at + 1] in b'"\\/bfnrt':
            return 2
        if data[at + 1] != ord("u"):
            raise _Wrong(at, "no such escape")
        if at + 6 > len(data):
            raise _Wrong(len(data), EARLY)
        unit = _UNIT.match(data, at)
        if unit is None:
            raise _Wrong(at, "no such escape")
        code = int(unit[1], 16)
        if not 0xD800 <= code <= 0xDFFF:
            return 6
        second = _UNIT.match(data, at + 6) if code < 0xDC00 else None
        if second is None or not 0xDC00 <= int(second[1], 16) <= 0xDFFF:
            raise _Wrong(at, "half of a surrogate pair")
        return 12


def json_records(data: Bytes, tape: Bytes, at: int, fields: tuple[bytes, ...], /) -> bytearray:
    """The members of the object at index ``at`` of the tape, as rows of ``3 + len(fields)`` uint32.

    A row holds the index of the key, that of the value, the value of each field (0: the field is absent), and the first
    thing out of the ordinary: a value that is no object, or a key that is no field, has escapes or comes again (0:
    nothing is).
    """
    view, tokens = view_of(data), array_of(tape, "<u4").reshape(-1, 4).tolist()
    rows = []
    for key, value in _members(tokens, at):
        found = dict.fromkeys(fields, 0)
        odd = 0 if tokens[value][0] & KIND == OBJECT else value
        for inner_key, inner_value in () if odd else _members(tokens, value):
            kind, start, end, _ = tokens[inner_key]
            text = None if kind & ESCAPED else bytes(view[start:end])
            if text not in found or found[text]:
                odd = odd or inner_key
            else:
                found[text] = inner_value
        rows.append([key, value, *found.values(), odd])
    return bytearray(np.array(rows, np.uint32).tobytes())


def _members(tokens: list[list[int]], at: int) -> list[tuple[int, int]]:
    """Key and value of every member of the object at ``at``."""
    if at >= len(tokens) or tokens[at][0] & KIND != OBJECT:
        return []
    end, found = tokens[at][3], []
    at += 1
    while at < end:
        found.append((at, at + 1))
        at = tokens[at + 1][3]
    return found


def json_uints(data: Bytes, tape: Bytes, indexes: Bytes, counts: Bytes, values: Bytes, /) -> tuple[int, int]:
    """Read arrays of integers from 0 to 2**64 - 1: those at ``indexes`` (uint32) of the tape.

    ``counts`` (uint64) gets the length of each, ``values`` (uint64) all their elements, one array after the other.
    Returns how many elements that are, and the first row that is no such array or has no room, or -1.
    """
    view, tokens = view_of(data), array_of(tape, "<u4").reshape(-1, 4)
    rows, lengths = array_of(indexes, "<u4").tolist(), array_of(counts, "<u8", writable=True)
    out = array_of(values, "<u8", writable=True)
    if len(rows) != lengths.size:
        raise ValueError("indexes are uint32, counts as many uint64, values uint64")
    used = 0
    for row, index in enumerate(rows):
        if index >= len(tokens) or tokens[index, 0] & KIND != ARRAY:
            return used, row
        inner = tokens[index + 1 : int(tokens[index, 3])].tolist()
        if len(inner) > out.size - used or any(kind & KIND != INT for kind, *_ in inner):
            return used, row
        for place, (_, start, end, _) in enumerate(inner, used):
            digits = bytes(view[start:end])
            if digits.startswith(b"-") or len(digits) > 20 or int(digits) >> 64:
                return used, row
            out[place] = int(digits)
        lengths[row] = len(inner)
        used += len(inner)
    return used, -1


def json_words(data: Bytes, tape: Bytes, indexes: Bytes, words: tuple[bytes, ...], out: Bytes, /) -> None:
    """Which of ``words`` each string at ``indexes`` (uint32) of the tape is: its place, or ABSENT, as one byte."""
    view, tokens = view_of(data), array_of(tape, "<u4").reshape(-1, 4).tolist()
    rows, codes = array_of(indexes, "<u4").tolist(), array_of(out, "u1", writable=True)
    if len(rows) != codes.size:
        raise ValueError("indexes are uint32, and codes as many bytes")
    places = {word: place for place, word in reversed(list(enumerate(words)))}
    for row, index in enumerate(rows):
        kind, start, end, _ = tokens[index] if index < len(tokens) else (0, 0, 0, 0)
        codes[row] = places.get(bytes(view[start:end]), ABSENT) if kind & (KIND | ESCAPED) == STRING else ABSENT
