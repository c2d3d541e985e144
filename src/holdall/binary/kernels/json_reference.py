"""Strict JSON (RFC 8259) as a tape of tokens, and columns read from a tape: the Python twin of the C tokenizer."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from holdall.binary.kernels.buffers import array_of, bytes_of, check_size, view_of
from holdall.binary.kernels.json_tokens import (
    ABSENT,
    ARRAY,
    DEPTH_SHIFT,
    ESCAPED,
    INT,
    KEY,
    KIND,
    OBJECT,
    STRING,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.binary.kernels.buffers import Bytes

__all__ = ["json_records", "json_tape", "json_uints", "json_words"]

EARLY = "the document ends too early"

_Match: TypeAlias = Callable[[bytes, int], re.Match[bytes] | None]
_SPACE = rb"[ \t\n\r]*+"
_CHARACTERS = (
    rb'(?:[^"\\\x00-\x1f\x80-\xff]++|\\["\\/bfnrt]'
    rb"|\\u(?:[0-9a-cA-CefEF]HHH|[dD][0-7]HH|[dD][89abAB]HH\\u[dD][c-fC-F]HH)"
    rb"|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
    rb"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})*+"
).replace(b"H", b"[0-9a-fA-F]")
_KEY = rb'"(%b)"%b:%b' % (_CHARACTERS, _SPACE, _SPACE)
_WHOLE = rb"-?(?:0|[1-9][0-9]*+)"
_PARTS = rb"(?:\.[0-9]++(?:[eE][+-]?[0-9]++|(?![eE]))|[eE][+-]?[0-9]++)"
_VALUE = rb'(?:({)|(\[)|"(%b)"|(%b(?![.eE]))|(%b%b)|(true)|(false)|(null))' % (_CHARACTERS, _WHOLE, _WHOLE, _PARTS)
# The group of a scalar is its kind. A key is group 1, and the groups of containers come after it.
_END = 10  # the group of the bracket that ends a container


def _compile_step(comma: bytes, key: bytes, end: bytes) -> _Match:
    """A step of the tokenizer: the next member of a container, or the bracket that ends the container."""
    return re.compile(rb"%b(?:%b%b%b|(%b))" % (_SPACE, comma, key, _VALUE, end)).match


# Steps by the kind of the container; 0 is the document, which has one value.
_NEVER = b"(?!)"
_PARTS_OF = {OBJECT: (_KEY, b"}"), ARRAY: (b"()", b"]"), 0: (b"()", _NEVER)}
_FIRST = {kind: _compile_step(b"", *parts) for kind, parts in _PARTS_OF.items()}
_NEXT = {kind: _compile_step(b"," + _SPACE if kind else _NEVER, *parts) for kind, parts in _PARTS_OF.items()}
_SPACES = re.compile(_SPACE)
_STRING_START = re.compile(b'"' + _CHARACTERS)
_NUMBER_START = re.compile(rb"-?(?:0|[0-9]*)(?:(?<=[0-9])\.[0-9]*)?(?:(?<=[0-9])[eE][+-]?[0-9]*)?")
_UNIT = re.compile(rb"\\u[0-9a-fA-F]{4}")


def json_tape(data: Bytes, start: int, stop: int, depth: int, /) -> tuple[bytearray, int, str | None]:
    """Tokenize ``data[start:stop]``. Returns the tape, and where and why it ended early (``None``: it did not).

    Strict: UTF-8 without a byte order mark, no control characters in strings, no half surrogate pairs, no NaN, nothing
    but white space after the value, at most ``depth`` containers inside each other. A document is below 4 GiB.
    """
    check_size(start, stop, depth)
    view = view_of(data)
    if start > stop or stop > len(view):
        raise ValueError(f"no range {start} to {stop} in {len(view)} bytes")
    if stop >= 2**32 - 1 or depth > 2**24 - 2:
        raise ValueError("a document is below 4 GiB and a depth below 2**24")
    document = _Document(bytes(view[:stop]))
    at, reason = document.read(start, depth)
    return document.make_tape(), at, reason


class _Document:
    """The tokens of a document: the kind of each, its start and end, and the links of containers by their index."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.kinds, self.starts, self.ends = array("I"), array("I"), array("I")
        self.links: dict[int, int] = {}

    def make_tape(self) -> bytearray:
        tape = np.empty((len(self.kinds), 4), np.uint32)
        tape[:, 0], tape[:, 1], tape[:, 2] = self.kinds, self.starts, self.ends
        tape[:, 3] = np.arange(1, len(tape) + 1)
        tape[list(self.links), 3] = list(self.links.values())
        escapes = np.flatnonzero(np.frombuffer(self.data, np.uint8) == ord("\\"))
        if escapes.size:
            has_escapes = np.searchsorted(escapes, tape[:, 1]) != np.searchsorted(escapes, tape[:, 2])
            tape[has_escapes & np.isin(tape[:, 0] & KIND, (KEY, STRING)), 0] |= ESCAPED
        return bytearray(tape)

    def read(self, at: int, max_depth: int) -> tuple[int, str | None]:
        """Read the tokens of the document at ``at``: its end, or where and why it is wrong."""
        data, kinds, starts, ends, links = self.data, self.kinds, self.starts, self.ends, self.links
        if data.startswith(b"\xef\xbb\xbf", at):
            return at, "a byte order mark"
        outer: list[int] = []  # the containers around the innermost one
        container, inside, depth = 0, 0, 0  # the innermost container and its kind; the depth as in the tape
        match, match_next = _FIRST[0], _NEXT[0]
        while step := match(data, at):
            at, group = step.end(), step.lastindex or 0
            match = match_next
            if group == _END:
                ends[container] = at
                links[container] = len(kinds)
                container = outer.pop()
                depth -= 1 << DEPTH_SHIFT
                inside = kinds[container] & KIND if depth else 0
                match = match_next = _NEXT[inside]
                continue
            if inside == OBJECT:
                kinds.append(KEY | depth)
                starts.append(step.start(1))
                ends.append(step.end(1))
            if group >= STRING:
                kinds.append(group | depth)
                starts.append(step.start(group))
                ends.append(step.end(group))
                continue
            if len(outer) >= max_depth:
                return at - 1, "nested too deep"
            outer.append(container)
            links[len(kinds)] = container  # until its end is known
            container, inside = len(kinds), group - 1
            match, match_next = _FIRST[inside], _NEXT[inside]
            kinds.append(inside | depth)
            starts.append(at - 1)
            ends.append(0)
            depth += 1 << DEPTH_SHIFT
        return self.explain(at, container, depth)

    def explain(self, at: int, container: int, depth: int) -> tuple[int, str | None]:
        """Look closely at the place where no step fits: where the document is wrong, and why."""
        data, at = self.data, _end_of(_SPACES, self.data, at)
        inside = self.kinds[container] & KIND if depth else 0
        if not inside and self.kinds:
            return at, "something follows the document" if at < len(data) else None
        try:
            if inside and container != len(self.kinds) - 1:  # not the first member
                if data[at] != ord(","):
                    return at, f"a comma or {'}' if inside == OBJECT else ']'} is expected"
                at = _end_of(_SPACES, data, at + 1)
            if inside == OBJECT:
                if data[at] != ord('"'):
                    return at, "a key is expected"
                quote, at = at, _end_of(_STRING_START, data, at)
                if data[at] != ord('"'):
                    return at, self.explain_character(at)
                self.kinds.append(KEY | depth)
                self.starts.append(quote + 1)
                self.ends.append(at)
                at = _end_of(_SPACES, data, at + 1)
                if data[at] != ord(":"):
                    return at, "a colon is expected"
                at = _end_of(_SPACES, data, at + 1)
            if data[at] == ord('"'):
                at = _end_of(_STRING_START, data, at)
                return at, self.explain_character(at)
            if data[at] not in b"-0123456789":
                return at, "a value is expected"
            at = _end_of(_NUMBER_START, data, at)
            return at, "a digit is expected" if at < len(data) else EARLY
        except IndexError:
            return len(data), EARLY

    def explain_character(self, at: int) -> str:
        """Why the character at ``at`` cannot be in a string; IndexError if the document ends before that is known."""
        first = self.data[at]
        if first != ord("\\"):
            return "a control character in a string" if first < 0x20 else "not UTF-8"
        if self.data[at + 1] != ord("u"):
            return "no such escape"
        if at + 6 > len(self.data):
            raise IndexError
        return "half of a surrogate pair" if _UNIT.match(self.data, at) else "no such escape"


