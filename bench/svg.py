"""Plots with logarithmic axes, as SVG: the same series give the same bytes. Readable on light and on dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

__all__ = ["Axis", "Series", "draw", "tick"]

Unit = Literal["bytes", "count", "seconds", "GB/s", "MB"]

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 74, 190, 44, 56  # margins; names of the series stand on the right
LINE = 15  # pixels between two names

# A colour of middle lightness reads on white and on black; marks differ too, for who does not see colours.
COLOURS = ("#2f7ed8", "#d9541e", "#2e9e4f", "#a05fc4", "#b58900", "#0d9aa8", "#d03c7c", "#7a8794", "#8a5a2b", "#5b6ee1")
MARKS = ("circle", "square", "diamond", "triangle")

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.title { font-size: 15px; font-weight: 600 }
.grid { stroke: #d0d7de; stroke-width: 1 }
.axis { stroke: #57606a; stroke-width: 1 }
.line { fill: none; stroke-width: 2 }
.other { stroke-dasharray: 5 4 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .grid { stroke: #30363d }
  .axis { stroke: #8b949e }
}
"""


@dataclass(frozen=True, slots=True)
class Axis:
    """What is on an axis, and how its numbers are written."""

    label: str
    unit: Unit


@dataclass(frozen=True, slots=True)
class Series:
    """A line. ``ours`` is drawn through, the others are dashed."""

    name: str
    points: Sequence[tuple[float, float]]
    ours: bool = False


def tick(value: float, unit: Unit) -> str:
    """A power of ten as people write it.

    >>> tick(1e-3, "seconds"), tick(1e9, "bytes"), tick(1e5, "count"), tick(0.1, "GB/s")
    ('1 ms', '1 GB', '100,000', '0.1')
    """
    match unit:
        case "seconds":
            for factor, name in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
                if value >= factor * 0.999:
                    return f"{value / factor:g} {name}"
            return f"{value / 1e-9:g} ns"
        case "bytes":
            for factor, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
                if value >= factor * 0.999:
                    return f"{value / factor:g} {name}"
            return f"{value:g} B"
        case "count":
            return f"{round(value):,}"
        case _:
            return f"{value:g}"


def draw(title: str, x: Axis, y: Axis, series: Sequence[Series]) -> str:
    """The plot of ``series``, whose values are all above zero."""
    xs = _decades([point[0] for one in series for point in one.points])
    ys = _decades([point[1] for one in series for point in one.points])
    across = _scale(xs, LEFT, WIDTH - RIGHT)
    up = _scale(ys, HEIGHT - BOTTOM, TOP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<text class="title" x="{LEFT}" y="24">{escape(title)}</text>',
    ]
    for power in range(xs[0], xs[1] + 1):
        at = across(10.0**power)
        out.append(f'<line class="grid" x1="{at}" y1="{TOP}" x2="{at}" y2="{HEIGHT - BOTTOM}"/>')
        out.append(f'<text x="{at}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{tick(10.0**power, x.unit)}</text>')
    for power in range(ys[0], ys[1] + 1):
        at = up(10.0**power)
        out.append(f'<line class="grid" x1="{LEFT}" y1="{at}" x2="{WIDTH - RIGHT}" y2="{at}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{at + 4}" text-anchor="end">{tick(10.0**power, y.unit)}</text>')
    middle, foot = (LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM
    out.append(f'<path class="axis" fill="none" d="M{LEFT} {TOP}V{foot}H{WIDTH - RIGHT}"/>')
    out.append(f'<text x="{middle}" y="{HEIGHT - 14}" text-anchor="middle">{escape(x.label)}</text>')
    halfway = (TOP + foot) / 2
    out.append(f'<text transform="translate(16 {halfway}) rotate(-90)" text-anchor="middle">{escape(y.label)}</text>')
    places = [[(across(a), up(b)) for a, b in sorted(one.points)] for one in series]
    names = _apart([points[-1][1] for points in places])
    for number, (one, points, name_at) in enumerate(zip(series, places, names, strict=True)):
        colour, mark = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]
        path = " ".join(f"{a} {b}" for a, b in points)
        kind = "line" if one.ours else "line other"
        out.append(f'<polyline class="{kind}" stroke="{colour}" points="{path}"/>')
        out += [_mark(mark, a, b, colour) for a, b in points]
        end_x, end_y = points[-1]
        out.append(f'<path stroke="{colour}" opacity="0.5" d="M{end_x + 5} {end_y}L{WIDTH - RIGHT + 8} {name_at}"/>')
        out.append(_mark(mark, WIDTH - RIGHT + 14, name_at, colour))
        out.append(f'<text x="{WIDTH - RIGHT + 23}" y="{round(name_at + 4, 1)}">{escape(one.name)}</text>')
    return "\n".join([*out, "</svg>", ""])


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten around all values, at least one decade apart."""
    low = math.floor(math.log10(min(values)) + 1e-9)
    high = math.ceil(math.log10(max(values)) - 1e-9)
    return low, max(high, low + 1)


class _scale:  # noqa: N801  # called like a function
    """From a value to a place between two pixels."""

    def __init__(self, decades: tuple[int, int], start: float, stop: float) -> None:
        self.low, self.high = decades
        self.start, self.stop = start, stop

    def __call__(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return round(self.start + share * (self.stop - self.start), 1)


def _apart(wanted: Sequence[float]) -> list[float]:
    """Places near those wanted, in the same order, at least a line apart and inside the plot."""
    order = sorted(range(len(wanted)), key=lambda number: (wanted[number], number))
    found = [0.0] * len(wanted)
    low = float(TOP)
    for place, number in enumerate(order):
        highest = HEIGHT - BOTTOM - LINE * (len(order) - 1 - place)
        at = max(low, min(wanted[number], highest))
        found[number] = round(at, 1)
        low = at + LINE
    return found


def _mark(kind: str, x: float, y: float, colour: str) -> str:
    if kind == "circle":
        return f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>'
    corners = {
        "square": ((-3, -3), (3, -3), (3, 3), (-3, 3)),
        "diamond": ((0, -4.5), (4.5, 0), (0, 4.5), (-4.5, 0)),
        "triangle": ((0, -4), (4, 3.5), (-4, 3.5)),
    }[kind]
    points = " ".join(f"{round(x + a, 1)} {round(y + b, 1)}" for a, b in corners)
    return f'<polygon points="{points}" fill="{colour}"/>'
