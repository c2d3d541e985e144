"""What JSON and MessagePack documents share: errors with byte and path, and duplicate keys."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

__all__ = ["DocumentError", "Duplicate", "TooManyValues", "inner_path", "member_path"]

_LONG = 200  # characters after which a path is cut
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


class DocumentError(ValueError):
    """A document is malformed: ``message`` at byte ``offset`` of the document, inside the value at ``path``."""

    def __init__(self, offset: int, message: str, path: str = "$") -> None:
        super().__init__(offset, message, path)
        self.offset = offset
        self.message = message
        self.path = path

    def __str__(self) -> str:
        return f"{self.message} (at byte {self.offset} of the document, in {self.path})"


class TooManyValues(DocumentError):
    """A document has more values than the caller has room for."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A key that an object has twice: its path, cut where it is long, and the byte of its second occurrence."""

    path: str
    offset: int


def member_path(key: str) -> str:
    """The step from an object to one of its members.

    >>> member_path("hidden_size"), member_path("a.b")
    ('.hidden_size', '["a.b"]')
    """
    return f".{key}" if _PLAIN.fullmatch(key) else f"[{json.dumps(key, ensure_ascii=False)}]"


def inner_path(path: str, step: str) -> str:
    """Append a step to ``path``. A long path ends in dots and does not grow further.

    >>> inner_path("$.a", ".b"), len(inner_path("$", "." + "a" * 1000))
    ('$.a.b', 203)
    """
    if len(path) > _LONG:
        return path
    whole = path + step
    return whole if len(whole) <= _LONG else whole[:_LONG] + "..."
