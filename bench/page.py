"""docs/benchmarks.md, its plots and the README's figures, all made from a record.

What people write on those pages stays: only what stands between two marks is made here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.case import EACH
from bench.cases import TOPICS
from bench.figures import Verdict, median, throughput, verdicts
from bench.notes import note_on
from bench.plots import PLOTS, draw_all
from bench.record import Record, Result
from bench.work import ROOT

__all__ = ["PAGE", "RECORD", "bar_text", "fill", "generate", "list_all", "readme", "write"]

PAGE = ROOT / "docs" / "benchmarks.md"
RECORD = ROOT / "docs" / "benchmarks.json"
BEGIN, END = "<!-- made by make bench: begin -->", "<!-- made by make bench: end -->"
README_PLOT = "open-tensors"

# The rows of the README: topic, words of the case, of the contender and of the one beside it. Of the bars that have
# them all, the one nearest to failing is shown.
README_ROWS = (
    ("open", ", each format", "holdall: ", "safe_open"),
    ("open", "small and a large", "GB", ""),
    ("read", "arrays of their own", ": safetensors", "load_file"),
    ("read", "as views", ": safetensors", "memmap"),
    ("save", "without fsync", "holdall: safetensors", "save_file"),
    ("save", "without fsync", "holdall: aero", "save_file"),
    ("convert", "5 GB, hf, without", "hf →", "cp"),
    ("convert", "5 GB, aero, without", "→ aero", "cp"),
    ("verify", "CRC-32", "holdall: embd", "zlib"),
    ("verify", "shard hashes", "holdall: aero", "BLAKE3"),
    ("quant", "Quantize a matrix", "reference q4", "gguf-py"),
    ("start", "info", "info: safetensors", "numpy"),
)
UNMEASURED = "No full run is kept yet: `make bench` makes one, and fills in its figures here."


def write(record: Record, root: Path) -> None:
    """The page and its plots under ``root``; the README too where it is that of the project."""
    docs = root / "docs"
    plots = docs / "plots"
    plots.mkdir(parents=True, exist_ok=True)
    drawn = draw_all(record)
    for name in PLOTS:
        if name in drawn:
            (plots / f"{name}.svg").write_text(drawn[name])
        else:
            (plots / f"{name}.svg").unlink(missing_ok=True)
    target = docs / "benchmarks.md"
    target.write_text(fill(PAGE.read_text(), generate(record)))
    if root == ROOT:
        page = ROOT / "README.md"
        page.write_text(fill(page.read_text(), readme(record)))


def fill(page: str, made: str) -> str:
    """``page`` with what stands between the marks replaced."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{made.strip()}\n\n{END}{after}"


# -- the page ---------------------------------------------------------------------------------------------------------


def generate(record: Record) -> str:
    """All that the page has from the record."""
    return "\n".join([*_about(record), *_misses(record), *_plots(record), *_rows(record)])


def _about(record: Record) -> Iterator[str]:
    libraries = ", ".join(f"{name} {version}" for name, version in record.libraries.items())
    if record.quick:
        yield from ["**These are the figures of a quick run, which say little:** sizes are small and turns few.", ""]
    yield f"Measured in {record.minutes:g} minutes on {record.date}: {_machine(record)}."
    yield f"Libraries: {libraries}."
    for when, results in _apart(record).items():
        topics = dict.fromkeys(f"“{TOPICS[result.topic]}”" for result in results)
        yield f"Measured apart from that run, {when}: {', '.join(topics)}."
    yield "All turns of all contenders, with memory and page faults, are in [benchmarks.json](benchmarks.json)."
    yield ""


def _apart(record: Record) -> dict[str, list[Result]]:
    """The results that are not of the run, by when and where they were measured."""
    found: dict[str, list[Result]] = {}
    for result in record.results:
        if result.apart:
            found.setdefault(result.apart, []).append(result)
    return found


def _machine(record: Record) -> str:
    rest = [value for what, value in record.machine.items() if what not in ("CPU", "cores", "memory", "Python")]
    words = "{CPU}, {cores} cores, {memory} of memory".format(**record.machine)
    return ", ".join([words, *rest, f"Python {record.machine['Python']}"])


def _misses(record: Record) -> Iterator[str]:
    """The bars that do not hold, each with the reason that is known."""
    judged = list(verdicts(record))
    missed = [one for one in judged if not one.holds]
    yield from [f"{len(judged) - len(missed)} of {len(judged)} bars hold.", ""]
    if missed and not record.quick:  # a quick run is too small to ask why
        yield from ["## Bars that are missed", ""]
        reasons: dict[str, list[Verdict]] = {}
        for one in missed:
            reasons.setdefault(note_on(one), []).append(one)
        for reason, ones in reasons.items():
            yield from _table(
                ["what", "by", "figure", "bar"],
                ([one.title, one.contender, _figure(one), _limit(one)] for one in ones),
            )
            yield from ["", reason, ""]
    if record.skipped:
        yield from ["## Not measured", "", *(f"- {why}" for why in record.skipped), ""]


