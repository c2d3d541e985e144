"""A comparison as a page for people."""

from __future__ import annotations

import os
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from holdall.pages import Dot, dots_by_layer, page

if TYPE_CHECKING:
    from holdall.diff import Difference, TensorDifference

__all__ = ["difference_html", "write_difference"]

_COLUMNS = ("tensor", "verdict", "different", "max", "RMSE", "SNR dB", "cosine", "detail")


def write_difference(path: str | os.PathLike[str], found: Difference) -> None:
    """Write the page of a comparison."""
    Path(path).write_text(difference_html(found), encoding="utf-8")


def difference_html(found: Difference) -> str:
    """One page: what differs, how far apart layer by layer, and every tensor that is not equal."""
    measured = [item for item in found.tensors if item.distance is not None]
    dots = [Dot(item.name, item.verdict, _relative(item)) for item in measured]
    sections = []
    if dots:
        caption = "RMSE by RMS of every tensor that differs, layer by layer"
        sections.append(("Distance by layer", dots_by_layer(dots, "relative distance", caption)))
    facts = [
        ("tensors", f"{found.equal} equal, {len(found.tensors)} not"),
        ("metadata", f"{len(found.metadata)} entries differ"),
        ("assets", f"{len(found.assets)} differ"),
    ]
    return page(f"{found.a} and {found.b}", facts, sections, _COLUMNS, map(_cells, found.tensors))


def _relative(item: TensorDifference) -> float:
    """The distance by the size of a, from the signal to noise."""
    assert item.distance is not None
    ratio = 10 ** (-item.distance.snr_db / 20) if item.distance.snr_db > -600 else 1.0
    return ratio if isfinite(ratio) else 1.0


def _cells(item: TensorDifference) -> list[str]:
    d = item.distance
    numbers = (
        [""] * 5
        if d is None
        else [f"{d.different:,}", f"{d.max:.4g}", f"{d.rmse:.4g}", f"{d.snr_db:.2f}", f"{d.cosine:.6f}"]
    )
    return [item.name, item.verdict, *numbers, item.detail]
