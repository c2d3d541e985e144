"""What documents inside files have in common: errors with byte and path, and keys that come twice."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

__all__ = ["DocumentError", "Duplicate", "member_path"]

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


class DocumentError(ValueError):
    """A document is not what it should be: ``message`` at byte ``offset`` of it, inside the value at ``path``."""

    def __init__(self, offset: int, message: str, path: str = "$") -> None:
        super().__init__(offset, message, path)
        self.offset = offset
        self.message = message
        self.path = path

    def __str__(self) -> str:
        return f"{self.message} (at byte {self.offset} of the document, in {self.path})"


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A key that an object has twice: its path, and the byte at which it comes again."""

    path: str
    offset: int


def member_path(key: str) -> str:
    """The step from an object to one of its members.

    >>> member_path("hidden_size"), member_path("a.b")
    ('.hidden_size', '["a.b"]')
    """
    return f".{key}" if _PLAIN.fullmatch(key) else f"[{json.dumps(key, ensure_ascii=False)}]"
