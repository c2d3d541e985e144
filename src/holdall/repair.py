"""Repair: what is damaged in a file, and nothing else, replaced from a good copy."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from holdall.api import open_model, verify
from holdall.errors import FormatError, UnsupportedError
from holdall.examine import examine
from holdall.format import Patch
from holdall.limits import Limits
from holdall.payload import Range
from holdall.plan import Plan, Results
from holdall.sink import write_file
from holdall.source import Openable, Source

__all__ = ["RepairReport", "repair"]


@dataclass(slots=True)
class RepairReport:
    """What a repair replaced. ``patches`` is empty for a file that was whole, which is then left alone."""

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
    fsync: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> RepairReport:
    """Replace the damaged ranges of the file at ``path`` by those of ``copy``, as far as the file's own hashes ask.

    The smallest ranges that have a hash are replaced: pages, else tensors, else chunks. The result is verified
    before it takes the place of the file; when anything goes wrong the file stays as it is.
    """
    report = RepairReport(os.fspath(path), "")
    with examine(path, limits=limits, allowed=allowed) as seen:
        if seen.format is None or seen.model is None:
            reason = seen.report.findings[0].message if seen.report.findings else "it cannot be read"
            raise FormatError("core.repair", None, f"{seen.source.name}: too damaged to be repaired: {reason}")
        total = seen.source.size
        done = 0

        def tick(count: int) -> None:
            nonlocal done
            done += count
            if progress is not None:
                progress(min(done, total), total)

        with open_model(copy, format=seen.format.name, mmap=False, limits=limits) as other:
            report.copy = other.sources[0].name
            report.patches = sorted(seen.format.patches(seen.model, other, tick), key=lambda patch: patch.start)
            if report.patches:
                write_file(path, _plan(seen.source, report.patches), fsync=fsync, approve=_approve(limits))
    return report


def _plan(source: Source, patches: list[Patch]) -> Plan:
    out = Plan()
    for patch in patches:
        if patch.start < out.cursor:
            raise UnsupportedError(f"two repairs overlap at byte {patch.start:#x}")
        out.stream(Range(source, out.cursor, patch.start - out.cursor))
        out.stream(patch.payload)
    out.stream(Range(source, out.cursor, source.size - out.cursor))
    return out


def _approve(limits: Limits | None) -> Callable[[Path, Results], None]:
    def approve(path: Path, results: Results) -> None:
        report = verify(path, limits=limits)
        bad = next((finding for finding in report.findings if finding.severity == "error"), None)
        if bad is not None:
            raise FormatError(bad.rule, bad.offset, f"the copy does not make the file whole: {bad.message}")

    return approve
