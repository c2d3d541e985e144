"""What a conversion did, or would do: one record for people, scripts and the caller."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["ConversionReport", "Fate", "Loss"]

# left out: the target does not hold it; text: stored as text; changed: the target's writer wrote something else.
# With a skeleton: carried, and what tensors travel as: opaque bytes, under another name, in another shape.
Fate = Literal["left out", "text", "changed", "carried", "opaque", "renamed", "reshaped"]

_IN_SKELETON = ("carried", "opaque", "renamed", "reshaped")


@dataclass(frozen=True, slots=True)
class Loss:
    """One thing that the target does not hold as the source does."""

    part: Literal["tensor", "metadata", "asset", "native"]
    name: str
    reason: str
    fate: Fate

    def __str__(self) -> str:
        return f"{self.part} {self.name!r}: {self.reason} ({self.fate})"


@dataclass(slots=True)
class ConversionReport:
    """What a conversion did, or with ``dry_run`` would do.

    ``losses`` is what the target does not hold as the source does, found by reading what was written; ``dropped`` is
    what the caller asked to leave out or to narrow. ``restored`` is set by :func:`holdall.restore`: "bytes" is the
    original file again, proven by its hashes; "content" is the original's form around changed values.
    """

    source: list[str]
    source_format: list[str]
    target: str
    target_format: str
    tensors: int = 0
    nbytes: int = 0
    size: int | None = None  # of what is written; None in a dry run when only writing can tell
    losses: list[Loss] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    skeleton_bytes: int = 0
    carried: str | None = None  # the format of the original that the skeleton is of
    restored: Literal["bytes", "content"] | None = None
    written: bool = False
    checked: bool = False  # the stated hashes of what was read were compared, and agreed
    replaces: bool = False  # a file that was there before
    seconds: float = 0.0

    @property
    def lossless(self) -> bool | None:
        """True when what was written holds everything of the sources, read back; None before anything is written."""
        return not self.lost if self.written else None

    @property
    def lost(self) -> list[str]:
        """What the target does not hold of the sources, not even in a skeleton."""
        return self.dropped + [str(loss) for loss in self.losses if loss.fate not in _IN_SKELETON]

    def add_change(self, text: str) -> None:
        """Note what was done, once even when the bytes pass twice."""
        if text not in self.changes:
            self.changes.append(text)

    def __str__(self) -> str:
        how = {"bytes": ", the original restored byte for byte", "content": ", the original's form around new values"}
        extra = how.get(self.restored or "", f", {len(self.losses)} things not native" if self.losses else "")
        count = f"{self.tensors} {'tensor' if self.tensors == 1 else 'tensors'}"
        return f"{', '.join(self.source)} -> {self.target}: {count}, {self.nbytes} bytes{extra}"
