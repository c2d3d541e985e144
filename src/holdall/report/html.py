"""Parts of a report page: one HTML file with inline style and inline SVG, which loads nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import floor, log10

from holdall.base.text import html_text

__all__ = ["Dot", "assign_colors", "plot_by_layer", "plot_histogram", "render_page"]

_COLORS = ("#3b6fb6", "#c8553d", "#4d9078", "#8e6bb0", "#b8862b", "#5b5b5b", "#2a9db0", "#a84a7a")


_STYLE = """
:root{color-scheme:light dark;--ink:#1d2733;--soft:#667385;--line:#d9dee5;--back:#fff;--plate:#f6f8fa}
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ee;--soft:#98a3b3;--line:#38414d;--back:#14181e;--plate:#1c222a}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);margin:2rem auto;max-width:72rem;
padding:0 1rem}
h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin-top:2rem}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(15rem,1fr));gap:.5rem}
dl div{background:var(--plate);border-radius:6px;padding:.5rem .8rem}dt{color:var(--soft);font-size:.8rem}dd{margin:0}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.87rem}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left}th{color:var(--soft);font-weight:600}
svg{background:var(--plate);border-radius:6px;max-width:100%;height:auto}svg text{fill:var(--soft);font:11px system-ui}
svg .axis{stroke:var(--line)}.key{display:inline-block;width:.8em;height:.8em;border-radius:50%;margin:0 .3em 0 1em}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(21rem,1fr));gap:1rem}
figure{margin:0}figcaption{font-size:.83rem;color:var(--soft);overflow-wrap:anywhere}
"""


def render_page(
    title: str,
    facts: Iterable[tuple[str, str]],
    sections: Iterable[tuple[str, str]],
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
) -> str:
    """Make a page of a title, facts, plots, and a table of all tensors. It has no scripts and no links."""
    shown = "".join(f"<div><dt>{html_text(name)}</dt><dd>{html_text(value)}</dd></div>" for name, value in facts)
    plots = "".join(f"<h2>{html_text(heading)}</h2>\n{body}\n" for heading, body in sections)
    head = "".join(f"<th>{html_text(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{html_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html_text(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>\n'
        f"<h1>{html_text(title)}</h1>\n<dl>{shown}</dl>\n{plots}"
        f'<h2>All tensors</h2>\n<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>\n</body></html>\n"
    )


def assign_colors(groups: Iterable[str]) -> dict[str, str]:
    """A colour for each group."""
    return {name: _COLORS[number % len(_COLORS)] for number, name in enumerate(sorted(set(groups)))}


def _choose_ticks(top: float) -> list[float]:
    """Choose a few round numbers from 0 up to ``top``, which is above 0."""
    step = 10.0 ** floor(log10(top))
    while top / step < 3:
        step /= 2
    return [step * number for number in range(int(top / step) + 1)]


def _find_layer(name: str) -> int | None:
    """Find the layer of a tensor: the first number between dots, slashes or underscores in its name."""
    return next((int(part) for part in re.split(r"[./_]", name) if part.isdecimal() and len(part) < 6), None)


@dataclass(frozen=True, slots=True)
class Dot:
    """One tensor in a plot: ``group`` gives the colour, ``value`` the height."""

    name: str
    group: str
    value: float


def plot_by_layer(dots: Sequence[Dot], what: str, caption: str) -> str:
    """A plot with a dot for each tensor, layer by layer; ``what`` names the values."""
    width, height, left, bottom, above = 1060, 300, 60, 48, 14
    paint = assign_colors(dot.group for dot in dots)
    layers = {dot.name: _find_layer(dot.name) for dot in dots}
    ordered = sorted(dots, key=lambda dot: -1 if layers[dot.name] is None else layers[dot.name] or 0)
    top = max((dot.value for dot in dots), default=0.0) * 1.08 or 1.0

    def x(number: float) -> float:
        return left + 14 + (width - left - 28) * (number + 0.5) / max(1, len(ordered))

    def y(value: float) -> float:
        return height - bottom - (height - bottom - above) * value / top

    parts = [
        f'<svg viewBox="0 0 {width} {height}" width="100%" role="img" aria-label="{html_text(what)} of each tensor">'
    ]
    for tick in _choose_ticks(top):
        parts.append(f'<line class="axis" x1="{left}" x2="{width - 10}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(f'<text x="{left - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:.3g}</text>')
    parts += _mark_layers([layers[dot.name] for dot in ordered], x, above, height - bottom)
    for number, dot in enumerate(ordered):
        text = f"{html_text(dot.name)} ({html_text(dot.group)}): {html_text(what)} {dot.value:.4g}"
        parts.append(
            f'<circle cx="{x(number):.1f}" cy="{y(dot.value):.1f}" r="{4 if len(ordered) <= 300 else 2}" '
            f'fill="{paint[dot.group]}" fill-opacity="0.8"><title>{text}</title></circle>'
        )
    parts.append(f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle">{html_text(caption)}</text></svg>')
    key = "".join(f'<span class="key" style="background:{color}"></span>{html_text(n)}' for n, color in paint.items())
    return f"<div>{''.join(parts)}</div><div>{key}</div>"


def _mark_layers(layers: Sequence[int | None], x: Callable[[float], float], above: int, line: int) -> list[str]:
    """Return the number of each layer below its tensors, and a line where the next one begins."""
    found = []
    start = 0
    for layer, group in groupby(layers):
        stop = start + len(list(group))
        if start:
            found.append(
                f'<line class="axis" x1="{x(start - 0.5):.1f}" x2="{x(start - 0.5):.1f}" y1="{above}" y2="{line}"/>'
            )
        if layer is not None and x(stop) - x(start) > 14:  # room for a number
            found.append(
                f'<text x="{x((start + stop - 1) / 2):.1f}" y="{line + 16}" text-anchor="middle">{layer}</text>'
            )
        start = stop
    return found


def plot_histogram(counts: Sequence[int], limit: float, color: str, caption: str) -> str:
    """A plot with bars over ``-limit..limit``; empty when all counts are 0."""
    width, height, bottom, above = 340, 170, 24, 10
    if not any(counts):
        return ""
    top, step = max(counts), (width - 20) / len(counts)
    bars = []
    for number, count in enumerate(counts):
        tall = (height - bottom - above) * count / top
        bars.append(
            f'<rect x="{10 + number * step:.1f}" y="{height - bottom - tall:.1f}" width="{step - 1:.1f}" '
            f'height="{tall:.1f}" fill="{color}"><title>{count:,} values</title></rect>'
        )
    line = height - bottom
    return (
        f'<figure><svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="histogram of errors">'
        f'{"".join(bars)}<line class="axis" x1="10" x2="{width - 10}" y1="{line}" y2="{line}"/>'
        f'<text x="10" y="{height - 8}">{-limit:.3g}</text>'
        f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle">0</text>'
        f'<text x="{width - 10}" y="{height - 8}" text-anchor="end">{limit:.3g}</text></svg>'
        f"<figcaption>{html_text(caption)}</figcaption></figure>"
    )
