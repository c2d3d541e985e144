"""The report of a conversion: what it did, or would do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from holdall.base.text import file_text, plural

if TYPE_CHECKING:
    from holdall.quant.plan import QuantPlan
    from holdall.recipes import Applied

__all__ = ["ConversionReport", "Fate", "Loss", "list_lost"]

# left out: the target does not hold it; text: stored as text; changed: the target's writer wrote another value.
# With a skeleton: carried there; tensors may be stored as opaque bytes, under another name or in another shape.
Fate = Literal["left out", "text", "changed", "carried", "opaque", "renamed", "reshaped"]

_IN_SKELETON = ("carried", "opaque", "renamed", "reshaped")


@dataclass(frozen=True, slots=True)
class Loss:
    """One part of the source that the target cannot store unchanged."""

    part: Literal["tensor", "metadata", "asset", "native"]
    name: str
    reason: str
    fate: Fate

    def __str__(self) -> str:
        return f"{self.part} {self.name!r}: {self.reason} ({self.fate})"


def list_lost(dropped: Sequence[str], losses: Sequence[Loss]) -> list[str]:
    """List what neither the target nor a skeleton in it holds of the sources."""
    return [*dropped, *(str(loss) for loss in losses if loss.fate not in _IN_SKELETON)]


@dataclass(frozen=True, slots=True)
class ConversionReport:
    """What a conversion did, or with ``dry_run`` would do.

    ``losses`` lists what the target cannot store unchanged, found by reading the new file; ``dropped`` lists
    what the caller asked to leave out or to narrow. ``restored`` is set by :func:`holdall.restore`: "bytes" is the
    original file again, proven by its hashes; "content" is the original's form around changed values.
    """

    source: list[str]
    source_format: list[str]
    target: str
    target_format: str
    tensors: int
    nbytes: int
    size: int | None  # bytes written; None in a dry run if the size is known only after writing
    losses: list[Loss]
    dropped: list[str]
    changes: list[str]
    quantization: QuantPlan | None = None  # what happens to each tensor, if quantization was asked for
    skeleton_bytes: int = 0
    carried: str | None = None  # the format of the carried original
    restored: Literal["bytes", "content"] | None = None
    written: bool = False
    checked: bool = False  # hashes that the sources state were checked
    recipe: Applied | None = None  # the recipe, and what it did to each tensor
    replaces: bool = False  # there was a file at the target before
    folder: bool = False  # the target is a folder of files
    seconds: float = 0.0

    @property
    def lossless(self) -> bool | None:
        """True when what was written holds everything of the sources, read back; None before anything is written."""
        return not self.lost if self.written else None

    @property
    def lost(self) -> list[str]:
        """What neither the target nor a skeleton in it holds of the sources."""
        return list_lost(self.dropped, self.losses)

    def __str__(self) -> str:
        how = {"bytes": ", the original restored byte for byte", "content": ", the original's form around new values"}
        extra = how.get(self.restored or "", f", {plural(len(self.losses), 'thing')} not native" if self.losses else "")
        content = f"{plural(self.tensors, 'tensor')}, {self.nbytes} bytes"
        return f"{', '.join(map(file_text, self.source))} -> {file_text(self.target)}: {content}{extra}"
