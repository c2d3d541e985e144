"""Files of other programs: how they are recognized, and what is said of them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Content"]


@dataclass(frozen=True, slots=True)
class Content:
    """What a file is: the end of a sentence that begins with its name; ``failed`` if it is not what was to be there."""

    text: str
    failed: bool = False
