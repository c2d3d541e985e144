"""The report for people: Markdown, and one HTML page that needs nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape
from itertools import groupby
from math import floor, isfinite, log10
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdall.quant.report import QuantReport, TensorError

__all__ = ["html", "markdown"]

COLUMNS = ("tensor", "method", "shape", "bits/weight", "RMSE", "relative", "max error", "SNR dB", "cosine")

_COLORS = ("#3b6fb6", "#c8553d", "#4d9078", "#8e6bb0", "#b8862b", "#5b5b5b", "#2a9db0", "#a84a7a")


def _number(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}g}" if isfinite(value) else ("exact" if value > 0 else "none")


def _cells(each: TensorError) -> list[str]:
    m = each.measures
    return [
        each.name,
        each.method,
        "×".join(map(str, each.shape)),
        f"{m.bits_per_weight:.3f}",
        _number(m.rmse),
        _number(m.relative),
        _number(m.max_error),
        _number(m.snr_db),
        f"{m.cosine:.6f}",
    ]


def _summary(report: QuantReport) -> list[tuple[str, str]]:
    total = report.total
    return [
        ("mode", report.mode or "not stated"),
        ("tensors", f"{len(report.tensors)} quantized, {report.untouched} as they were"),
        ("bytes", f"{report.source_bytes:,} before, {report.target_bytes:,} after"),
        ("bits per weight", f"{total.bits_per_weight:.3f}"),
        ("RMSE", _number(total.rmse)),
        ("relative error", _number(total.relative)),
        ("largest error", _number(total.max_error)),
        ("signal to noise", f"{_number(total.snr_db)} dB"),
        ("cosine", f"{total.cosine:.6f}"),
    ]


def markdown(report: QuantReport) -> str:
    """Tables for a page of notes."""

    def cell(text: str) -> str:
        return text.replace("|", "\\|").replace("\n", " ")

    lines = [f"# Quantization: {cell(report.source)} to {cell(report.target)}", ""]
    lines += [f"- {name}: {value}" for name, value in _summary(report)]
    lines += ["", "| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    lines += ["| " + " | ".join(map(cell, _cells(each))) + " |" for each in report.tensors]
    return "\n".join(lines) + "\n"


# -- HTML ---------------------------------------------------------------------------------------------------------

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


def html(report: QuantReport) -> str:
    """One page with inline style and inline SVG; no script, no link to anywhere."""
    title = f"Quantization: {escape(report.source)} to {escape(report.target)}"
    facts = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in _summary(report))
    head = "".join(f"<th>{name}</th>" for name in COLUMNS)
    rows = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in _cells(each)) + "</tr>" for each in report.tensors)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>\n'
        f"<h1>{title}</h1>\n<dl>{facts}</dl>\n"
        f"<h2>Error by layer</h2>\n{_by_layer(report)}\n"
        f'<h2>Where it is worst</h2>\n<div class="plots">{_histograms(report)}</div>\n'
        f'<h2>All tensors</h2>\n<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>\n</body></html>\n"
    )


def _methods(report: QuantReport) -> dict[str, str]:
    names = sorted({each.method for each in report.tensors})
    return {name: _COLORS[number % len(_COLORS)] for number, name in enumerate(names)}


def _ticks(top: float) -> list[float]:
    """A few round numbers from 0 up to ``top``, which is above 0."""
    step = 10.0 ** floor(log10(top))
    while top / step < 3:
        step /= 2
    return [step * number for number in range(int(top / step) + 1)]


def _layer(name: str) -> int | None:
    """The number of the layer that a tensor belongs to, by the first number that stands alone in its name."""
    return next((int(part) for part in re.split(r"[./_]", name) if part.isdecimal() and len(part) < 6), None)


def _by_layer(report: QuantReport) -> str:
    """A dot for each tensor, layer by layer: relative error upwards, colour by method."""
    width, height, left, bottom, above = 1060, 300, 60, 48, 14
    colors = _methods(report)
    layers = {each.name: _layer(each.name) for each in report.tensors}
    ordered = sorted(report.tensors, key=lambda each: -1 if layers[each.name] is None else layers[each.name] or 0)
    values = [each.measures.relative if isfinite(each.measures.relative) else 1.0 for each in ordered]
    top = max(values) * 1.08 or 1.0

    def x(number: float) -> float:
        return left + 14 + (width - left - 28) * (number + 0.5) / len(values)

    def y(value: float) -> float:
        return height - bottom - (height - bottom - above) * value / top

    label = "relative error of each tensor"
    parts = [f'<svg viewBox="0 0 {width} {height}" width="100%" role="img" aria-label="{label}">']
    for tick in _ticks(top):
        parts.append(f'<line class="axis" x1="{left}" x2="{width - 10}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(f'<text x="{left - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:.3g}</text>')
    parts += _layer_marks([layers[each.name] for each in ordered], x, above, height - bottom)
    for number, (each, value) in enumerate(zip(ordered, values, strict=True)):
        text = f"{escape(each.name)} ({each.method}): relative error {value:.4g}"
        parts.append(
            f'<circle cx="{x(number):.1f}" cy="{y(value):.1f}" r="{4 if len(values) <= 300 else 2}" '
            f'fill="{colors[each.method]}" fill-opacity="0.8"><title>{text}</title></circle>'
        )
    caption = "RMSE by RMS of every tensor, layer by layer"
    parts.append(f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle">{caption}</text></svg>')
    key = "".join(f'<span class="key" style="background:{color}"></span>{name}' for name, color in colors.items())
    return f"<div>{''.join(parts)}</div><div>{key}</div>"


def _layer_marks(layers: Sequence[int | None], x: Callable[[float], float], above: int, line: int) -> list[str]:
    """The number of each layer below its tensors, and a line where the next one begins."""
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


def _histograms(report: QuantReport) -> str:
    by_name = {each.name: each for each in report.tensors}
    return "".join(_histogram(by_name[name], _methods(report)) for name in report.worst)


def _histogram(each: TensorError, colors: dict[str, str]) -> str:
    """How the errors of one tensor are spread."""
    width, height, bottom, above = 340, 170, 24, 10
    bins = each.errors
    if bins is None or not any(bins.counts):
        return ""
    top, step = max(bins.counts), (width - 20) / len(bins.counts)
    bars = []
    for number, count in enumerate(bins.counts):
        tall = (height - bottom - above) * count / top
        bars.append(
            f'<rect x="{10 + number * step:.1f}" y="{height - bottom - tall:.1f}" width="{step - 1:.1f}" '
            f'height="{tall:.1f}" fill="{colors[each.method]}"><title>{count:,} values</title></rect>'
        )
    line = height - bottom
    caption = f"{escape(each.name)}: {each.method}, relative error {each.measures.relative:.4g}"
    return (
        f'<figure><svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="histogram of errors">'
        f'{"".join(bars)}<line class="axis" x1="10" x2="{width - 10}" y1="{line}" y2="{line}"/>'
        f'<text x="10" y="{height - 8}">{-bins.limit:.3g}</text>'
        f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle">0</text>'
        f'<text x="{width - 10}" y="{height - 8}" text-anchor="end">{bins.limit:.3g}</text></svg>'
        f"<figcaption>{caption}</figcaption></figure>"
    )
