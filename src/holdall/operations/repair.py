"""Repair: replace the damaged ranges of a file, and nothing else, from a good copy."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from holdall.base.progress import Progress
from holdall.base.text import plural
from holdall.errors import FormatError, UnsupportedError
from holdall.format.base import Patch
from holdall.limits import Limits
from holdall.model.payload import SourceRange
from holdall.operations.examine import examine
from holdall.operations.open_save import open_model, verify
from holdall.sink import write_file
from holdall.sink.plan import Plan, Results
from holdall.source import Openable, Source

__all__ = ["RepairReport", "repair"]


@dataclass(slots=True)
class RepairReport:
    """What a repair replaced. ``patches`` is empty for an undamaged file, which is not written."""

    path: str
    copy: str
    patches: list[Patch] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Bytes that came from the copy."""
        return sum(patch.payload.size for patch in self.patches)


def repair(
    path: str | os.PathLike[str],
    copy: Openable,
    *,
    limits: Limits | None = None,
    allowed: Collection[str] | None = None,
    follow: str | Collection[str] = (),
    fsync: bool = True,
    progress: Progress | None = None,
) -> RepairReport:
    """Replace the ranges of the file at ``path`` that do not have their stated hash by those of ``copy``.

    The smallest ranges that have a hash are replaced: pages, else tensors, else chunks. The result is verified
    before it replaces the file; after any error the file is unchanged.
    """
    report = RepairReport(os.fspath(path), "")
    with examine(path, limits=limits, allowed=allowed, follow=follow) as seen:
        if seen.format is None or seen.model is None:
            reason = seen.report.findings[0].message if seen.report.findings else "it cannot be read"
            unread = seen.report.verdict == "not read"  # it may be intact
            what = "cannot be read, nor repaired" if unread else "too damaged to be repaired"
            error = FormatError("core.repair", None, f"{seen.source.name}: {what}: {reason}")
            error.unread = unread
            raise error
        total = seen.source.size
        done = 0

        def on_progress(count: int) -> None:
            nonlocal done
            done += count
            if progress is not None:
                progress(min(done, total), total)

        with open_model(copy, format=seen.format.name, mmap=False, limits=limits, follow=follow) as other:
            report.copy = other.sources[0].name
            report.patches = sorted(seen.format.patches(seen.model, other, on_progress), key=lambda patch: patch.start)
            if report.patches:
                write_file(path, _plan(seen.source, report.patches), fsync=fsync, approve=_approve(limits))
    return report


def _plan(source: Source, patches: list[Patch]) -> Plan:
    out = Plan()
    for patch in patches:
        if patch.start < out.cursor:
            raise UnsupportedError(f"two repairs overlap at byte {patch.start:#x}")
        out.stream(SourceRange(source, out.cursor, patch.start - out.cursor))
        out.stream(patch.payload)
    out.stream(SourceRange(source, out.cursor, source.size - out.cursor))
    return out


def _approve(limits: Limits | None) -> Callable[[Path, Results], None]:
    def approve(path: Path, results: Results) -> None:
        report = verify(path, limits=limits)
        bad = next((finding for finding in report.findings if finding.severity == "error"), None)
        if bad is not None:
            raise FormatError(bad.rule, bad.offset, f"the copy does not make the file whole: {bad.message}")
        if not report.ok:  # the limits allow no findings to be listed
            message = f"the copy does not make the file whole: it leaves {plural(report.counts['error'], 'error')}"
            raise FormatError("core.repair", None, message)

    return approve
