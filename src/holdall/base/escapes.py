"""Escapes in Python's literals of text and of bytes, decoded without evaluating anything and without its warnings."""

from __future__ import annotations

import re

__all__ = ["decode_escapes"]

_ESCAPE = re.compile(
    r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|N\{([^{}]+)\}|(.?))", re.DOTALL
)
_BYTE_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{2})|()()()(.?))", re.DOTALL)
_SIMPLE = {"\n": ""} | dict(zip("abfnrtv\\'\"", "\a\b\f\n\r\t\v\\'\"", strict=True))


def decode_escapes(text: str, *, as_bytes: bool = False) -> str:
    r"""Decode the escapes of what stands between quotes. A backslash before any other letter stands for itself.

    ``as_bytes`` decodes a literal of bytes, one letter a byte. An escape that is not complete raises ValueError.

    >>> decode_escapes(r"\x61\u0062\d"), decode_escapes(r"\x61\u0062", as_bytes=True)
    ('ab\\d', 'a\\u0062')
    """
    if "\\" not in text:
        return text

    def decode(escape: re.Match[str]) -> str:
        octal, short, middle, long, name, letter = escape.groups()
        code = short or middle or long
        if octal or code:
            number = int(octal, 8) if octal else int(code, 16)
            if number > 0x10FFFF:
                raise ValueError(f"has the escape {escape[0]}, which is no letter")
            return chr(number & 0xFF if as_bytes else number)
        if name:
            return _find_letter(name)
        if not letter or letter in ("x" if as_bytes else "xuUN"):
            raise ValueError(f"has the escape \\{letter} that is not complete")
        return _SIMPLE.get(letter, escape[0])

    return (_BYTE_ESCAPE if as_bytes else _ESCAPE).sub(decode, text)


def _find_letter(name: str) -> str:
    from unicodedata import lookup

    try:
        letter = lookup(name)
    except KeyError:
        letter = ""
    if len(letter) != 1:  # unknown, or a name of several letters, which Python does not take in a text
        raise ValueError(f"has the escape of a letter {name!r}, which there is not")
    return letter
