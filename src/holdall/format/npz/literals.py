"""Python literals, parsed as ``ast.literal_eval`` does, without evaluating or compiling anything."""

from __future__ import annotations

import re
from typing import Any

from holdall.base.escapes import decode_escapes

__all__ = ["LiteralError", "parse_literal"]

_TOKEN = re.compile(
    r"\s*(?:([{}\[\](),:])|(True|False|None)\b|(\d{1,30})L?\b|"
    r"[uUb]?'((?:[^'\\\n]|\\.)*)'|[uUb]?\"((?:[^\"\\\n]|\\.)*)\")",
    re.DOTALL,
)
_DEPTH = 16


class LiteralError(Exception):
    """A text is not a literal: why, and at which letter."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


def parse_literal(text: str) -> Any:
    """Parse ``text``: dicts, lists, tuples, text, integers, True, False and None are allowed, and nothing else.

    >>> parse_literal("{'a': [(1, 'b\\\\n')]}")
    {'a': [(1, 'b\\n')]}
    """
    tokens: list[tuple[str, Any, int]] = []
    at = 0
    body = text.rstrip()
    while (match := _TOKEN.match(body, at)) is not None:  # tried only where the last one ended, so in linear time
        sign, word, number, single, double = match.groups()
        if sign:
            tokens.append((sign, None, at))
        elif number:
            tokens.append(("value", int(number), at))
        elif word:
            tokens.append(("value", {"True": True, "False": False, "None": None}[word], at))
        else:
            tokens.append(("value", _decode_text(single if single is not None else double, at), at))
        at = match.end()
    if at != len(body):
        raise LiteralError("holds something that is not a literal", at)
    tokens.append(("end", None, at))
    tokens.reverse()
    value = _parse_value(tokens, 0)
    if tokens[-1][0] != "end":
        raise LiteralError("goes on after its end", tokens[-1][2])
    return value


def _parse_value(tokens: list[tuple[str, Any, int]], depth: int) -> Any:
    """Parse the value at the end of ``tokens``, which are in reverse order and are taken off."""
    kind, value, at = tokens.pop()
    if kind == "value":
        return value
    close = {"(": ")", "[": "]", "{": "}"}.get(kind)
    if close is None or depth > _DEPTH:
        raise LiteralError("is not made of literals" if close is None else "is nested too deeply", at)
    items: list[Any] = []
    keys: set[str] = set()
    commas = 0
    while tokens[-1][0] != close:
        item = tokens.pop()[1] if tokens[-1][0] == "value" else _parse_value(tokens, depth + 1)
        if kind == "{":
            if tokens[-1][0] != ":" or not isinstance(item, str) or item in keys:
                raise LiteralError("has a key that is not text, or twice", tokens[-1][2])
            keys.add(item)
            tokens.pop()
            item = (item, _parse_value(tokens, depth + 1))
        items.append(item)
        if tokens[-1][0] == ",":
            commas += 1
            tokens.pop()
        elif tokens[-1][0] != close:
            raise LiteralError("lacks a comma or its end", tokens[-1][2])
    tokens.pop()
    if kind == "{":
        return dict(items)
    return items if kind == "[" else tuple(items) if commas or not items else items[0]


def _decode_text(text: str, at: int) -> str:
    try:
        return decode_escapes(text)
    except ValueError as error:
        raise LiteralError(str(error), at) from None
