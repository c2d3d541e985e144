"""A file into another format and back: does it come back as it went?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdall.api import open_model
from holdall.convert import convert

__all__ = ["Trip", "round_trip"]


@dataclass(frozen=True, slots=True)
class Trip:
    """One file on its way into another format and back."""

    exact: bool  # the bytes that came back are those that went
    lossless: bool  # the report said that they would
    carried: bool  # a skeleton was needed


def _tree_bytes(path: Path) -> dict[str, bytes]:
    """A file, or every file of a folder."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def round_trip(path: Path, target: str, scratch: Path) -> Trip:
    """Convert ``path`` into ``target`` and back into its own format."""
    with open_model(path) as model:
        own = model.format
    there, back = scratch / "there", scratch / "back"
    report = convert(path, there, format=target, fsync=False)
    convert(there, back, format=own, fsync=False)
    return Trip(_tree_bytes(path) == _tree_bytes(back), report.lossless, report.skeleton_bytes > 0)
