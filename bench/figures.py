"""Medians, ratios, and whether a bar holds: all numbers on the page are made here, from the record."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from bench.case import EACH, Bar
from bench.record import Line, Record, Result

__all__ = ["Verdict", "median", "speed_ratio", "throughput", "time_ratio", "verdicts"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bar, the figure that was found, and whether it holds."""

    topic: str
    title: str
    contender: str
    bar: Bar
    figure: float

    @property
    def holds(self) -> bool:
        """Whether the figure is on the right side."""
        return self.closeness <= 1

    @property
    def closeness(self) -> float:
        """How near to failing: above 1 it has failed."""
        upward = self.bar.kind in ("speed", "scaling")
        return self.bar.limit / self.figure if upward else self.figure / self.bar.limit


def median(line: Line) -> float:
    """Seconds of a turn."""
    return statistics.median(line.seconds)


def time_ratio(line: Line, other: Line) -> float:
    """How many times as long as ``other``, by the fastest turn of each: whatever disturbs a turn makes it longer.

    >>> slow, fast = (Line("", seconds, 0, 0, 0) for seconds in ([2.0, 20.0, 2.2], [1.0, 1.1, 5.0]))
    >>> time_ratio(slow, fast)
    2.0
    """
    return min(line.seconds) / min(other.seconds)


def speed_ratio(line: Line, other: Line) -> float:
    """How many times as fast as ``other``, in what each of them moves."""
    scale = (line.size or 1) / (other.size or 1) if line.size and other.size else 1
    return scale / time_ratio(line, other)


def throughput(line: Line) -> float | None:
    """Units a second, where a turn has a size."""
    return line.size / median(line) if line.size else None


def figure_of(bar: Bar, line: Line, result: Result) -> float | None:
    """Return the number that a bar is compared with; None if the other contender was not measured."""
    match bar.kind:
        case "seconds":
            return median(line)
        case "memory":
            return line.peak_mb
        case "each":
            return float(line.kept[EACH])
        case "time" | "speed":
            other = result.line(bar.of)
            if other is None:
                return None
            return time_ratio(line, other) if bar.kind == "time" else speed_ratio(line, other)
        case "scaling":
            other = result.line(bar.of)
            base, base_of = (result.line(name) for name in bar.bases or ("", ""))
            if other is None or base is None or base_of is None:
                return None
            return speed_ratio(line, base) / speed_ratio(other, base_of)


def verdicts(record: Record) -> Iterator[Verdict]:
    """Every bar of a run."""
    for result in record.results:
        for line in result.lines:
            for bar in line.bars:
                found = [
                    Verdict(result.topic, result.title, line.name, one, figure)
                    for one in (bar, bar.otherwise)
                    if one is not None and (figure := figure_of(one, line, result)) is not None
                ]
                if found:
                    yield min(found, key=lambda one: one.closeness)
