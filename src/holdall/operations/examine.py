"""Reading a file as far as possible: the model, the owner of every byte, and the findings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from holdall.base.check import UNOWNED, Check, Level, Report
from holdall.base.progress import Progress
from holdall.errors import ForeignError, FormatError
from holdall.format import registry
from holdall.limits import DEFAULT_LIMITS, Limits
from holdall.model.growth import limit_growth
from holdall.operations.facets import resolve_facet
from holdall.source import Openable, Source, source_of
from holdall.source.ledger import Ledger

if TYPE_CHECKING:
    from holdall.format.base import Format
    from holdall.model.model import Model

__all__ = ["Examination", "examine"]


@dataclass(slots=True)
class Examination:
    """What a reader found in a file, damaged or not. Close it, or use it as a context manager.

    ``model`` is None when not even the header could be read, ``format`` when the file is of no known
    format. The model of a damaged file holds its undamaged parts; ``report`` lists the damage.
    """

    source: Source
    check: Check
    report: Report
    ledger: Ledger
    format: Format | None = None
    model: Model | None = None
    owned: bool = True  # False: the caller opened the source, and closes it

    def audit(self, progress: Progress | None = None) -> None:
        """Check what needs payload bytes, as far as the level asks for it; ``progress`` as for ``holdall.verify``."""
        if self.format is None or self.model is None:
            return
        model, check = self.model, self.check
        total = sum(source.size for source in model.sources)
        done = 0

        def on_progress(count: int) -> None:
            nonlocal done
            done += count
            if progress is not None:
                progress(done, total)

        # If reading was abandoned, the ledger lacks owners, and their bytes would be reported as unowned.
        if check.wants("strict") and not check.abandoned and model.ledger is not None and model.sources:
            for source, ledger in ((model.sources[0], model.ledger), *model.ledger.members):
                check.file = source.name if model.ledger.members else None
                with check.scope():
                    _check_unowned(source, ledger, check)
            check.file = None
        if check.wants("full"):
            with check.scope():
                self.format.audit(model, check, on_progress)

    def first_error(self) -> FormatError:
        """The finding that kept the file from being read, as an error."""
        for finding in self.report.findings:
            kind = ForeignError if finding.severity == "unread" else FormatError
            hint = f"; {finding.hint}" if finding.hint else ""
            return kind(finding.rule, finding.offset, finding.message + hint)
        rule = next(iter(self.report.suppressed))
        return FormatError(rule, None, "the file cannot be read, and findings_per_rule=0 lists no finding")

    def close(self) -> None:
        """Let go of the files that were opened here."""
        sources = (self.source, *(self.model.sources if self.model is not None else ()))
        for source in sources:
            if self.owned or source is not self.source:
                source.close()

    def __enter__(self) -> Examination:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def examine(
    what: Openable,
    *,
    level: Level = "structure",
    format: str | None = None,
    limits: Limits | None = None,
    allowed: Collection[str] | None = None,
    mmap: bool = False,
    follow: str | Collection[str] = (),
) -> Examination:
    """Read header and index, collecting what is wrong instead of raising it. Touches no payload.

    >>> with examine(b"OINF" + bytes(68)) as seen:
    ...     seen.model, seen.report.findings[0].rule
    (None, 'oinf.header.version')
    """
    source = source_of(what, map=mmap, follow=follow)
    report = Report(source.name, format, level)
    check = Check(limits=limits or DEFAULT_LIMITS, report=report)
    seen = Examination(source, check, report, Ledger(), owned=not isinstance(what, Source))
    try:
        with check.scope():
            seen.format = registry.choose(source, format, allowed)
            report.format = seen.format.name
            # A model comes back even when scopes inside were abandoned; what is damaged is in the report.
            seen.model = _read(seen, format)
            seen.model.ledger = seen.ledger
            seen.model.limits, seen.model.allowed = limits, allowed
            seen.model.resolve_facet = resolve_facet
            limit_growth(seen.model, check)
    except BaseException:
        seen.close()
        raise
    return seen


def _read(seen: Examination, format: str | None) -> Model:
    """Read the model. A file that turns out to be of another program has no format, unless the caller named one."""
    assert seen.format is not None
    try:
        return seen.format.read(seen.source, seen.check, seen.ledger)
    except ForeignError as error:
        if format is not None:
            raise
        seen.format = seen.report.format = None
        raise ForeignError(registry.UNKNOWN.id, error.offset, error.message) from error


def _check_unowned(source: Source, ledger: Ledger, check: Check) -> None:
    """Report bytes without an owner that are not zero."""
    import numpy as np

    gaps = list(ledger.gaps(source.size))
    source.prefetch(gaps)
    for start, stop in gaps:
        at = start
        for chunk in source.chunks(start, stop - start):
            found = np.frombuffer(chunk, np.uint8).nonzero()[0]
            if found.size:
                message = f"bytes {start:#x}..{stop:#x} belong to nothing and are not all zero"
                check.note(UNOWNED, at + int(found[0]), message)
                break
            at += len(chunk)
