"""Converting a file into another format and restoring it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdall.operations.convert.convert import convert
from holdall.operations.convert.restore import restore

__all__ = ["RoundTrip", "round_trip"]


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """How one file came back from another format."""

    exact: bool  # the restored bytes are those of the file
    native: bool  # the target held everything without the skeleton


def _read_tree(path: Path) -> dict[str, bytes]:
    """Read the bytes of a file, or of every file in a folder by its relative name."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def round_trip(path: Path, target: str, scratch: Path) -> RoundTrip:
    """Convert ``path`` into ``target``, carrying the original, and restore it."""
    there, back = scratch / "there", scratch / "back"
    report = convert(path, there, format=target, carry=True, fsync=False)
    restored = restore(there, back, fsync=False)
    exact = restored.restored == "bytes" and _read_tree(path) == _read_tree(back)
    return RoundTrip(exact, not report.losses)
