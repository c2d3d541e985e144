"""Which plots there are, and how they are made from a record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench import svg
from bench.figures import median, throughput
from bench.record import Line, Record

__all__ = ["PLOTS", "draw_all"]


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot: its title, its axes, and what of a line is its y."""

    title: str
    x: svg.Axis
    y: svg.Axis
    value: Callable[[Line], float]
    keeps: Callable[[str], bool] = lambda series: True


def _gigabytes(line: Line) -> float:
    return (throughput(line) or 0) / 1e9


def _peak(line: Line) -> float:
    return line.peak_mb


def _ours(series: str) -> bool:
    return series.startswith("holdall")


def _some(series: str) -> bool:
    """All libraries, and holdall on a few of the formats."""
    return not _ours(series) or series.endswith((": safetensors", ": gguf", ": oinf"))


TENSORS = svg.Axis("tensors in the file", "count")
SIZE = svg.Axis("size of the file", "bytes")
SECONDS = svg.Axis("time", "seconds")
SPEED = svg.Axis("GB/s", "GB/s")
MEMORY = svg.Axis("peak resident memory, MB", "MB")

PLOTS = {
    "open-tensors": Plot("Opening a file and listing its tensors", TENSORS, SECONDS, median, _some),
    "open-formats": Plot("The same by holdall, in each format", TENSORS, SECONDS, median, _ours),
    "open-size": Plot("Opening a file of 300 tensors", SIZE, SECONDS, median),
    "read-size": Plot("Reading all tensors, every byte touched, warm", SIZE, SPEED, _gigabytes),
    "save-size": Plot("Saving arrays, without fsync", SIZE, SPEED, _gigabytes),
    "convert-size": Plot("Converting safetensors, without fsync", SIZE, SPEED, _gigabytes),
    "cores": Plot("Passes over all bytes, by threads", svg.Axis("threads", "count"), SPEED, _gigabytes, _ours),
    "convert-memory": Plot("Peak memory of converting", SIZE, MEMORY, _peak, lambda series: series != "cp"),
}


def draw_all(record: Record) -> dict[str, str]:
    """The plots that a record has figures for, by name."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for result in record.results:
        for name in result.plots:
            for line in result.lines:
                if line.series and line.x and PLOTS[name].keeps(line.series):
                    points = found.setdefault(name, {}).setdefault(line.series, [])
                    points.append((line.x, PLOTS[name].value(line)))
    return {name: _draw(PLOTS[name], found[name]) for name in PLOTS if name in found}


def _draw(plot: Plot, lines: dict[str, list[tuple[float, float]]]) -> str:
    series = [svg.Series(name, points, ours=_ours(name)) for name, points in lines.items()]
    return svg.draw(plot.title, plot.x, plot.y, series)
