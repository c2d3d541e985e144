"""Finds the files of a corpus: good ones, ``bad/`` ones with the reason of each, ``odd/`` ones.

Each set of files has its own folder and is given by its main file. A bad file, or the folder of a bad
set, has a ``.reason.txt`` whose label says how early it must be refused::

    [must-reject]  must_reject_by: open   upstream stage: store open      open() raises
                   must_reject_by: read   upstream stage: tensor read     at the latest, reading the tensor raises
    expected: reject  must_reject_by: validate                            at the latest, verify() is not ok
    [strict-only]  must_reject_by: strict-only                            verify(level="strict") is not ok
    [contested]    recommended: container may open                        verify(level="strict") warns
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Literal

import holdall
from holdall.errors import FormatError, UnsupportedError
from holdall.testing.damage import exercise

__all__ = ["STAGES", "Stage", "bad_files", "find_refusal", "good_files", "stage_of"]

Stage = Literal["open", "read", "full", "strict", "warning", "never"]
STAGES: tuple[Stage, ...] = ("open", "read", "full", "strict", "warning", "never")

_LABELS: tuple[tuple[str, Stage], ...] = (
    (r"^\[must-reject\]", "open"),
    (r"^\[strict-only\]", "strict"),
    (r"^\[contested\]", "warning"),
    (r"^must_reject_by: open", "open"),
    (r"^must_reject_by: read", "read"),
    (r"^must_reject_by: validate", "full"),
    (r"^must_reject_by: strict-only", "strict"),
    (r"^recommended: container may open", "warning"),
    (r"^upstream stage: (store )?open", "open"),
    (r"^upstream stage: tensor", "read"),
    (r"^upstream stage: ", "full"),
    (r"^(expected|recommended): reject", "full"),
)


def stage_of(reason: str) -> Stage:
    """Return how early a bad file must be refused, from the label in its reason.

    >>> stage_of("[strict-only] header flags must be 0"), stage_of("kind: x\\nmust_reject_by: read")
    ('strict', 'read')
    """
    return next((stage for label, stage in _LABELS if re.search(label, reason, re.MULTILINE)), "warning")


def find_refusal(path: Path, format: str | None = None) -> Stage:
    """Return the first stage at which a file is refused."""
    try:
        with holdall.open(path, format=format) as model:
            if not exercise(model):
                return "read"
    except (FormatError, UnsupportedError):
        return "open"
    if not holdall.verify(path, level="full", format=format).ok:
        return "full"
    strict = holdall.verify(path, level="strict", format=format)
    if not strict.ok:
        return "strict"
    return "warning" if any(finding.severity == "warning" for finding in strict.findings) else "never"


def good_files(corpus: Path, suffixes: Collection[str], prefix: str = "", *, sets: bool = False) -> list[Path]:
    """Return the files of a corpus that must open and verify; of sets, the main files."""
    found = corpus.glob(f"{prefix}*/*") if sets else corpus.glob(f"{prefix}*")
    files = [path for path in found if path.is_file() and path.name.endswith(tuple(suffixes))]
    return sorted(path for path in files if path.parent.name not in ("bad", "odd") or path.parent == corpus)


def bad_files(
    corpus: Path, suffixes: Collection[str], prefix: str = "", *, sets: bool = False
) -> list[tuple[Path, Stage]]:
    """Return the files that must be refused, each with the latest stage to do so."""
    bad = corpus / "bad"
    if sets:
        files = [path for path in bad.glob(f"{prefix}*/**/*") if path.name.endswith(tuple(suffixes))]
    else:
        files = good_files(bad, suffixes, prefix)
    found = []
    for path in sorted(files):
        named = bad / path.relative_to(bad).parts[0]
        reason = next((t for t in (named.with_suffix(".reason.txt"), Path(f"{named}.reason.txt")) if t.exists()), None)
        if reason is not None:
            found.append((path, stage_of(reason.read_text(encoding="utf-8"))))
    return found
