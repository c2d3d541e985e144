"""Writes a text, such as a report, as every other file is written: the old one stands until the new one is whole."""

from __future__ import annotations

import os

from holdall.sink.file import write_file
from holdall.sink.plan import Plan

__all__ = ["write_text"]


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` to ``path`` as UTF-8."""
    plan = Plan()
    plan.put(text.encode())
    write_file(path, plan, fsync=False)
