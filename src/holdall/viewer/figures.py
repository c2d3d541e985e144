"""Plotly figures as plain data. Plotly takes tags in text for markup, so every name goes through :func:`plot_text`."""

from __future__ import annotations

import base64
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from holdall.base.text import clean, shorten

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "CONFIG", "DIVERGING", "PALETTE", "SEQUENTIAL", "choose_unit", "color_values", "encode_array", "lay_out",
    "plot_text",
]  # fmt: skip

_Scale: TypeAlias = list[list[Any]]

# No button that leads to another site, and none that this page does not need.
CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "showLink": False,
    "showEditInChartStudio": False,
    "plotlyServerURL": "",
    "responsive": True,
    "displayModeBar": False,
    "showTips": False,
    "doubleClickDelay": 700,  # milliseconds that include what a busy page does after the first click
}
PALETTE = ("#4c78a8", "#e4794a", "#54a07d", "#9a78b8", "#c79a35", "#5aa9b8", "#b65a85", "#7a8794", "#8b6b4e", "#6f9b3c")
DIVERGING: _Scale = [[0.0, "#b2432f"], [0.25, "#e9a384"], [0.5, "#f1efec"], [0.75, "#8db4d6"], [1.0, "#2a5f9e"]]
SEQUENTIAL: _Scale = [[0.0, "#f3f1ea"], [0.2, "#cfe0d8"], [0.45, "#79b5b5"], [0.7, "#35789f"], [1.0, "#1d2f6f"]]
_INK = "#8a94a3"  # legible on light and dark


def plot_text(text: str, width: int = 200) -> str:
    """A name as Plotly may show it: controls and markup are escaped.

    >>> plot_text("<b>a</b>")
    '&lt;b&gt;a&lt;/b&gt;'
    """
    return shorten(clean(text), width).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def encode_array(values: NDArray[Any]) -> dict[str, Any]:
    """Numbers as Plotly takes them fastest: their bytes, in base64."""
    plain = np.ascontiguousarray(values, np.float32 if values.dtype.itemsize <= 4 else np.float64)
    kind = "f4" if plain.dtype == np.float32 else "f8"
    found = {"dtype": kind, "bdata": base64.b64encode(plain.tobytes()).decode("ascii")}
    return found | ({"shape": ", ".join(map(str, plain.shape))} if plain.ndim > 1 else {})


def choose_unit(*arrays: NDArray[Any]) -> tuple[float, str]:
    """What numbers are divided by before Plotly gets them, and the words that say so.

    Plotly subtracts and divides the ends of an axis, which near the ends of float64 gives infinity, and then draws
    nothing.

    >>> choose_unit(np.array([-1.5e308, 2.0]))
    (1e+300, ' × 1e+300')
    >>> choose_unit(np.array([0.5, np.inf]), np.array([]))
    (1.0, '')
    """
    tops = [np.abs(each[np.isfinite(each)]).max(initial=0) for each in arrays]
    top = float(max(tops, default=0))
    unit = 1e300 if top > 1e300 else 1e-300 if 0 < top < 1e-290 else 1.0
    return unit, "" if unit == 1 else f" × {unit:.0e}"


def lay_out(**changes: Any) -> dict[str, Any]:
    """The layout that all figures share, on a transparent ground."""
    axis = {
        "gridcolor": "rgba(128,140,155,.18)",
        "zeroline": False,
        "linecolor": "rgba(128,140,155,.4)",
        "tickfont": {"size": 11},
    }
    layout: dict[str, Any] = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": _INK},
        "margin": {"l": 56, "r": 12, "t": 10, "b": 36},
        "showlegend": False,
        "hoverlabel": {"font": {"family": "system-ui, sans-serif", "size": 12}, "align": "left"},
        "xaxis": dict(axis),
        "yaxis": dict(axis),
    }
    for key, value in changes.items():
        known = layout.get(key)
        layout[key] = known | value if isinstance(known, dict) and isinstance(value, dict) else value
    for each in (layout["xaxis"], layout["yaxis"]):
        if "title" in each:
            each["title"] = {"font": {"size": 12}} | each["title"]
    return layout


def color_values(values: NDArray[np.float64], low: float, high: float) -> list[str]:
    """A colour of :data:`SEQUENTIAL` for each value between two ends; what is beyond has the colour of the end.

    What is unknown is grey.
    """
    half = high / 2 - low / 2 or 1.0  # the whole may be infinite
    return [_mix((value / 2 - low / 2) / half) if value == value else "#a4abb5" for value in values.tolist()]


def _mix(at: float) -> str:
    """The colour at a place of the scale from 0 to 1."""
    at = min(1.0, max(0.0, at))
    for (low, first), (high, second) in pairwise(SEQUENTIAL):
        if at <= high:
            share = (at - low) / (high - low)
            pairs = zip(_parse(first), _parse(second), strict=True)
            return "#" + "".join(f"{round(x + (y - x) * share):02x}" for x, y in pairs)
    return str(SEQUENTIAL[-1][1])


def _parse(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)