def _end_of(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    """The end of what a pattern that always fits finds at ``at``."""
    found = pattern.match(data, at)
    assert found is not None
    return found.end()


def json_records(data: Bytes, tape: Bytes, at: int, fields: tuple[bytes, ...], /) -> bytearray:
    """The members of the object at index ``at`` of the tape, as rows of ``3 + len(fields)`` uint32.

    A row holds the index of the key, of the value, and of the value of each field (0: the field is absent). Its last
    number is the index of the first odd token: a value that is not an object, or a key that is not a field, has escapes
    or comes again (0: there is none).
    """
    tokens = array_of(tape, "u4").reshape(-1, 4)
    if at >= len(tokens) or tokens[at, 0] & KIND != OBJECT:
        return bytearray()
    first, end, depth = at + 1, int(tokens[at, 3]), int(tokens[at, 0]) >> DEPTH_SHIFT
    kinds = tokens[first:end, 0] & ~np.uint32(ESCAPED)
    keys, inner = (first + np.flatnonzero(kinds == KEY | depth + more << DEPTH_SHIFT) for more in (1, 2))
    rows = np.zeros((len(keys), 3 + len(fields)), np.uint32)
    rows[:, 0], rows[:, 1] = keys, keys + 1
    row_of = np.searchsorted(keys, inner) - 1
    fields_of = _find_words(data, tokens[inner], fields)
    _, places = np.unique(row_of * (len(fields) + 1) + fields_of, return_index=True)  # where each comes first
    is_field = np.isin(np.arange(len(inner)), places) & (fields_of >= 0)
    rows[row_of[is_field], 2 + fields_of[is_field]] = inner[is_field] + 1
    odd = np.flatnonzero(~is_field)[::-1]  # backwards: the first of a row is written last
    rows[row_of[odd], -1] = inner[odd]
    other = tokens[keys + 1, 0] & KIND != OBJECT
    rows[other, -1] = keys[other] + 1
    return bytearray(rows)


def _find_words(data: Bytes, tokens: NDArray[np.uint32], words: tuple[bytes, ...]) -> NDArray[np.intp]:
    """The place among ``words`` of each string or key without escapes; -1 if it is none of them."""
    view, found = array_of(data, "u1"), np.full(len(tokens), -1, np.intp)
    sizes = np.where(tokens[:, 0] & ESCAPED, -1, tokens[:, 2].astype(np.int64) - tokens[:, 1])
    for place, word in reversed(list(enumerate(words))):
        rows = np.flatnonzero(sizes == len(word))
        texts = view[tokens[rows, 1, None] + np.arange(len(word))]
        found[rows[(texts == np.frombuffer(word, np.uint8)).all(axis=1)]] = place
    return found


def json_uints(data: Bytes, tape: Bytes, indexes: Bytes, counts: Bytes, values: Bytes, /) -> tuple[int, int]:
    """Read the arrays of integers from 0 to 2**64 - 1 at ``indexes`` (uint32) of the tape.

    ``counts`` (uint64) receives the length of each, ``values`` (uint64) the elements, one array after the other.
    Returns the number of elements, and the first row that is not such an array or does not fit, or -1.
    """
    text, tokens, rows = bytes_of(data), view_of(tape).cast("I"), view_of(indexes).cast("I")
    lengths, out = view_of(counts, writable=True).cast("Q"), view_of(values, writable=True).cast("Q")
    if len(rows) != len(lengths):
        raise ValueError("indexes are uint32, counts as many uint64, values uint64")
    used, room = 0, len(out)
    for row, index in enumerate(rows):
        if 4 * index >= len(tokens) or tokens[4 * index] & KIND != ARRAY:
            return used, row
        place = used
        for token in range(4 * index + 4, 4 * tokens[4 * index + 3], 4):
            digits = text[tokens[token + 1] : tokens[token + 2]]
            if place == room or tokens[token] & KIND != INT or len(digits) > 20 or digits[0] == ord("-"):
                return used, row
            number = int(digits)
            if number >> 64:
                return used, row
            out[place] = number
            place += 1
        lengths[row] = place - used
        used = place
    return used, -1


def json_words(data: Bytes, tape: Bytes, indexes: Bytes, words: tuple[bytes, ...], out: Bytes, /) -> None:
    """Find each string at ``indexes`` (uint32) of the tape among ``words``: its place there, or ABSENT, as one byte."""
    tokens = array_of(tape, "u4").reshape(-1, 4)
    rows, codes = array_of(indexes, "u4"), array_of(out, "u1", writable=True)
    if rows.size != codes.size:
        raise ValueError("indexes are uint32, and codes as many bytes")
    found = np.concatenate([tokens, np.zeros((1, 4), np.uint32)])[np.minimum(rows, len(tokens))]
    places = _find_words(data, found, words)
    codes[:] = np.where((found[:, 0] & KIND == STRING) & (places >= 0), places, ABSENT)
