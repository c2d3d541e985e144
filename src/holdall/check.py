"""How readers speak of what is wrong: rules, findings, reports, and the Check that collects or raises.

A reader is written once. Opening a file runs it with a :class:`Check` that raises at the first breach;
verifying runs the same code with one that records every breach it can reach::

    with check.scope():                       # what fails in here ends here
        if header.version not in (1, 2):
            check.fail(VERSION, 5, f"version {header.version} is unknown")

``fail`` never returns. When verifying it is recorded and the nearest enclosing ``scope`` is abandoned,
so code after a scope must use nothing computed inside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NoReturn

from holdall.errors import FormatError, LimitError, UnsupportedError
from holdall.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["LEVELS", "Check", "Finding", "Level", "Report", "Rule", "Severity", "figure"]

Level = Literal["structure", "full", "strict"]
Severity = Literal["error", "warning", "note"]

LEVELS: tuple[Level, ...] = ("structure", "full", "strict")

_PASSED = 64 << 20  # payload bytes that may always be looked at, whatever the file has
_DOCUMENT_SHARE = 8  # a compressed document may always expand to this part of its file
_INDEX_SHARE = 8  # and an index, whose rows become columns, to so many times its file,
_INDEX_ROOM = 4  # or to so many times what a document may
_TINY = 1 << 10  # bytes of a file: where those of a set have fewer on average,
_TINY_SHARE = 64  # it may have only this part of the files that it could have


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of a format's rule table.

    ``level`` is the lowest level of verification that looks at the rule. Only structure rules are
    enforced by ``open``.
    """

    id: str
    text: str
    level: Level = "structure"
    severity: Severity = "error"


LIMIT = Rule("core.limit", "the file stays within the Limits")
SHORT = Rule("core.short", "the file is as long as it was when it was opened")
UNSUPPORTED = Rule("core.unsupported", "the file uses nothing that holdall does not do")
UNOWNED = Rule("core.unowned", "every byte belongs to a header, a table, a payload or zero padding", "strict")


@dataclass(frozen=True, slots=True)
class Finding:
    """One breach of one rule.

    ``offset`` is the byte in the file; ``inner`` says where inside a compressed block or a JSON or
    msgpack document; ``file`` names the member when the model has several files; ``needs`` is how many bytes the file
    would have to have, where it says so and is shorter.
    """

    rule: str
    severity: Severity
    offset: int | None
    message: str
    hint: str | None = None
    inner: str | None = None
    file: str | None = None
    needs: int | None = None


