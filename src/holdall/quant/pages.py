"""The report for people: Markdown, and one HTML page that needs nothing else."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from holdall.pages import Dot, colors, dots_by_layer, histogram, page

if TYPE_CHECKING:
    from holdall.quant.report import QuantReport, TensorError

__all__ = ["html", "markdown"]

COLUMNS = ("tensor", "method", "shape", "bits/weight", "RMSE", "relative", "max error", "SNR dB", "cosine")


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
        ("bits per weight", f"{report.bits_per_weight:.3f}, of the whole model"),
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


def html(report: QuantReport) -> str:
    """One page with the error of every tensor, and of the worst ones how it is spread."""
    dots = [
        Dot(t.name, t.method, t.measures.relative if isfinite(t.measures.relative) else 1.0) for t in report.tensors
    ]
    by_layer = dots_by_layer(dots, "relative error", "RMSE by RMS of every tensor, layer by layer")
    return page(
        f"Quantization: {report.source} to {report.target}",
        _summary(report),
        [("Error by layer", by_layer), ("Where it is worst", f'<div class="plots">{_histograms(report)}</div>')],
        COLUMNS,
        map(_cells, report.tensors),
    )


def _histograms(report: QuantReport) -> str:
    by_name = {each.name: each for each in report.tensors}
    paint = colors(each.method for each in report.tensors)
    found = []
    for each in (by_name[name] for name in report.worst):
        if each.errors is not None:
            caption = f"{each.name}: {each.method}, relative error {each.measures.relative:.4g}"
            found.append(histogram(each.errors.counts, each.errors.limit, paint[each.method], caption))
    return "".join(found)
