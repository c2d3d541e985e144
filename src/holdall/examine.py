"""Reading a file as far as it can be read: the model, who owns which bytes, and what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from holdall import registry
from holdall.check import UNOWNED, Check, Level, Report
from holdall.ledger import Ledger
from holdall.limits import DEFAULT_LIMITS, Limits
from holdall.source import Openable, Source, source_of

if TYPE_CHECKING:
    from holdall.format import Format
    from holdall.model import Model

__all__ = ["Examination", "examine"]


@dataclass(slots=True)
class Examination:
    """What a reader made of a file, damaged or not. Close it, or use it as a context manager.

    ``model`` is None when not even the header could be read, ``format`` when the file is of no known
    format. A model of a damaged file holds what was whole; ``report`` says what was not.
    """

    source: Source
    check: Check
    report: Report
    ledger: Ledger
    format: Format | None = None
    model: Model | None = None
    owned: bool = True  # False: the source is the caller's, and stays open

    def audit(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Check what needs payload bytes, as far as the level asks for it; ``progress`` as for ``holdall.verify``."""
        if self.format is None or self.model is None:
            return
        model, check = self.model, self.check
        total = sum(source.size for source in model.sources)
        done = 0

        def tick(count: int) -> None:
            nonlocal done
            done += count
            if progress is not None:
                progress(done, total)

        # Where reading was cut short the ledger lacks owners, and bytes would be called strays that are not.
        if check.wants("strict") and not check.abandoned and model.ledger is not None and model.sources:
            for source, ledger in ((model.sources[0], model.ledger), *model.ledger.members):
                check.file = source.name if model.ledger.members else None
                with check.scope():
                    _unowned(source, ledger, check)
            check.file = None
        if check.wants("full"):
            with check.scope():
                self.format.audit(model, check, tick)

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
) -> Examination:
    """Read header and index, collecting what is wrong instead of raising it. Touches no payload.

    >>> with examine(b"OINF" + bytes(68)) as seen:
    ...     seen.model, seen.report.findings[0].rule
    (None, 'oinf.header.version')
    """
    source = source_of(what, map=mmap)
    report = Report(source.name, format, level)
    check = Check(limits=limits or DEFAULT_LIMITS, report=report)
    seen = Examination(source, check, report, Ledger(), owned=not isinstance(what, Source))
    try:
        with check.scope():
            seen.format = registry.choose(source, format, allowed)
            report.format = seen.format.name
            # A model comes back even when scopes inside were abandoned; what is damaged is in the report.
            seen.model = seen.format.read(source, check, seen.ledger)
            seen.model.ledger = seen.ledger
            seen.model.limits, seen.model.allowed = limits, allowed
    except BaseException:
        seen.close()
        raise
    return seen


def _unowned(source: Source, ledger: Ledger, check: Check) -> None:
    """Bytes that nobody owns must be zero."""
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
