"""A file into another format and back: does it come back as it went?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdall.operations.convert.convert import convert
from holdall.operations.convert.restore import restore

__all__ = ["Trip", "round_trip"]


@dataclass(frozen=True, slots=True)
class Trip:
    """One file on its way into another format and back."""

    exact: bool  # the bytes that came back are those that went
    native: bool  # the target held everything in its own terms


def _tree_bytes(path: Path) -> dict[str, bytes]:
    """A file, or every file of a folder."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def round_trip(path: Path, target: str, scratch: Path) -> Trip:
    """Convert ``path`` into ``target``, carrying the original, and restore it."""
    there, back = scratch / "there", scratch / "back"
    report = convert(path, there, format=target, carry=True, fsync=False)
    restored = restore(there, back, fsync=False)
    exact = restored.restored == "bytes" and _tree_bytes(path) == _tree_bytes(back)
    return Trip(exact, not report.losses)
