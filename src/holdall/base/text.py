"""Text for people: names that are safe for a terminal, and short numbers. No other module makes either."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice
from typing import Any

__all__ = ["brief", "clean", "count_text", "file_text", "html_text", "json_count", "list_text", "markdown_text"]
__all__ += ["percent", "plain", "plural", "shape_text", "shorten"]
__all__ += ["size_text", "value_text"]

_WORD = 200  # letters of a word in a message
_PRINTED = 1000  # bits; a larger number is printed as a power of two


def file_text(path: str | bytes | os.PathLike[str]) -> str:
    """The name of a source or target as every message shows it: safe for a terminal, a URL without its secrets.

    >>> file_text("https://me:secret@host/model.oinf?token=abc"), file_text("a\\x1b[31mb")
    ('https://host/model.oinf', 'a\\\\x1b[31mb')
    """
    name = os.fsdecode(path)
    if "://" not in name:
        return clean(name)
    from holdall.base.urls import hide_secrets

    return clean(hide_secrets(name))


_PIPE, _TICK = "\\x7c", "\\x60"
_LONGEST = 2000  # letters of a text that are shown; JSON output has all
_LEVELS = 60  # of a nested value that are shown
_DECIMAL = 4000  # bits of a number that is written in decimal digits


def clean(text: str) -> str:
    """Return ``text`` with everything escaped that could control a terminal: controls, escapes, bidi overrides.

    Text that is longer than any sensible name is cut, so that no file floods the screen.

    >>> clean("a\\x1b[31mb"), clean("x\\u202ey"), clean("Größe 模型")
    ('a\\\\x1b[31mb', 'x\\\\u202ey', 'Größe 模型')
    """
    shown = _escape_controls(text[: _LONGEST + 1])
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


def _escape_controls(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def html_text(text: str) -> str:
    """Return ``text`` for a page, whole: markup is escaped, and so is what controls, which HTML and XML cannot hold.

    >>> html_text("<b>\\x1b\\u202e'")
    '&lt;b&gt;\\\\x1b\\\\u202e&#x27;'
    """
    from html import escape

    return escape(_escape_controls(text))


def markdown_text(text: str) -> str:
    """Return ``text`` for Markdown, whole, as code, in which there is no markup, link or HTML.

    Two letters would end the code or the cell of a table, and are written as controls are.

    >>> markdown_text("a|b <b> `c`"), markdown_text("")
    ('`a\\\\x7cb <b> \\\\x60c\\\\x60`', '` `')
    """
    return f"`{_escape_controls(text).replace('|', _PIPE).replace('`', _TICK) or ' '}`"


def brief(text: str) -> str:
    """A message, cleaned, with long words cut: names from files can have any length.

    >>> brief("there is no tensor " + "n" * 5000) == "there is no tensor " + "n" * 200 + "…"
    True
    """
    words = (word if len(word) <= _WORD else word[:_WORD] + "…" for word in clean(text).split(" "))
    return " ".join(words)


def shorten(text: str, width: int) -> str:
    """At most ``width`` characters of ``text``, cleaned; an ellipsis shows that it was cut.

    >>> shorten("abcdef", 4)
    'abc…'
    """
    shown = clean(text[: width + 1])
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def size_text(count: int) -> str:
    """A number of bytes, in powers of ten.

    >>> size_text(999), size_text(1_234_567), size_text(999_999_999)
    ('999 B', '1.23 MB', '1.00 GB')
    """
    return _scale_count(count, ("B", "kB", "MB", "GB", "TB", "PB", "EB"), " ")


def count_text(count: int) -> str:
    """Return a number of things.

    >>> count_text(999), count_text(124_439_808), count_text(7_000_000_000)
    ('999', '124M', '7.00B')
    """
    return _scale_count(count, ("", "k", "M", "B", "T"), "")


def json_count(count: int) -> int | None:
    """A number for JSON; None if it has hundreds of digits, as counts of hostile shapes may.

    >>> json_count(2**70), json_count(2**20000)
    (1180591620717411303424, None)
    """
    return count if count.bit_length() <= _PRINTED else None


def _scale_count(count: int, units: Sequence[str], gap: str) -> str:
    if count < 1000:
        return f"{count}{gap}{units[0]}"
    if count.bit_length() > _PRINTED:
        return f"about 2^{count.bit_length() - 1}{gap}{units[0]}"
    unit = 0
    value: float = count
    while value >= 999.5 and unit < len(units) - 1:
        value /= 1000
        unit += 1
    if value >= 999.5:  # beyond the last unit, as counts of hostile shapes may be
        return f"{value:.2e}{gap}{units[unit]}"
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}{gap}{units[unit]}"


def percent(part: int, whole: int) -> str:
    """A part of a whole in percent.

    >>> percent(1, 3)
    '33.3%'
    """
    return f"{100 * part / whole:.1f}%" if whole else "0.0%"


def plural(count: int, noun: str, several: str = "") -> str:
    """A number with the noun that it counts.

    >>> plural(1, "tensor"), plural(12345, "tensor"), plural(2, "entry", "entries")
    ('1 tensor', '12,345 tensors', '2 entries')
    """
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def list_text(items: Sequence[str], separator: str = ", ", most: int = 10) -> str:
    """List the first ``most`` of ``items``, and how many more there are.

    >>> list_text(["a", "b", "c"]), list_text(["a", "b", "c"], most=2), list_text(["a", "b", "c"], "; ", 1)
    ('a, b, c', 'a, b and 1 more', 'a; and 2 more')
    """
    rest = len(items) - most
    joint = " and " if separator == ", " else f"{separator}and "
    return separator.join(items[:most]) + (f"{joint}{rest:,} more" if rest > 0 else "")


def shape_text(shape: Sequence[int], most: int = 16) -> str:
    """Dims in brackets, at most ``most`` of them.

    >>> shape_text((2, 3)), shape_text(())
    ('[2, 3]', '[]')
    """
    shown = ", ".join(map(str, shape[:most]))
    return f"[{shown}, … {len(shape)} dims]" if len(shape) > most else f"[{shown}]"


def value_text(value: Any, width: int, levels: int = _LEVELS) -> str:
    """A metadata value on one line: text itself, arrays by type, shape and first values, bytes by their number.

    What lies ``levels`` deep inside of lists and mappings is left out.

    >>> value_text("fast", 40), value_text(b"abc", 40), value_text([1, 2], 40)
    ('fast', '3 bytes: 616263', '[1, 2]')
    """
    if isinstance(value, str):
        return shorten(value, width)
    if type(value) is int:  # most of what a listing shows; the rest is asked for attributes
        return shorten(str(value) if value.bit_length() < _DECIMAL else hex(value), width)
    if isinstance(value, (list, tuple, dict)) and value and not levels:
        return "…"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return shorten(f"{plural(len(value), 'byte')}: {bytes(value[:width]).hex()}", width)
    if hasattr(value, "dtype") and hasattr(value, "reshape"):
        if not getattr(value, "shape", ()):
            return shorten(str(value), width)
        first = ", ".join(str(item) for item in value.reshape(-1)[:8].tolist())
        more = ", …" if value.size > 8 else ""
        return shorten(f"{value.dtype}{shape_text(value.shape)}: {first}{more}", width)
    if isinstance(value, (list, tuple)):
        text = ", ".join(value_text(item, width, levels - 1) for item in value[: width // 2 + 1])
        return shorten(f"[{text}]", width) if len(text) < width else shorten(f"[{text}", width)
    if isinstance(value, dict):  # only items that have room: a value may be a whole document
        items = ", ".join(
            f"{value_text(k, width)}: {value_text(v, width, levels - 1)}" for k, v in islice(value.items(), width // 4)
        )
        return shorten(f"{{{items}}}", width) if len(value) <= width // 4 else shorten(f"{{{items}, …", width)
    return shorten(repr(value), width)


def plain(value: Any, most: int = 1 << 16) -> Any:
    """``value`` as JSON can hold it. Bytes become hex, non-finite floats and arrays above ``most`` values become text.

    >>> plain({"a": float("nan"), "b": b"\\x01"})
    {'a': 'nan', 'b': '01'}
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, dict):
        return {str(key): plain(item, most) for key, item in value.items()}
    if hasattr(value, "tolist"):
        if value.size > most:
            return f"{value.dtype}{shape_text(value.shape)}"
        return plain(value.tolist(), most)
    if isinstance(value, (list, tuple)):
        return [plain(item, most) for item in value]
    return str(value)
