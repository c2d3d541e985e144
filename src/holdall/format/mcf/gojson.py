"""JSON as Go's encoding/json reads and writes untyped values, as the format's packer does with tokenizer_config.json.

Numbers are float64, keys are sorted by bytes at every level, and characters that are special in HTML are escaped.
"""

from __future__ import annotations

import codecs
import json
import re
from decimal import Decimal
from math import isinf
from typing import Any

__all__ = ["SPACE", "dump", "parse", "text_of"]

SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))

_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile('["\\\\\x00-\x1f&<>\u2028\u2029\ud800-\udfff]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _replace_byte(error: UnicodeError) -> tuple[str, int]:
    """Return one replacement character for each byte that is not UTF-8, as in Go; Python's handler joins some bytes."""
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd", error.start + 1


codecs.register_error("holdall.go", _replace_byte)


def _parse_number(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise ValueError(f"the number {text[:40]} is out of range")
    return value


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def parse(data: bytes) -> Any:
    """Parse the document in ``data``; raises ValueError when it is not JSON."""
    try:
        value = json.loads(
            data.decode("utf-8", "holdall.go"),
            parse_int=_parse_number,
            parse_float=_parse_number,
            parse_constant=_refuse_constant,
        )
        return _replace_surrogates(value)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _replace_surrogates(value: Any) -> Any:
    """Return ``value`` with U+FFFD for lone surrogates."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()}
    return value


def text_of(data: bytes) -> str:
    """A text file as a string; :func:`dump` escapes the bytes in it that are not UTF-8."""
    return data.decode("utf-8", "surrogateescape")


def dump(value: Any) -> bytes:
    """The compact form of ``value``.

    >>> dump({"b": 2.0, "a": ["<", 1e21]})
    b'{"a":["\\\\u003c",1e+21],"b":2}'
    """
    return "".join(_dump_pieces(value)).encode()


def _dump_pieces(value: Any) -> list[str]:
    if value is None or isinstance(value, bool):
        return [{None: "null", True: "true", False: "false"}[value]]
    if isinstance(value, float):
        return [_format_number(value)]
    if isinstance(value, str):
        return [_quote(value)]
    pieces: list[str] = []
    if isinstance(value, list):
        for item in value:
            pieces += [",", *_dump_pieces(item)]
        return ["[", *pieces[1:], "]"]
    for key in sorted(value):  # code point order is the byte order of UTF-8
        pieces += [",", _quote(key), ":", *_dump_pieces(value[key])]
    return ["{", *pieces[1:], "}"]


def _quote(text: str) -> str:
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    if char in _SHORT:
        return _SHORT[char]
    return "\\ufffd" if "\ud800" <= char <= "\udfff" else f"\\u{ord(char):04x}"


def _format_number(value: float) -> str:
    """Format the shortest digits that parse to the number, with an exponent when it is very small or very large."""
    if value == 0 or 1e-6 <= abs(value) < 1e21:
        plain = f"{Decimal(repr(value)):f}"
        return plain.removesuffix(".0") if "." in plain else plain
    digits, _, exponent = f"{Decimal(repr(value)).normalize():e}".partition("e")
    return f"{digits}e{exponent}"
