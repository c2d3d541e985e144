"""How readers report what is wrong with a file: rules, findings, reports, and the Check that raises or collects.

A reader is written once. Opening a file runs it with a :class:`Check` that raises at the first breach;
verifying runs the same code with one that records every breach it can reach::

    with check.scope():                       # a failure in here ends here
        if header.version not in (1, 2):
            check.fail(VERSION, 5, f"version {header.version} is unknown")

``fail`` never returns. When verifying it is recorded and the nearest enclosing ``scope`` is abandoned,
so code after a scope must use nothing computed inside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NoReturn

from holdall.base.text import plural
from holdall.errors import FormatError, LimitError, UnsupportedError
from holdall.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["LEVELS", "SEVERITIES", "Check", "Finding", "Level", "Report", "Rule", "Severity", "figure"]

Level = Literal["structure", "full", "strict"]
Severity = Literal["error", "unread", "warning", "note"]  # unread: it may be intact, and holdall cannot read it

LEVELS: tuple[Level, ...] = ("structure", "full", "strict")
SEVERITIES: tuple[Severity, ...] = ("error", "unread", "warning", "note")

_PASSED = 64 << 20  # payload bytes that may always be read, whatever the size of the file
_DOCUMENT_SHARE = 8  # a compressed document may always expand to an eighth of its file
_TINY = 1 << 10  # if the files of a set have fewer bytes on average,
_TINY_SHARE = 64  # the limit on their number is divided by this


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a format.

    ``level`` is the lowest level of verification that checks the rule. ``open`` enforces structure rules only.
    """

    id: str
    text: str
    level: Level = "structure"
    severity: Severity = "error"


LIMIT = Rule("core.limit", "the file stays within the Limits", severity="unread")
SHORT = Rule("core.short", "the file is as long as it was when it was opened")
UNSUPPORTED = Rule("core.unsupported", "the file uses only supported features", severity="unread")
UNOWNED = Rule("core.unowned", "every byte belongs to a header, a table, a payload or zero padding", "strict")


@dataclass(frozen=True, slots=True)
class Finding:
    """One breach of one rule.

    ``offset`` is the byte in the file; ``inner`` is the place inside a compressed block or a JSON or msgpack document;
    ``file`` is the member when the model has several files; ``needs`` is the size that the file should have, where it
    states one and is shorter; ``size`` is how many bytes from the offset on are damaged, where a hash says so.
    """

    rule: str
    severity: Severity
    offset: int | None
    message: str
    hint: str | None = None
    inner: str | None = None
    file: str | None = None
    needs: int | None = None
    size: int | None = None


@dataclass(slots=True)
class Report:
    """All findings of one verification.

    Of each rule only some findings are kept. ``suppressed`` counts the others by rule, ``unlisted`` by severity.
    ``checked`` and ``unchecked`` say how far the checks went in a file of which not all was looked at: it was not read,
    or only in part, or it holds what no rule is about, such as a program.

    >>> report = Report("model.oinf", "oinf", "full")
    >>> report.ok
    True
    """

    path: str
    format: str | None
    level: Level
    findings: list[Finding] = field(default_factory=list)
    suppressed: dict[str, int] = field(default_factory=dict)
    unlisted: Counter[Severity] = field(default_factory=Counter)
    checked: str = ""
    unchecked: str = ""

    @property
    def ok(self) -> bool:
        """True when all was read and no finding is an error, be it listed or suppressed."""
        return self.verdict == "ok"

    @property
    def verdict(self) -> Literal["ok", "not ok", "not read"]:
        """``not read``: nothing is known to be wrong, but holdall cannot read the file, or a part of it."""
        counts = self.counts
        return "not ok" if counts["error"] else "not read" if counts["unread"] else "ok"

    @property
    def counts(self) -> Counter[Severity]:
        """The number of findings by severity, those included that are not listed."""
        return self.unlisted + Counter(finding.severity for finding in self.findings)

    def suppress(self, rule: str, severity: Severity, count: int = 1) -> None:
        """Count findings of a rule that are not listed."""
        self.suppressed[rule] = self.suppressed.get(rule, 0) + count
        self.unlisted[severity] += count

    def __str__(self) -> str:
        counts = self.counts
        summary = ", ".join(plural(counts[kind], kind) for kind in SEVERITIES if counts[kind])
        return f"{self.path}: {summary or 'ok'} ({self.format or 'unknown format'}, level {self.level})"


