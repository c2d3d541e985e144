"""Reading a file as far as it can be read: the model, who owns which bytes, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from holdall import registry
from holdall.check import Check, Level, Report
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
            seen.format = registry.find(format) if format is not None else registry.detect(source)
            report.format = seen.format.name
            # A model comes back even when scopes inside were abandoned; what is damaged is in the report.
            seen.model = seen.format.read(source, check, seen.ledger)
            seen.model.ledger = seen.ledger
    except BaseException:
        seen.close()
        raise
    return seen
