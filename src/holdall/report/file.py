"""Writing a report: the suffix of the file says in which form."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from holdall.base.text import file_text
from holdall.errors import UnsupportedError
from holdall.sink.text import write_text

__all__ = ["write_report"]

T = TypeVar("T")


def write_report(path: str | os.PathLike[str], report: T, renderers: Mapping[str, Callable[[T], str]]) -> None:
    """Render ``report`` in the form that the suffix of ``path`` names, and write it."""
    target = Path(path)
    render = renderers.get(target.suffix.lower())
    if render is None:
        raise UnsupportedError(f"{file_text(path)}: the name of a report ends in {', '.join(renderers)}")
    write_text(path, render(report))
