"""The report of two traces as an HTML page, an SVG plot or JSON."""

from __future__ import annotations

import json
from math import ceil, floor, isfinite, log10
from typing import TYPE_CHECKING, Any

from holdall.base.text import html_text
from holdall.report.html import render_page

if TYPE_CHECKING:
    from holdall.operations.trace import TraceDifference, TraceStep

__all__ = ["RENDERERS", "trace_to_dict"]

_COLUMNS = ("tensor", "step", "verdict", "largest error", "RMSE", "cosine", "detail")
_PAINT = {"within": "#4d9078", "beyond": "#c8553d"}
_ORDERS = {
    "listed": "as listed",
    "file": "that of the file",
    "names": "by the names of the tensors: the archive is sorted by name",
}


def trace_to_dict(found: TraceDifference) -> dict[str, Any]:
    """Return the comparison for programs. JSON has no infinity, so that it is a text there."""
    first = found.first
    return {
        "a": found.a,
        "b": found.b,
        "different": bool(found),
        "tolerance": found.tolerance,
        "order": found.order,
        "first": None if first is None else first.name,
        "steps": [_step_to_dict(step) for step in found.steps],
    }


def _step_to_dict(step: TraceStep) -> dict[str, Any]:
    facts: dict[str, Any] = {"step": step.number, "name": step.name, "verdict": step.verdict}
    facts["error"] = step.error if step.error is None or isfinite(step.error) else str(step.error)
    if step.distance is not None:
        facts |= {"rmse": step.distance.rmse, "cosine": step.distance.cosine, "wild": step.distance.wild}
    return facts | ({"detail": step.detail} if step.detail else {})


def _render_json(found: TraceDifference) -> str:
    return json.dumps(trace_to_dict(found), indent=1, allow_nan=False) + "\n"


def _render_html(found: TraceDifference) -> str:
    first = found.first
    facts = [
        ("first beyond the tolerance", "none" if first is None else f"step {first.number}, {first.name}"),
        ("tolerance", f"{found.tolerance:g}, of the largest absolute difference"),
        ("steps", f"{len(found.steps)}, {len(found.missing)} of them in one trace only"),
        ("order of execution", _ORDERS[found.order]),
    ]
    sections = [("Error over steps", f"<div>{_plot(found)}</div>")] if found.steps else []
    return render_page(f"{found.a} and {found.b}", facts, sections, _COLUMNS, map(_cells_of, found.steps))


def _cells_of(step: TraceStep) -> list[str]:
    d = step.distance
    numbers = ["", ""] if d is None else [f"{d.rmse:.4g}", f"{d.cosine:.6f}"]
    error = "" if step.error is None else f"{step.error:.4g}"
    return [step.name, str(step.number), step.verdict, error, *numbers, step.detail]


def _render_svg(found: TraceDifference) -> str:
    return _plot(found) + "\n"


def _plot(found: TraceDifference) -> str:
    """Plot the error of each step on a scale of powers of ten, with the tolerance as a line.

    Errors of zero lie on the lowest line, infinite ones on the highest.
    """
    width, height, left, bottom, above = 1060, 320, 70, 44, 16
    low, high = _find_decades(found)

    def x(number: float) -> float:
        return left + 14 + (width - left - 28) * (number - 0.5) / max(1, len(found.steps))

    def y(value: float) -> float:
        decade = high if value == float("inf") else log10(value) if value > 0 else low
        return height - bottom - (height - bottom - above) * (min(max(decade, low), high) - low) / (high - low)

    def line(at: float, more: str) -> str:
        return f'<line x1="{left}" x2="{width - 10}" y1="{at:.1f}" y2="{at:.1f}" {more}/>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="100%" role="img" '
        'aria-label="largest error of each step" font-family="system-ui,sans-serif" font-size="11">'
    ]
    for decade in range(low, high + 1, max(1, (high - low) // 8)):
        parts.append(line(y(10.0**decade), 'stroke="#d9dee5"'))
        parts.append(f'<text x="{left - 6}" y="{y(10.0**decade) + 4:.1f}" text-anchor="end" fill="#667385">'
                     f"{'0' if decade == low else f'1e{decade}'}</text>")  # fmt: skip
    if found.tolerance > 0:
        parts.append(line(y(found.tolerance), 'stroke="#c8553d" stroke-dasharray="6 4"'))
    for step in found.steps:
        if step.error is not None:
            text = f"step {step.number}, {step.name}: {step.error:.4g}"
            parts.append(
                f'<circle cx="{x(step.number):.1f}" cy="{y(step.error):.1f}" r="{4 if len(found.steps) <= 300 else 2}" '
                f'fill="{_PAINT[step.verdict]}"><title>{html_text(text)}</title></circle>'
            )
    first = found.first
    if first is not None:
        place, end = x(first.number), "end" if first.number > len(found.steps) / 2 else "start"
        parts.append(f'<line x1="{place:.1f}" x2="{place:.1f}" y1="{above}" y2="{height - bottom}" stroke="#c8553d"/>')
        parts.append(
            f'<text x="{place:.1f}" y="{above - 4}" text-anchor="{end}" fill="#c8553d">{html_text(first.name)}</text>'
        )
    caption = f"largest absolute difference over {len(found.steps)} steps; the dashed line is {found.tolerance:g}"
    parts.append(f'<text x="{width / 2}" y="{height - 12}" text-anchor="middle" fill="#667385">{caption}</text></svg>')
    return "".join(parts)


def _find_decades(found: TraceDifference) -> tuple[int, int]:
    """Find the powers of ten at the bottom and the top: around all errors above 0, and the tolerance."""
    values = [step.error for step in found.steps if step.error is not None and 0 < step.error < float("inf")]
    values += [found.tolerance] if found.tolerance > 0 else []
    if not values:
        return -1, 1
    return floor(log10(min(values))) - 1, ceil(log10(max(values))) + 1


RENDERERS = {".html": _render_html, ".htm": _render_html, ".svg": _render_svg, ".json": _render_json}