@dataclass(slots=True)
class Report:
    """All findings of one verification.

    >>> report = Report("model.oinf", "oinf", "full")
    >>> report.ok
    True
    """

    path: str
    format: str | None
    level: Level
    findings: list[Finding] = field(default_factory=list)
    suppressed: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True when nothing of severity ``error`` was found."""
        return not any(finding.severity == "error" for finding in self.findings)

    def __str__(self) -> str:
        counts = Counter(finding.severity for finding in self.findings)
        counts.update({"error": 0})
        summary = ", ".join(f"{n} {kind}{'s' if n != 1 else ''}" for kind, n in counts.items() if n)
        return f"{self.path}: {summary or 'ok'} ({self.format or 'unknown format'}, level {self.level})"


def figure(number: int) -> str:
    """A number for a message. Products of hostile dims have more digits than Python agrees to print.

    >>> figure(2040), figure(2**90)
    ('2040', 'about 2^90')
    """
    return str(number) if number.bit_length() <= 64 else f"about 2^{number.bit_length() - 1}"


class _Abandon(Exception):
    """Unwinds to the nearest scope after a recorded failure."""


class Check:
    """Raises (opening) or records (verifying) what a reader finds.

    ``Check()`` is the opening kind. ``Check(report=...)`` collects into the report, looking at every
    rule up to the report's level.
    """

    def __init__(
        self, *, limits: Limits = DEFAULT_LIMITS, report: Report | None = None, proving: bool | None = None
    ) -> None:
        self.limits = limits
        self.report = report
        self.proving = proving  # hashes of payloads: always before a byte is handed out, never, or in passing (None)
        self.abandoned = 0  # scopes so far
        self._passed = 0  # payload bytes so far
        self._documents = self._indexes = self._grown = 0  # bytes so far beyond what the files themselves justify
        self._seen: Counter[str] = Counter()
        self.file: str | None = None  # the member that findings belong to, for models of several files

    @property
    def collecting(self) -> bool:
        """True when verifying: breaches are recorded instead of raised."""
        return self.report is not None

    def wants(self, level: Level) -> bool:
        """True when rules of this level are looked at, so that their work is worth doing."""
        wanted = "structure" if self.report is None else self.report.level
        return LEVELS.index(level) <= LEVELS.index(wanted)

    def fail(
        self,
        rule: Rule,
        at: int | None,
        message: str,
        *,
        hint: str | None = None,
        inner: str | None = None,
        needs: int | None = None,
    ) -> NoReturn:
        """Say that the file breaks ``rule`` at byte ``at``. Never returns."""
        if self.report is None:
            kind = LimitError if rule is LIMIT else FormatError
            raise kind(rule.id, at, message if inner is None else f"{message} [{inner}]")
        self._record(rule, at, message, hint, inner, needs)
        raise _Abandon

    def note(
        self, rule: Rule, at: int | None, message: str, *, hint: str | None = None, inner: str | None = None
    ) -> None:
        """Record a breach that no later line depends on. Does nothing when opening, or below the rule's level."""
        if self.report is not None and self.wants(rule.level):
            self._record(rule, at, message, hint, inner)

    def rows(
        self,
        ok: NDArray[np.bool_],
        rule: Rule,
        at: NDArray[np.uint64] | Sequence[int] | Callable[[int], int],
        message: Callable[[int], str],
        *,
        hint: str | None = None,
        needs: Callable[[], int] | None = None,
    ) -> None:
        """Check a whole column: every row that is not ``ok`` breaks ``rule``.

        A structure rule behaves as :meth:`fail` once the bad rows are recorded, any other as :meth:`note`. ``needs``
        is asked for the bytes that the file would have to have for all rows.
        """
        if ok.all() or (rule.level != "structure" and not self.wants(rule.level)):
            return
        locate = at if callable(at) else lambda row: int(at[row])
        bad = (~ok).nonzero()[0].tolist()
        if self.report is None:
            self.fail(rule, locate(bad[0]), message(bad[0]), hint=hint)
        kept = max(0, self.limits.findings_per_rule - self._seen[rule.id])
        needed = None if needs is None else needs()
        for row in bad[:kept]:
            self._record(rule, locate(row), message(row), hint, None, needed)
        if len(bad) > kept:
            self.report.suppressed[rule.id] = self.report.suppressed.get(rule.id, 0) + len(bad) - kept
        if rule.level == "structure":
            raise _Abandon

    def limit(self, name: str, value: int, at: int | None, what: str) -> None:
        """Refuse ``value`` of ``what`` when it is above the limit called ``name``."""
        cap = getattr(self.limits, name)
        if value > cap:
            message = f"{what}: {figure(value)} is above the limit of {cap}"
            self.fail(LIMIT, at, message, hint=f"pass Limits({name}=...)")

    def limit_document(self, size: int, file_size: int, at: int | None, what: str) -> None:
        """Refuse a compressed document of so many bytes, expanded, unless its file is large too.

        What is let pass only by the limit is counted: all files of a set share it.
        """
        if size > file_size // _DOCUMENT_SHARE:
            self._documents += size
            self.limit("document_bytes", self._documents, at, what)

    def limit_index(self, size: int, file_size: int, at: int | None, what: str, elsewhere: Iterable[int] = ()) -> None:
        """The same for an index that becomes columns, which takes less room than the values of a document.

        ``elsewhere`` are the bytes of other files that it speaks of, asked for only where they are needed.
        """
        room = self.limits.document_bytes * _INDEX_ROOM
        if size <= file_size * _INDEX_SHARE:
            return
        if self._indexes + size <= room:
            self._indexes += size
            return
        for each in elsewhere:
            file_size += each
            if size <= file_size * _INDEX_SHARE:
                return
        message = (
            f"{what}: {figure(size)} bytes of {file_size} stored ones; {room} are allowed for all that grow so much"
        )
        self.fail(LIMIT, at, message, hint="pass Limits(document_bytes=...)")

    def limit_growth(self, stored: int, size: int, at: int | None, what: str) -> None:
        """Refuse ``stored`` bytes that become ``size`` when they, and all before them, grow beyond ratio and floor."""
        limits = self.limits
        self._grown += max(0, size - limits.decompression_ratio * stored)
        if self._grown > limits.decompression_floor:
            message = f"{what}: {stored} bytes would become {figure(size)}, too many for ratio and floor of the limits"
            self.fail(LIMIT, at, message, hint="pass Limits(decompression_ratio=..., decompression_floor=...)")

    def limit_files(self, count: int, size: int, what: str) -> None:
        """Refuse a set of too many files, of ``size`` bytes together: an empty one takes as long as one that is not."""
        self.limit("sections", count, None, what)
        few = self.limits.sections // _TINY_SHARE
        if count > few and size < count * _TINY:
            message = f"{what}: {count} have {size} bytes; more than {few} must have {_TINY} each on average"
            self.fail(LIMIT, None, message, hint="pass Limits(sections=...)")

    def limit_passes(self, size: int, file_size: int, what: str) -> None:
        """Count ``size`` more payload bytes that are looked at, and refuse to pass over the file too many times."""
        self._passed += size
        if self._passed > _PASSED:
            self.limit("passes", self._passed // max(1, file_size), None, what)

    def scope(self) -> _Scope:
        """A block whose failure, once recorded, ends there: use nothing computed inside it afterwards."""
        return _Scope(self)

    def _record(
        self,
        rule: Rule,
        at: int | None,
        message: str,
        hint: str | None,
        inner: str | None,
        needs: int | None = None,
    ) -> None:
        self.record(Finding(rule.id, rule.severity, at, message, hint, inner, self.file, needs))

    @contextmanager
    def together(self) -> Iterator[None]:
        """Scopes that all run, and then stand or fall together: what follows may rely on each of them."""
        before = self.abandoned
        yield
        if self.abandoned > before:
            raise _Abandon

    def record(self, finding: Finding) -> None:
        """Put one finding into the report, up to the cap per rule."""
        report = self.report
        assert report is not None, "only a collecting Check records"
        if self._seen[finding.rule] >= self.limits.findings_per_rule:
            report.suppressed[finding.rule] = report.suppressed.get(finding.rule, 0) + 1
            return
        self._seen[finding.rule] += 1
        report.findings.append(finding)


class _Scope:
    """Ends an abandoned piece of reading; when verifying, an error from below (a source, a decoder) ends here too."""

    def __init__(self, check: Check) -> None:
        self._check = check

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        check = self._check
        if not check.collecting or not isinstance(error, (FormatError, UnsupportedError, _Abandon)):
            return False
        if isinstance(error, FormatError):
            check.record(Finding(error.rule, "error", error.offset, error.message, file=check.file))
        elif isinstance(error, UnsupportedError):  # what cannot be looked at cannot be called fine
            check.record(Finding(UNSUPPORTED.id, UNSUPPORTED.severity, None, str(error), file=check.file))
        check.abandoned += 1
        return True
