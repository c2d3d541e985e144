"""``holdall verify``: list everything that is wrong with a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdall.base.check import SEVERITIES
from holdall.base.text import brief, clean, file_text, plural
from holdall.cli.options import EXIT_CODES, FILE, Reading, add_reading_options, add_threads_option, for_each_file
from holdall.cli.output import echo, emit, emit_json, emit_json_list, emit_pairs, hold_back, show_progress
from holdall.cli.side_files import read_side_json
from holdall.cli.summary import content_to_json, encode_facts, format_content, format_facts, gather_facts
from holdall.errors import ContentError, FormatError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdall.base.check import Finding, Level, Report
    from holdall.cli.summary import TensorFacts
    from holdall.limits import Limits
    from holdall.model.model import Model
    from holdall.profiles import Profile

__all__ = ["finding_to_json", "format_finding", "verify"]

_COLOURS = {"error": "red", "unread": "magenta", "warning": "yellow", "note": "blue"}
_VERDICTS = {"ok": "green", "not ok": "red", "not read": "magenta"}


@click.command(epilog="Example: holdall verify model.oinf --level strict")
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--level", type=click.Choice(["structure", "full", "strict"]), default="full", show_default=True,
              help="structure reads no payload, full adds all hashes, strict every must-be-zero.")  # fmt: skip
@click.option("--profile", metavar="NAME",
              help="Also check that it is this model: all-MiniLM-L6-v2, or a BERT config.json.")  # fmt: skip
@click.option("--stats", is_flag=True, help="Add metadata, and values, statistics and a histogram of each tensor.")
@add_threads_option
@add_reading_options
def verify(files: tuple[str, ...], level: Level, profile: str | None, stats: bool, reading: Reading) -> None:
    """Check each FILE and list all findings, with rule and byte. Exits 1 when a file is
    not ok, and 3 when holdall cannot read one, or a part of it, that may be intact."""
    wanted = None if profile is None else _load_profile(profile, reading.limits)

    def act(path: str, number: int) -> int:
        from holdall.operations.open_save import verify as check

        with show_progress(f"verifying {file_text(path)}") as on_progress:
            report = check(
                path,
                level=level,
                format=reading.format,
                limits=reading.limits,
                allowed=reading.allowed,
                follow=reading.follow,
                progress=on_progress,
            )
        if wanted is not None and report.format is not None:
            report.findings += _check_profile(wanted, path, reading)
        if reading.json:
            facts = _to_json(report)
            if stats and report.ok:
                with reading.open(path) as model:
                    facts |= content_to_json(model)
                    # All before the first is printed: an error leaves no half of a document.
                    emit_json_list(facts, "stats", list(map(encode_facts, _gather(path, model))))
            else:
                emit_json(facts)
        else:
            echo(_format_verdict(report))
            emit(line for finding in report.findings for line in format_finding(finding))
            emit(f"  … and {count:,} more of {clean(rule)}" for rule, count in report.suppressed.items())
            if report.unchecked:
                emit_pairs([("checked", report.checked), ("not checked", brief(report.unchecked))], indent="  ")
            if stats and report.ok:
                with reading.open(path) as model:
                    emit(format_content(model))
                    emit(hold_back(map(format_facts, _gather(path, model))))
        return EXIT_CODES[report.verdict]

    for_each_file(files, act)


def _load_profile(name: str, limits: Limits | None) -> Profile:
    """Load a profile by name, or make one from a config.json."""
    from holdall import profiles

    try:
        if not name.endswith(".json"):
            return profiles.load(name)
        config = read_side_json(name, limits)
        return profiles.from_config(config if isinstance(config, dict) else {}, name=name)
    except (ContentError, OSError, UnsupportedError) as error:
        raise click.BadParameter(f"--profile {name}: {error}") from None


def _check_profile(profile: Profile, path: str, reading: Reading) -> list[Finding]:
    """Compare a file with a profile. A file that cannot be opened gives no findings: the report has them."""
    from holdall import profiles

    try:
        with reading.open(path) as model:
            return profiles.check(model, profile)
    except (FormatError, UnsupportedError):
        return []


def _format_verdict(report: Report) -> str:
    counts = report.counts
    # What is not read is in the verdict already.
    summary = ", ".join(plural(counts[kind], kind) for kind in SEVERITIES if counts[kind] and kind != "unread")
    verdict = click.style(report.verdict, fg=_VERDICTS[report.verdict])
    detail = f"{report.format or 'unknown format'}, level {report.level}"
    return f"{file_text(report.path)}: {verdict}{': ' if summary else ''}{summary} ({detail})"


def format_finding(finding: Finding) -> Iterator[str]:
    """Yield the lines of one finding."""
    place = "" if finding.offset is None else f" at byte {finding.offset:#x}"
    where = f" of {file_text(finding.file)}" if finding.file else ""
    inner = f" [{clean(finding.inner)}]" if finding.inner else ""
    severity = click.style(finding.severity.ljust(7), fg=_COLOURS[finding.severity])
    yield f"  {severity}  {finding.rule}{place}{where}{inner}"
    yield f"           {brief(finding.message)}"
    if finding.hint:
        yield f"           hint: {clean(finding.hint)}"


def finding_to_json(finding: Finding) -> dict[str, Any]:
    """Return one finding for JSON."""
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "offset": finding.offset,
        "message": finding.message,
        "hint": finding.hint,
        "inner": finding.inner,
        "file": finding.file,
    }


def _to_json(report: Report) -> dict[str, Any]:
    return {
        "path": report.path,
        "format": report.format,
        "level": report.level,
        "ok": report.ok,
        "verdict": report.verdict,
        "checked": report.checked or None,
        "unchecked": report.unchecked or None,
        "findings": [finding_to_json(finding) for finding in report.findings],
        "suppressed": report.suppressed,
    }


def _gather(path: str, model: Model) -> Iterator[TensorFacts]:
    with show_progress(f"statistics of {file_text(path)}") as on_progress:
        yield from gather_facts(model, on_progress)