def figure(number: int) -> str:
    """The text of a number for a message. Products of hostile dims have more digits than Python prints.

    >>> figure(2040), figure(2**90)
    ('2040', 'about 2^90')
    """
    return str(number) if number.bit_length() <= 64 else f"about 2^{number.bit_length() - 1}"


class _Abandon(Exception):
    """Leaves the nearest scope after a failure was recorded."""


class Check:
    """Raises (when opening) or records (when verifying) the breaches that a reader finds.

    ``Check()`` raises. ``Check(report=...)`` collects into the report and checks every rule up to the report's level.
    """

    def __init__(
        self, *, limits: Limits = DEFAULT_LIMITS, report: Report | None = None, proving: bool | None = None
    ) -> None:
        self.limits = limits
        self.report = report
        # Hashes of payloads are compared before bytes are returned (True), never (False), or while reading (None).
        self.proving = proving
        self.abandoned = 0  # scopes so far
        self._passed = 0  # payload bytes so far
        self._documents = self._grown = 0  # bytes so far beyond the shares of the files
        self.beyond: dict[object, int] = {}  # memory beyond the share of each file: see :mod:`holdall.base.expansion`
        self._seen: Counter[str] = Counter()
        self.file: str | None = None  # the member that findings are about, for models of several files

    @property
    def collecting(self) -> bool:
        """True when verifying: breaches are recorded instead of raised."""
        return self.report is not None

    def wants(self, level: Level) -> bool:
        """True when rules of this level are checked."""
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
        """Report that the file breaks ``rule`` at byte ``at``. Never returns."""
        if self.report is None:
            if rule is LIMIT:
                raise LimitError(rule.id, at, message if hint is None else f"{message}; {hint}")
            error = FormatError(rule.id, at, message if inner is None else f"{message} [{inner}]")
            error.unread = rule.severity == "unread"
            raise error
        self._record(rule, at, message, hint, inner, needs)
        raise _Abandon

    def note(
        self,
        rule: Rule,
        at: int | None,
        message: str,
        *,
        hint: str | None = None,
        inner: str | None = None,
        size: int | None = None,
    ) -> None:
        """Record a breach and go on. Does nothing when opening, or below the rule's level."""
        if self.report is not None and self.wants(rule.level):
            self._record(rule, at, message, hint, inner, size=size)

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

        For a structure rule this behaves as :meth:`fail` after the bad rows are recorded, else as :meth:`note`.
        ``needs`` returns the size that the file should have for all rows.
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
            self.report.suppress(rule.id, rule.severity, len(bad) - kept)
        if rule.level == "structure":
            raise _Abandon

    def limit(self, name: str, value: int, at: int | None, what: str) -> None:
        """Refuse ``value`` of ``what`` when it is above the limit called ``name``."""
        cap = getattr(self.limits, name)
        if value > cap:
            self.exceed(name, at, f"{what}: {figure(value)} is above the limit of {cap}")

    def exceed(self, name: str, at: int | None, message: str) -> NoReturn:
        """Refuse a file that exceeds the limit called ``name``."""
        hint = f"Limits({name}=...), on the command line --limit {name}=..., allows more"
        self.fail(LIMIT, at, message, hint=hint)

    def limit_document(self, size: int, file_size: int, at: int | None, what: str) -> None:
        """Refuse a compressed document that expands to too many bytes, unless its file is large too.

        Documents above the share of their file are added up: all files of a set share one limit.
        """
        if size > file_size // _DOCUMENT_SHARE:
            self._documents += size
            self.limit("document_bytes", self._documents, at, what)

    def limit_growth(self, stored: int, size: int, at: int | None, what: str) -> None:
        """Refuse ``stored`` bytes that become ``size`` if they, with all before them, exceed ratio and floor."""
        limits = self.limits
        self._grown += max(0, size - limits.decompression_ratio * stored)
        if self._grown > limits.decompression_floor:
            message = f"{what}: {stored} bytes would become {figure(size)}, too many for ratio and floor of the limits"
            self.exceed("decompression_floor", at, message)

    def limit_model(self, made: int, file_size: int, what: str) -> None:
        """Refuse a model of ``file_size`` stored bytes whose tensors become ``made``, if that exceeds ratio and floor.

        All expansion shares one floor, whatever the tensors are made by: that of compressed indexes counts too.
        """
        limits, total = self.limits, made + self._grown
        ratio = -(-(total - limits.model_floor) // max(1, file_size))
        if ratio > limits.decompression_ratio:
            message = (
                f"{what} of {file_size} bytes become {figure(total)}: above {limits.model_floor}, which are "
                f"always allowed, that is {figure(ratio)} times the files, and {limits.decompression_ratio} are allowed"
            )
            self.exceed("decompression_ratio", None, message)

    def limit_files(self, count: int, size: int, what: str) -> None:
        """Refuse a set of too many files with ``size`` bytes together: an empty file takes as long as a full one."""
        self.limit("sections", count, None, what)
        few = self.limits.sections // _TINY_SHARE
        if count > few and size < count * _TINY:
            message = f"{what}: {count} have {size} bytes; more than {few} must have {_TINY} each on average"
            self.exceed("sections", None, message)

    def limit_passes(self, size: int, file_size: int, what: str, least: int = _PASSED) -> None:
        """Count ``size`` more payload bytes that are read, and refuse to read the file too many times.

        ``least`` bytes may be read whatever the size of the file.
        """
        self._passed += size
        if self._passed > least:
            self.limit("passes", self._passed // max(1, file_size), None, what)

    def scope(self) -> _Scope:
        """A block that is left when a failure is recorded. Use nothing after it that was computed inside."""
        return _Scope(self)

    def _record(
        self,
        rule: Rule,
        at: int | None,
        message: str,
        hint: str | None,
        inner: str | None,
        needs: int | None = None,
        size: int | None = None,
    ) -> None:
        self.record(Finding(rule.id, rule.severity, at, message, hint, inner, self.file, needs, size))

    @contextmanager
    def inside(self, file: str) -> Iterator[None]:
        """A block whose findings are those of ``file``, one of several files of a model."""
        before, self.file = self.file, file
        try:
            yield
        finally:
            self.file = before

    @contextmanager
    def together(self) -> Iterator[None]:
        """A block of scopes that all run. If one of them failed, the block fails, so code after it may rely on all."""
        before = self.abandoned
        yield
        if self.abandoned > before:
            raise _Abandon

    def record(self, finding: Finding) -> None:
        """Add a finding to the report, up to the cap per rule."""
        report = self.report
        assert report is not None, "only a collecting Check records"
        if self._seen[finding.rule] >= self.limits.findings_per_rule:
            report.suppress(finding.rule, finding.severity)
            return
        self._seen[finding.rule] += 1
        report.findings.append(finding)


class _Scope:
    """Ends an abandoned block. When verifying, errors of sources and decoders end here too, and are recorded."""

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
            severity: Severity = "unread" if error.unread else "error"
            check.record(Finding(error.rule, severity, error.offset, error.message, file=check.file))
        elif isinstance(error, UnsupportedError):
            check.record(Finding(UNSUPPORTED.id, UNSUPPORTED.severity, None, str(error), file=check.file))
        check.abandoned += 1
        return True
