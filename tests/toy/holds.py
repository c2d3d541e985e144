"""What a toy can hold. The format states it, and the writer refuses everything else."""

from __future__ import annotations

from typing import Any

from holdall.plugin import Holds, utf8_breach
from tests.toy.layout import DTYPES


def _refuses_name(name: str) -> str | None:
    return utf8_breach(name) or (None if 0 < len(name.encode()) <= 4096 else "a name takes 1 to 4096 bytes")


def _refuses_metadata(key: str, value: Any) -> str | None:
    if not isinstance(value, str):
        return f"metadata is text, not {type(value).__name__}"
    if wrong := utf8_breach(key) or utf8_breach(value):
        return wrong
    longest = max(len(key.encode()), len(value.encode()))
    return None if longest < 1 << 16 else f"a key or value of {longest} bytes is longer than 65535"


HOLDS = Holds(
    dtypes=frozenset(DTYPES),
    max_rank=(1 << 16) - 1,
    declared=True,
    aliases=True,
    names="1 to 4096 bytes of UTF-8",
    refuses_name=_refuses_name,
    refuses_metadata=_refuses_metadata,
)
