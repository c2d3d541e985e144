"""A corpus of files beside a format: good ones, ``bad/`` ones with the rule each breaks, ``odd/`` ones.

A bad file has a ``.reason.txt`` whose label says how early it must be refused::

    [must-reject]  must_reject_by: open   upstream stage: store open      open() raises
                   must_reject_by: read   upstream stage: tensor read     at the latest, reading the tensor raises
    expected: reject  must_reject_by: validate                            at the latest, verify() is not ok
    [strict-only]                                                         verify(level="strict") is not ok
    [contested]                                                           verify(level="strict") warns
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Literal

import holdall
from holdall.errors import FormatError, UnsupportedError
from holdall.testing.damage import exercise

__all__ = ["STAGES", "Stage", "bad_files", "demanded", "good_files", "refused_at"]

Stage = Literal["open", "read", "full", "strict", "warning", "never"]
STAGES: tuple[Stage, ...] = ("open", "read", "full", "strict", "warning", "never")

_LABELS: tuple[tuple[str, Stage], ...] = (
    (r"^\[must-reject\]", "open"),
    (r"^\[strict-only\]", "strict"),
    (r"^\[contested\]", "warning"),
    (r"^must_reject_by: open", "open"),
    (r"^must_reject_by: read", "read"),
    (r"^must_reject_by: validate", "full"),
    (r"^upstream stage: (store )?open", "open"),
    (r"^upstream stage: tensor", "read"),
    (r"^upstream stage: ", "full"),
    (r"^(expected|recommended): reject", "full"),
)


def demanded(reason: str) -> Stage:
    """How early a bad file must be refused, by the label in its reason.

    >>> demanded("[strict-only] header flags must be 0"), demanded("kind: x\\nmust_reject_by: read")
    ('strict', 'read')
    """
    return next((stage for label, stage in _LABELS if re.search(label, reason, re.MULTILINE)), "warning")


def refused_at(path: Path, format: str | None = None) -> Stage:
    """The first stage at which something is said against a file."""
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


def good_files(corpus: Path, suffixes: Collection[str], prefix: str = "") -> list[Path]:
    """The files of a corpus that must open and verify."""
    return sorted(path for path in corpus.glob(prefix + "*") if path.is_file() and path.name.endswith(tuple(suffixes)))


def bad_files(corpus: Path, suffixes: Collection[str], prefix: str = "") -> list[tuple[Path, Stage]]:
    """The files that must be refused, each with the stage by which."""
    files = good_files(corpus / "bad", suffixes, prefix)
    reasons = [(path, (path.with_suffix(".reason.txt"), Path(f"{path}.reason.txt"))) for path in files]
    found = [(path, next((text for text in texts if text.exists()), None)) for path, texts in reasons]
    return [(path, demanded(text.read_text())) for path, text in found if text is not None]
