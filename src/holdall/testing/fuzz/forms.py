"""Forms of a format that its writer here does not write: older versions, other writers' habits, sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

__all__ = ["FORMS"]

FORMS: Mapping[str, Callable[[], Iterator[tuple[str, bytes]]]] = {}
