"""Text that can be stored as UTF-8."""

from __future__ import annotations

__all__ = ["is_utf8", "utf8_breach"]

_SHOWN = 80  # letters of a text in the message


def utf8_breach(text: str) -> str | None:
    """Why ``text`` cannot be stored as UTF-8; None when it can.

    >>> utf8_breach("text"), utf8_breach("\\ud800")
    (None, "'\\\\ud800' holds half of a surrogate pair, which is not text")
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"{text[:_SHOWN]!r} holds half of a surrogate pair, which is not text"
    return None


def is_utf8(data: bytes) -> bool:
    """Whether ``data`` is text in UTF-8.

    >>> is_utf8(b"text"), is_utf8(b"\\xff")
    (True, False)
    """
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
