"""The plots of one tensor: heat map, histogram, statistics by row and by column; and the error by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.text import plural
from holdall.viewer.figures import DIVERGING, PALETTE, SEQUENTIAL, choose_unit, encode_array, lay_out, plot_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from holdall.operations.stats import TensorStats
    from holdall.viewer.comparison import LayerError
    from holdall.viewer.matrix import Matrix
    from holdall.viewer.pooling import Pooled

__all__ = ["draw_bars", "draw_heat", "draw_histograms", "draw_layers", "draw_profile"]

_WRITTEN = (18, 14)  # rows and columns whose numbers are written into their cells
_NAMES = {"max": "max |x|", "mean": "mean", "std": "std"}


def draw_heat(matrix: Matrix, pooled: Pooled, by: str, reach: float | None = None) -> dict[str, Any]:
    """The heat map of a region. Cells of single elements show the element; ``reach`` is the end of the scale."""
    region, single = pooled.region, pooled.is_single
    values = pooled.total if single else pooled.show(by)
    with np.errstate(over="ignore"):
        values = values.astype(pooled.top.dtype)  # what was read with 32 bits is sent with 32
    signed = single or by == "mean"
    finite = np.abs(values[np.isfinite(values)])
    high = reach or (float(finite.max()) if finite.size else 1.0) or 1.0
    unit, times = choose_unit(np.array([high]))
    trace: dict[str, Any] = {
        "type": "heatmap",
        "z": encode_array(values if unit == 1 else values / unit),
        "x0": region.left + (pooled.wide - 1) / 2,
        "dx": pooled.wide,
        "y0": region.top + (pooled.tall - 1) / 2,
        "dy": pooled.tall,
        "zmin": -high / unit if signed else 0.0,
        "zmax": high / unit,
        "colorscale": DIVERGING if signed else SEQUENTIAL,
        "colorbar": {"thickness": 10, "outlinewidth": 0, "len": 1, "x": 1.01, "xpad": 0, "tickfont": {"size": 11}},
        "hoverongaps": True,
        "zsmooth": False,
    }
    trace |= _write_cells(matrix, pooled, values, by, times)
    ranges = (
        [region.left - 0.5, region.right - 0.5],
        [region.bottom - 0.5, region.top - 0.5],
    )
    axis = {"showgrid": False, "ticks": "outside", "ticklen": 3, "tickformat": ",d"}
    wide, tall = _place_ticks(region.right - region.left), _place_ticks(region.bottom - region.top)
    layout = lay_out(
        xaxis=axis | wide | {"range": ranges[0], "title": {"text": "column", "standoff": 4}},
        yaxis=axis | tall | {"range": ranges[1], "title": {"text": "row", "standoff": 4}},
        margin={"l": 64, "r": 64, "t": 6, "b": 40},
        dragmode="zoom",
        uirevision=str(region),
    )
    return {"data": [trace], "layout": layout}


def _place_ticks(elements: int) -> dict[str, Any]:
    """One for each element of a short axis, where Plotly would put several between two."""
    return {"nticks": 8} if elements > 8 else {"tick0": 0, "dtick": 1}


def _write_cells(matrix: Matrix, pooled: Pooled, values: NDArray[Any], by: str, times: str) -> dict[str, Any]:
    """What a cell says when the mouse is over it, and the numbers inside of large cells."""
    rows, columns = values.shape
    region = pooled.region
    if not (pooled.is_single and rows <= _WRITTEN[0] and columns <= _WRITTEN[1]):
        what = "value" if pooled.is_single else f"{_NAMES[by]} of {pooled.tall} × {pooled.wide}"
        return {"hovertemplate": f"row %{{y}}, column %{{x}}<br>{what}: %{{z}}{times}<extra></extra>"}
    exact = matrix.read(region)
    texts = [[str(value) for value in row] for row in exact]
    places = [
        [", ".join(map(str, matrix.locate(row, column))) for column in range(region.left, region.right)]
        for row in range(region.top, region.bottom)
    ]
    return {
        "text": [[f"{value:.4g}" for value in row] for row in values.tolist()],
        "texttemplate": "%{text}",
        "textfont": {"size": 11},
        "customdata": [[[*pair] for pair in zip(*each, strict=True)] for each in zip(places, texts, strict=True)],
        "hovertemplate": "[%{customdata[0]}]: %{customdata[1]}<extra></extra>",
        "xgap": 1,
        "ygap": 1,
    }


def draw_histograms(named: Sequence[tuple[str, TensorStats]]) -> dict[str, Any]:
    """Histograms, on top of each other if there are several."""
    traces = []
    edges = [np.array([[float(each.low), float(each.high)] for each in stats.histogram]) for _, stats in named]
    unit, times = choose_unit(*edges)
    for number, (name, stats) in enumerate(named):
        lows, highs = (edges[number] / unit).T if stats.histogram else ([], [])
        widths = [high - low for low, high in zip(lows, highs, strict=True)]
        typical = max(widths, default=0.0) or 1.0
        traces.append(
            {
                "type": "bar",
                "name": name,
                "x": [low + width / 2 for low, width in zip(lows, widths, strict=True)],
                "width": [width or typical for width in widths],
                "y": [each.count for each in stats.histogram],
                "marker": {"color": PALETTE[number], "line": {"width": 0}},
                "opacity": 1.0 if len(named) == 1 else 0.6,
                "hovertemplate": f"%{{y:,}} values at %{{x:.4g}}{times}<extra></extra>",
            }
        )
    layout = lay_out(
        barmode="overlay",
        bargap=0,
        yaxis={"type": "log", "dtick": 1, "exponentformat": "power", "title": {"text": "values", "standoff": 4}},
        xaxis={"nticks": 6, "title": {"text": times.strip(), "standoff": 4}},
        showlegend=len(named) > 1,
        legend={"orientation": "h", "y": 1.12, "x": 0, "font": {"size": 11}},
        margin={"l": 52, "r": 8, "t": 8, "b": 30},
    )
    return {"data": traces, "layout": layout}


def draw_bars(values: NDArray[Any], bins: int = 48) -> dict[str, Any]:
    """A histogram of numbers that are at hand; few different ones have a bar each."""
    finite = np.asarray(values, np.float64)
    finite = finite[np.isfinite(finite)]
    found, counts = np.unique(finite, return_counts=True)
    if len(found) > 256:
        counts, edges = np.histogram(finite, bins)
        found = (edges[:-1] + edges[1:]) / 2
    trace = {"type": "bar", "x": found.tolist(), "y": counts.tolist(), "marker": {"color": PALETTE[0]},
             "hovertemplate": "%{y:,} at %{x:.4g}<extra></extra>"}  # fmt: skip
    return {
        "data": [trace],
        "layout": lay_out(bargap=0.08, margin={"l": 52, "r": 8, "t": 8, "b": 30}, xaxis={"nticks": 8}),
    }


def draw_layers(parts: Sequence[LayerError], names: Sequence[str]) -> dict[str, Any]:
    """The error of each layer, a line for each kind of tensors in it."""
    traces = []
    for number, kind in enumerate(dict.fromkeys(part.kind for part in parts)):
        mine = [part for part in parts if part.kind == kind]
        traces.append({
            "type": "scatter", "mode": "lines+markers", "name": kind, "x": [plot_text(part.layer, 60) for part in mine],
            "y": [part.error if np.isfinite(part.error) else None for part in mine],
            "text": [f"{plural(part.different, 'tensor')} of {part.tensors:,} different" for part in mine],
            "line": {"width": 1.2, "color": PALETTE[number % len(PALETTE)]}, "marker": {"size": 6},
            "hovertemplate": "%{x}, %{fullData.name}: %{y:.4g}<br>%{text}<extra></extra>",
        })  # fmt: skip
    order = [plot_text(name, 60) for name in names]
    layout = lay_out(
        xaxis={"type": "category", "categoryorder": "array", "categoryarray": order, "nticks": 24, "tickangle": 0},
        yaxis={"title": {"text": "relative error", "standoff": 6}, "rangemode": "tozero"}, showlegend=True,
        legend={"orientation": "h", "y": 1.14, "x": 0, "font": {"size": 11}}, margin={"l": 66, "t": 12},
    )  # fmt: skip
    return {"data": traces, "layout": layout}


def draw_profile(pooled: Pooled, axis: int) -> dict[str, Any]:
    """Mean with its standard deviation, and max |x|, along the rows (0) or the columns (1) of a region."""
    profile = pooled.profile(axis)
    unit, times = choose_unit(*profile)
    mean, std, top = (each / unit for each in profile)
    step = pooled.tall if axis == 0 else pooled.wide
    start, stop = (pooled.region.top, pooled.region.bottom) if axis == 0 else (pooled.region.left, pooled.region.right)
    ticks = _place_ticks(stop - start) | {"range": [start - 0.5, stop - 0.5], "tickformat": ",d"}
    x = start + step * np.arange(len(mean)) + (step - 1) / 2
    line = {"width": 1.5}
    both = np.concatenate([mean + std, (mean - std)[::-1]])
    traces = [
        {"type": "scatter", "name": "mean ± std", "x": encode_array(np.concatenate([x, x[::-1]])),
         "y": encode_array(both), "fill": "toself", "fillcolor": "rgba(76,120,168,.22)", "line": {"width": 0},
         "hoverinfo": "skip"},
        {"type": "scatter", "mode": "lines", "name": "mean", "x": encode_array(x), "y": encode_array(mean),
         "line": line | {"color": PALETTE[0]}, "hovertemplate": f"mean %{{y:.4g}}{times}<extra>%{{x}}</extra>"},
        {"type": "scatter", "mode": "lines", "name": "max |x|", "x": encode_array(x), "y": encode_array(top),
         "line": line | {"color": PALETTE[1]}, "hovertemplate": f"max |x| %{{y:.4g}}{times}<extra>%{{x}}</extra>"},
    ]  # fmt: skip
    layout = lay_out(
        showlegend=True, legend={"orientation": "h", "y": 1.16, "x": 0, "font": {"size": 11}},
        xaxis=ticks, yaxis={"title": {"text": times.strip(), "standoff": 4}},
        margin={"l": 52, "r": 8, "t": 10, "b": 30},
    )  # fmt: skip
    return {"data": traces, "layout": layout}
