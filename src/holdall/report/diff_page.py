"""The report of a comparison as an HTML page."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from holdall.base.text import list_text
from holdall.report.html import Dot, plot_by_layer, render_page

if TYPE_CHECKING:
    from holdall.operations.diff import Difference, TensorDifference

__all__ = ["RENDERERS"]

_COLUMNS = ("tensor", "verdict", "different", "max", "RMSE", "SNR dB", "cosine", "detail")


def _render_html(found: Difference) -> str:
    """Return one page: what differs, the distances layer by layer, and every tensor that is not equal."""
    measured = [item for item in found.tensors if item.distance is not None]
    dots = [Dot(item.name, item.verdict, _measure_relative_distance(item)) for item in measured]
    sections = []
    if dots:
        caption = "RMSE by RMS of every tensor that differs, layer by layer"
        sections.append(("Distance by layer", plot_by_layer(dots, "relative distance", caption)))
    facts = [
        ("tensors", f"{found.equal} equal, {len(found.tensors)} not"),
        ("metadata", f"{len(found.metadata)} entries differ"),
        ("assets", f"{len(found.assets)} differ"),
    ]
    if found.requires_grad:
        named = list_text([f"{name} ({str(x).lower()} became {str(y).lower()})" for name, x, y in found.requires_grad])
        facts.append(("requires_grad", f"{len(found.requires_grad)} differ: {named}"))
    if found.native:
        facts.append(("own content", list_text([f"{name}: {what}" for name, what in found.native], "; ")))
    return render_page(f"{found.a} and {found.b}", facts, sections, _COLUMNS, map(_cells_of, found.tensors))


def _measure_relative_distance(item: TensorDifference) -> float:
    """Measure the distance relative to the first tensor, from the signal to noise ratio."""
    assert item.distance is not None
    ratio = 10 ** (-item.distance.snr_db / 20) if item.distance.snr_db > -600 else 1.0
    return ratio if isfinite(ratio) else 1.0


def _cells_of(item: TensorDifference) -> list[str]:
    d = item.distance
    numbers = (
        [""] * 5
        if d is None
        else [f"{d.different:,}", f"{d.max:.4g}", f"{d.rmse:.4g}", f"{d.snr_db:.2f}", f"{d.cosine:.6f}"]
    )
    return [item.name, item.verdict, *numbers, item.detail]


RENDERERS = {".html": _render_html, ".htm": _render_html}
