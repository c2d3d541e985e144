"""``holdall verify``: everything that is wrong with a file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdall.cli.options import FILE, Reading, each_file, reading
from holdall.cli.output import emit, emit_json, progress
from holdall.cli.text import brief, clean, file_text, plain, plural, shape_text
from holdall.errors import ContentError, FormatError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdall.check import Finding, Level, Report
    from holdall.profiles import Profile
    from holdall.stats import TensorStats
    from holdall.tensor import Tensor

__all__ = ["finding_facts", "finding_lines", "verify"]

_COLOURS = {"error": "red", "warning": "yellow", "note": "blue"}


@click.command(epilog="Example: holdall verify model.oinf --level strict")
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--level", type=click.Choice(["structure", "full", "strict"]), default="full", show_default=True,
              help="structure reads no payload, full adds all hashes, strict every must-be-zero.")  # fmt: skip
@click.option("--profile", metavar="NAME",
              help="Also check that it is this model: all-MiniLM-L6-v2, or a BERT config.json.")  # fmt: skip
@click.option("--stats", is_flag=True, help="Add count, min, max, mean, median, std and a histogram of each tensor.")
@reading
def verify(files: tuple[str, ...], level: Level, profile: str | None, stats: bool, reading: Reading) -> None:
    """Check each FILE and list all findings, with rule and byte. Exits 1 when a file is not ok."""
    wanted = None if profile is None else _profile(profile)

    def act(path: str, number: int) -> bool:
        from holdall.api import verify as check

        with progress(f"verifying {file_text(path)}") as told:
            report = check(
                path,
                level=level,
                format=reading.format,
                limits=reading.limits,
                allowed=reading.allowed,
                progress=told,
            )
        if wanted is not None and report.format is not None:
            report.findings += _against(wanted, path, reading)
        if reading.json:
            facts = _facts(report)
            if stats and report.ok:
                facts["stats"] = [_stats_facts(tensor, found) for tensor, found in _all_stats(path, reading)]
            emit_json(facts)
        else:
            click.echo(_verdict(report))
            emit(line for finding in report.findings for line in finding_lines(finding))
            emit(f"  … and {count:,} more of {clean(rule)}" for rule, count in report.suppressed.items())
            if stats and report.ok:
                for tensor, found in _all_stats(path, reading):
                    emit(_stats_lines(tensor, found))
        return report.ok

    each_file(files, act)


def _profile(name: str) -> Profile:
    """The profile of that name, or the one that follows from the configuration in that file."""
    from holdall import profiles
    from holdall.documents.json import DocumentError, decode

    try:
        if not name.endswith(".json"):
            return profiles.load(name)
        config = decode(Path(name).read_bytes()).value
        return profiles.from_config(config if isinstance(config, dict) else {}, name=name)
    except (ContentError, DocumentError, OSError, UnsupportedError) as error:
        raise click.BadParameter(f"--profile {name}: {error}") from None


def _against(profile: Profile, path: str, reading: Reading) -> list[Finding]:
    """What the file lacks of the profile; nothing when it cannot be opened, which the report says already."""
    from holdall import profiles

    try:
        with reading.open(path) as model:
            return profiles.check(model, profile)
    except (FormatError, UnsupportedError):
        return []


def _verdict(report: Report) -> str:
    severity_of: dict[str, str] = {finding.rule: finding.severity for finding in report.findings}
    counts = Counter(severity_of[finding.rule] for finding in report.findings)
    for rule, count in report.suppressed.items():
        counts[severity_of.get(rule, "error")] += count
    summary = ", ".join(plural(counts[kind], kind) for kind in ("error", "warning", "note") if counts[kind])
    verdict = click.style("ok", fg="green") if report.ok else click.style("not ok", fg="red")
    detail = f"{report.format or 'unknown format'}, level {report.level}"
    return f"{clean(report.path)}: {verdict}{': ' if summary else ''}{summary} ({detail})"


def finding_lines(finding: Finding) -> Iterator[str]:
    """One finding for people."""
    place = "" if finding.offset is None else f" at byte {finding.offset:#x}"
    where = f" of {clean(finding.file)}" if finding.file else ""
    inner = f" [{clean(finding.inner)}]" if finding.inner else ""
    severity = click.style(finding.severity.ljust(7), fg=_COLOURS[finding.severity])
    yield f"  {severity}  {finding.rule}{place}{where}{inner}"
    yield f"           {brief(finding.message)}"
    if finding.hint:
        yield f"           hint: {clean(finding.hint)}"


def finding_facts(finding: Finding) -> dict[str, Any]:
    """One finding for JSON."""
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "offset": finding.offset,
        "message": finding.message,
        "hint": finding.hint,
        "inner": finding.inner,
        "file": finding.file,
    }


def _facts(report: Report) -> dict[str, Any]:
    return {
        "path": report.path,
        "format": report.format,
        "level": report.level,
        "ok": report.ok,
        "findings": [finding_facts(finding) for finding in report.findings],
        "suppressed": report.suppressed,
    }


# -- statistics -------------------------------------------------------------------------------------------------------


def _all_stats(path: str, reading: Reading) -> list[tuple[Tensor, TensorStats | str]]:
    """The statistics of all tensors, gathered before any is printed: a bar and lines do not mix."""
    gathered = []
    with progress(f"statistics of {file_text(path)}") as told:
        done = 0
        for tensor, found, total in _stats(path, reading):
            gathered.append((tensor, found))
            done += tensor.nbytes
            if told is not None:
                told(done, total)
    return gathered


def _stats(path: str, reading: Reading) -> Iterator[tuple[Tensor, TensorStats | str, int]]:
    """Each tensor with its statistics, or with why it has none, and the bytes of them all."""
    from holdall.stats import tensor_stats

    with reading.open(path, mmap=False) as model:  # memory must not grow with the file
        total = model.nbytes
        for tensor in model.tensors:
            if not tensor.has_data:
                yield tensor, "no data", total
                continue
            try:
                yield tensor, tensor_stats(tensor), total
            except FormatError:
                raise
            except (ContentError, UnsupportedError) as error:
                yield tensor, str(error), total


_FIELDS = ("count", "nan", "inf", "min", "max", "mean", "median", "std")


def _stats_facts(tensor: Tensor, found: TensorStats | str) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": tensor.name, "dtype": str(tensor.dtype), "shape": list(tensor.shape)}
    if isinstance(found, str):
        return {**facts, "skipped": found}
    facts.update((name, plain(getattr(found, name))) for name in _FIELDS)
    return {**facts, "histogram": [[plain(row.low), plain(row.high), row.count] for row in found.histogram]}


def _stats_lines(tensor: Tensor, found: TensorStats | str) -> Iterator[str]:
    name = click.style(clean(tensor.name), fg="cyan")
    head = f"  {name}: {tensor.dtype}{shape_text(tensor.shape)}"
    if isinstance(found, str):
        yield f"{head}: {clean(found)}"
        return
    odd = "".join(f", {plural(n, kind)}" for kind, n in (("NaN", found.nan), ("inf", found.inf)) if n)
    yield f"{head}: {plural(found.count, 'element')}{odd}"
    values = ", ".join(f"{name} {_number(getattr(found, name))}" for name in _FIELDS[3:])
    yield f"    {values}"
    most = max((row.count for row in found.histogram), default=0)
    for row in found.histogram:
        span = _number(row.low) if row.low == row.high else f"{_number(row.low)} .. {_number(row.high)}"
        yield f"    {span:>26}  {'█' * max(1, round(30 * row.count / most))} {row.count:,}"


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.6g}"
