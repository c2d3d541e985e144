"""The report of a quantization as an HTML page, as Markdown or as JSON."""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING

from holdall.base.text import file_text, markdown_text
from holdall.report.html import Dot, assign_colors, plot_by_layer, plot_histogram, render_page

if TYPE_CHECKING:
    from holdall.quant.report import QuantReport, TensorError

__all__ = ["RENDERERS"]

_COLUMNS = ("tensor", "method", "shape", "bits/weight", "RMSE", "relative", "max error", "SNR dB", "cosine")


def _format_number(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}g}" if isfinite(value) else ("exact" if value > 0 else "none")


def _cells_of(each: TensorError) -> list[str]:
    m = each.measures
    return [
        each.name,
        each.method,
        "×".join(map(str, each.shape)),
        f"{m.bits_per_weight:.3f}",
        _format_number(m.rmse),
        _format_number(m.relative),
        _format_number(m.max_error),
        _format_number(m.snr_db),
        f"{m.cosine:.6f}",
    ]


def _summarize(report: QuantReport) -> list[tuple[str, str]]:
    total = report.total
    return [
        ("mode", report.mode or "not stated"),
        ("tensors", f"{len(report.tensors)} quantized, {report.untouched} unchanged"),
        ("bytes", f"{report.source_bytes:,} before, {report.target_bytes:,} after"),
        ("bits per weight", f"{report.bits_per_weight:.3f}, of the whole model"),
        ("RMSE", _format_number(total.rmse)),
        ("relative error", _format_number(total.relative)),
        ("largest error", _format_number(total.max_error)),
        ("signal to noise", f"{_format_number(total.snr_db)} dB"),
        ("cosine", f"{total.cosine:.6f}"),
    ]


def _render_markdown(report: QuantReport) -> str:
    """Return the report as Markdown: facts, and a table of all tensors."""
    lines = [f"# Quantization: {markdown_text(report.source)} to {markdown_text(report.target)}", ""]
    lines += [f"- {name}: {value}" for name, value in _summarize(report)]
    lines += ["", "| " + " | ".join(_COLUMNS) + " |", "|" + " --- |" * len(_COLUMNS)]
    for each in report.tensors:
        name, *measured = _cells_of(each)
        lines.append(f"| {markdown_text(name)} | {' | '.join(measured)} |")
    return "\n".join(lines) + "\n"


def _render_html(report: QuantReport) -> str:
    """Return one page with the error of every tensor, and histograms of the worst ones."""
    dots = [
        Dot(t.name, t.method, t.measures.relative if isfinite(t.measures.relative) else 1.0) for t in report.tensors
    ]
    by_layer = plot_by_layer(dots, "relative error", "RMSE by RMS of every tensor, layer by layer")
    return render_page(
        f"Quantization: {file_text(report.source)} to {file_text(report.target)}",
        _summarize(report),
        [("Error by layer", by_layer), ("Where it is worst", f'<div class="plots">{_plot_histograms(report)}</div>')],
        _COLUMNS,
        map(_cells_of, report.tensors),
    )


def _plot_histograms(report: QuantReport) -> str:
    by_name = {each.name: each for each in report.tensors}
    paint = assign_colors(each.method for each in report.tensors)
    found = []
    for each in (by_name[name] for name in report.worst):
        if each.errors is not None:
            caption = f"{each.name}: {each.method}, relative error {each.measures.relative:.4g}"
            found.append(plot_histogram(each.errors.counts, each.errors.limit, paint[each.method], caption))
    return "".join(found)


def _render_json(report: QuantReport) -> str:
    """Return the report for programs."""
    return json.dumps(report.as_dict(), indent=1, allow_nan=False) + "\n"


RENDERERS = {".html": _render_html, ".htm": _render_html, ".json": _render_json, ".md": _render_markdown}
