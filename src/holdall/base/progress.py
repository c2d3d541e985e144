"""The type of the callbacks that report progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

__all__ = ["Progress", "ignore_count"]

Progress: TypeAlias = Callable[[int, int | None], None]  # receives how much is done, and the total, None if unknown


def ignore_count(count: int) -> None:
    """Do nothing: where no one wants to know how much more is done."""