def _rows(record: Record) -> Iterator[str]:
    """One row for all bars of a topic that are of one kind and beside one thing."""
    groups: dict[tuple[str, str, str], list[Verdict]] = {}
    for one in verdicts(record):
        groups.setdefault((one.topic, one.bar.kind, one.bar.of.partition(": ")[0]), []).append(one)
    yield from ["## All bars", "", "Each row is the bar of its kind that is nearest to failing.", ""]
    yield from _table(
        ["", "nearest to failing", "by", "figure", "bar", "hold"],
        (_headline(topic, group) for (topic, _, _), group in groups.items()),
    )
    yield ""


def _headline(topic: str, group: list[Verdict]) -> list[str]:
    worst = max(group, key=lambda one: one.closeness)
    held = sum(one.holds for one in group)
    count = f"{held} of {len(group)}"
    return [
        TOPICS[topic],
        worst.title,
        worst.contender,
        _figure(worst),
        _limit(worst),
        count if held == len(group) else f"**{count}**",
    ]


def list_all(record: Record) -> Iterator[str]:
    """Every contender with its speed or time and its memory, and every bar, as lines of plain text."""
    for result in record.results:
        yield f"\n{result.title}"
        for line in result.lines:
            speed = throughput(line)
            figure = f"{speed / 1e9:8.2f} GB/s" if speed and result.unit == "bytes" else f"{_time(median(line)):>13}"
            yield f"  {line.name:44} {figure} {line.peak_mb:8.0f} MB"
    for one in verdicts(record):
        yield f"{'holds ' if one.holds else 'MISSED'} {one.title}: {one.contender}: {bar_text(one)}"


def bar_text(one: Verdict) -> str:
    """Return a bar and its figure as text."""
    return f"{_figure(one)}, where the bar is {_limit(one)}"


def _figure(one: Verdict) -> str:
    match one.bar.kind:
        case "time":
            return f"{_number(one.figure)} × the time of {one.bar.of}"
        case "speed":
            return f"{_number(one.figure)} × the speed of {one.bar.of}"
        case "scaling":
            return f"{_number(one.figure)} × what {one.bar.of} gains"
        case "seconds":
            return _time(one.figure)
        case "memory":
            return f"{one.figure:.0f} MB resident"
        case "each":
            return f"{one.figure:.0f} {EACH}"


def _limit(one: Verdict) -> str:
    match one.bar.kind:
        case "time":
            return f"≤ {one.bar.limit:g}"
        case "speed" | "scaling":
            return f"≥ {one.bar.limit:g}"
        case "seconds":
            return f"< {_time(one.bar.limit)}"
        case "memory":
            return f"< {one.bar.limit:g} MB"
        case "each":
            return f"≤ {one.bar.limit:g}"


def _plots(record: Record) -> Iterator[str]:
    yield from ["## Plots", ""]
    for name in draw_all(record):
        yield from [f"![{PLOTS[name].title}](plots/{name}.svg)", ""]


def _table(columns: list[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield "| " + " | ".join(columns) + " |"
    yield "|---" * len(columns) + "|"
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _number(value: float) -> str:
    """Three digits, never in powers of ten.

    >>> _number(0.01234), _number(12345.0), _number(1.5)
    ('0.0123', '12,300', '1.5')
    """
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 1000 else f"{rounded:.10g}"


def _time(seconds: float) -> str:
    """Seconds with three digits.

    >>> _time(0.01234), _time(12.0), _time(0.0000005)
    ('12.3 ms', '12 s', '0.5 µs')
    """
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= factor:
            return f"{_number(seconds / factor)} {unit}"
    return f"{_number(seconds / 1e-6)} µs"


# -- the README -------------------------------------------------------------------------------------------------------


def readme(record: Record) -> str:
    """The main figures of a full run, and one plot."""
    if record.quick:
        return UNMEASURED
    judged = list(verdicts(record))
    rows = []
    for topic, case, contender, of in README_ROWS:
        asked = [
            one
            for one in judged
            if one.topic == topic and case in one.title and contender in one.contender and of in one.bar.of
            if one.bar.kind != "memory" and bool(one.bar.of) == bool(of)
        ]
        if asked:
            worst = max(asked, key=lambda one: one.closeness)
            others = f" (the worst of {len(asked)})" if len(asked) > 1 else ""
            held = "yes" if worst.holds else "**no**"
            rows.append([worst.title, worst.contender + others, _figure(worst), _limit(worst), held])
    lines = [*_table(["", "by", "figure", "bar", "holds"], rows), ""]
    if any(README_PLOT in result.plots for result in record.results):
        lines += [f"![{PLOTS[README_PLOT].title}](docs/plots/{README_PLOT}.svg)", ""]
    count = sum(one.holds for one in judged)
    apart = ", with what was measured apart" if _apart(record) else ""
    lines.append(
        f"{count} of {len(judged)} bars hold in the run of {record.date} on {_machine(record)}{apart};\n"
        "[docs/benchmarks.md](docs/benchmarks.md) has them all, and how they were measured."
    )
    return "\n".join(lines)
