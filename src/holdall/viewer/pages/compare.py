"""The page of two models: what differs, by layer, and one tensor beside the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from dash import Dash, Input, Output, State, dcc, html, no_update
from dash_ag_grid import AgGrid

from holdall.base.text import brief, clean, plural, shorten, size_text, value_text
from holdall.errors import HoldallError
from holdall.operations.stats import tensor_stats
from holdall.viewer.comparison import relative_error
from holdall.viewer.matrix import Apart
from holdall.viewer.parts import card, draw_graph, empty, list_facts, show_progress, show_scale, show_table
from holdall.viewer.plots import draw_heat, draw_histograms, draw_layers
from holdall.viewer.pooling import Pooling
from holdall.viewer.treemap import draw_treemap, rank_types
from holdall.viewer.window import check_indices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdall.operations.diff import TensorDifference
    from holdall.viewer.window import Window

__all__ = ["TITLE", "is_there", "lay_out", "register"]

TITLE = "Compare"
_LISTED = 20_000  # tensors of the table: those with the largest errors
_LAYERS = 1000  # of the plot
_HEIGHT, _WIDTH = 110, 160  # cells of a heat map


def is_there(window: Window) -> bool:
    """If there are two models."""
    return window.comparison is not None


def lay_out(window: Window, query: Mapping[str, str]) -> Any:
    """The page."""
    sides = [
        card(f"{'AB'[at]}: {shorten(clean(subject.title), 60)}", list_facts([
            ("format", subject.model.format or "in memory"), ("size", size_text(subject.size)),
            ("tensors", f"{len(subject.model.tensors):,}"),
            ("types", ", ".join(rank_types(subject.model)) or "none"),
        ]))
        for at, subject in enumerate(window.subjects)
    ]  # fmt: skip
    grid = AgGrid(
        id="compare-grid",
        columnDefs=[
            {"field": "name", "flex": 1, "minWidth": 200, "cellClass": "mono", "filter": True},
            {"field": "verdict", "width": 100},
            {"field": "error", "headerName": "Error", "width": 96, "type": "rightAligned",
             "headerTooltip": "root mean square of the difference over that of the values"},
            {"field": "max", "headerName": "Max |a−b|", "width": 104, "type": "rightAligned"},
            {"field": "snr", "headerName": "SNR dB", "width": 86, "type": "rightAligned"},
            {"field": "detail", "flex": 1, "minWidth": 160},
        ],
        defaultColDef={"sortable": True, "resizable": True, "suppressMovable": True},
        dashGridOptions={
            "rowHeight": 28, "headerHeight": 32, "animateRows": False,
            "rowSelection": {"mode": "singleRow", "checkboxes": False, "enableClickSelection": True},
        },
        getRowId="params.data.id",
        style={"height": "300px"},
    )  # fmt: skip
    waits = window.comparison is not None and window.comparison.task.is_waiting
    start = html.Button("Fetch and compare", id="compare-start", className="button", hidden=not waits)
    return html.Div(
        [
            dcc.Store(id="compare-done", data=False),
            dcc.Interval(id="compare-beat", interval=700),
            html.Div(sides, className="columns"),
            html.Div([html.Div(id="compare-progress"), start], className="line"),
            card("Error by layer", draw_graph("compare-plot", 220, label="Error of each layer in file order")),
            card("Tensors", grid, html.P(id="compare-more", className="hint"),
                 html.P("A click, or Space on a row, shows both tensors below.", className="hint")),
            html.Div(id="compare-pair"),
            card("Where they differ", draw_graph("compare-map", 320, label="Tensors by size, coloured by difference"),
                 html.Div(id="compare-key", className="key")),
            card("Beside the tensors", html.Div(id="compare-rest")),
        ]
    )  # fmt: skip


def _row(number: int, item: TensorDifference) -> dict[str, Any]:
    distance = item.distance
    error = relative_error(item)
    return {
        "id": str(number),
        "number": number,
        "name": shorten(item.name, 300),
        "verdict": item.verdict,
        "error": None if error != error else float(f"{error:.4g}"),
        "max": None if distance is None else float(f"{distance.max:.4g}"),
        "snr": None if distance is None or abs(distance.snr_db) == float("inf") else round(distance.snr_db, 2),
        "detail": brief(item.detail) or _describe_wild(item),
    }


def _describe_wild(item: TensorDifference) -> str:
    wild = 0 if item.distance is None else item.distance.wild
    return f"{plural(wild, 'value')} NaN or infinite on one side" if wild else ""


def _count_rest(pairs: Sequence[TensorDifference]) -> str:
    """What the table leaves out, and what that has in common: the largest errors come first."""
    rest = pairs[_LISTED:]
    if not rest:
        return ""
    equal = sum(item.verdict == "equal" for item in rest)
    if equal == len(rest):
        return f"… and {equal:,} more, which are equal in both"
    least = relative_error(pairs[_LISTED - 1])
    known = f"no error above {least:.3g}" if least == least else "unknown or smaller errors"
    return f"… and {len(rest):,} more: {len(rest) - equal:,} with {known}, {equal:,} equal in both"


def _draw_errors(window: Window) -> dict[str, Any]:
    assert window.comparison is not None
    parts = window.comparison.list_layers()
    names = list(dict.fromkeys(part.layer for part in parts))
    if len(names) > _LAYERS:  # those with the largest errors, in file order
        worst: dict[str, float] = {}
        for part in parts:
            worst[part.layer] = max(worst.get(part.layer, 0.0), part.error if part.error == part.error else 0.0)
        chosen = set(sorted(names, key=lambda name: -worst[name])[:_LAYERS])
        names, parts = [name for name in names if name in chosen], [part for part in parts if part.layer in chosen]
    return draw_layers(parts, names)


def _list_rest(window: Window) -> Any:
    assert window.comparison is not None and window.comparison.found is not None
    found = window.comparison.found
    rows: list[tuple[str, ...]] = [
        ("metadata", shorten(key, 80), _format(x), _format(y), "") for key, x, y in found.metadata[:100]
    ]
    rows += [("asset", shorten(name, 80), *_part_sides(what)) for name, what in found.assets[:100]]
    rows += [("trained", shorten(name, 80), *("yes" if mark else "no" for mark in marks), "")
             for name, *marks in found.requires_grad[:100]]  # fmt: skip
    rows += [("format", shorten(name, 80), *_part_sides(what)) for name, what in found.native[:100]]
    if not rows:
        return empty("Metadata, assets and the formats' own content are equal.")
    return show_table(("", "name", "A", "B", "how they differ"), [[clean(cell) for cell in row] for row in rows])


def _part_sides(what: str) -> tuple[str, str, str]:
    """What stands under A, under B, and beside them."""
    sides = {"only a": ("there", "–", ""), "only b": ("–", "there", "")}
    return sides.get(what, ("there", "there", brief(what)))


def _format(value: Any) -> str:
    return "–" if value is None else value_text(value, 80)


def _show_pair(window: Window, name: str) -> Any:
    """Both tensors and their difference, and their histograms on top of each other."""
    a, b = (subject.model for subject in window.subjects)
    assert window.comparison is not None
    partner = window.comparison.partner(name)
    if name not in a or partner not in b:
        return card(shorten(clean(name), 80), empty("Only one of the models has this tensor."))
    rows = a.tensors.row(name), b.tensors.row(partner)
    poolings = [subject.pool(row) for subject, row in zip(window.subjects, rows, strict=True)]
    matrices = [pooling.matrix for pooling in poolings]
    if a[name].shape != b[partner].shape or not a[name].count or not a[name].has_data or not b[partner].has_data:
        return card(
            shorten(clean(name), 80), empty("The two cannot be subtracted: they have different shapes, or no data.")
        )
    whole = matrices[0].whole
    looks = [pooling.look(whole, _HEIGHT, _WIDTH) for pooling in poolings]
    reach = max(float(look.top[np.isfinite(look.top)].max(initial=0)) for look in looks) or None
    figures = [draw_heat(matrix, look, "max", reach) for matrix, look in zip(matrices, looks, strict=True)]
    # Subtracted before it is pooled: means of many elements hide what rounding to few bits does to each.
    apart = Apart(*matrices)
    pooled = Pooling(apart).look(whole, _HEIGHT, _WIDTH)
    figures.append(draw_heat(apart, pooled, "max"))
    stats = [("A", tensor_stats(a[name], 64)), ("B", tensor_stats(b[partner], 64))]
    titles = ("A", "B", "A − B") if pooled.is_single else ("max |A|", "max |B|", "max |A − B|")
    maps = [
        html.Div([html.H3(title), draw_graph(f"pair-{at}", 250, figure, title)])
        for at, (title, figure) in enumerate(zip(titles, figures, strict=True))
    ]
    link = dcc.Link("open in A →", href=window.href("/tensor", row=rows[0]))
    histogram = draw_graph("pair-histogram", 190, draw_histograms(stats), "Histograms of both")
    return card(shorten(clean(name), 80), html.Div(maps, className="thirds"), histogram, tools=[link])


def register(app: Dash, window: Window) -> None:
    """Add what happens on this page."""

    @app.callback(
        Output("compare-progress", "children"),
        Output("compare-done", "data"),
        Input("compare-beat", "n_intervals"),
        State("compare-done", "data"),
    )
    def go_on(_: int | None, done: bool) -> tuple[Any, Any]:
        comparison = window.comparison
        if comparison is None:
            return "", no_update
        comparison.task.keep()
        waiting = "To compare, all bytes of both models are read, and those of remote files fetched."
        shown = show_progress(comparison.task, "comparing", waiting if comparison.task.is_waiting else "")
        if comparison.found is not None:
            equal, differ = comparison.found.equal, len(comparison.found.tensors)
            shown = html.P(
                f"{plural(equal, 'tensor')} equal, {differ:,} different or without a partner", className="hint"
            )
        return shown, True if comparison.found is not None and not done else no_update

    @app.callback(
        Output("compare-grid", "rowData"),
        Output("compare-more", "children"),
        Output("compare-plot", "figure"),
        Output("compare-map", "figure"),
        Output("compare-key", "children"),
        Output("compare-rest", "children"),
        Output("compare-beat", "disabled"),
        Input("compare-done", "data"),
        prevent_initial_call=True,
    )
    def show(done: bool) -> tuple[Any, ...]:
        if not done or window.comparison is None or window.comparison.found is None:
            return (no_update,) * 7
        pairs = window.comparison.list_pairs()
        figure = draw_treemap(window.subjects[0].model, "", window.comparison.shade(), window.subjects[0].title)
        key = show_scale(figure["layout"]["meta"], "relative error")
        rows = [_row(number, item) for number, item in enumerate(pairs[:_LISTED])]
        return rows, _count_rest(pairs), _draw_errors(window), figure, key, _list_rest(window), True

    @app.callback(Output("compare-start", "hidden"), Input("compare-start", "n_clicks"), prevent_initial_call=True)
    def start(clicks: int | None) -> bool:
        if clicks and window.comparison is not None:
            window.comparison.task.start()
        return bool(clicks)

    @app.callback(Output("compare-pair", "children"), Input("compare-grid", "selectedRows"), prevent_initial_call=True)
    def show_pair(rows: list[dict[str, Any]] | None) -> Any:
        if not rows or window.comparison is None:
            return no_update
        pairs = window.comparison.list_pairs()
        item = pairs[check_indices(rows[0].get("number"), len(pairs))[0]]
        try:
            return _show_pair(window, item.name)
        except (HoldallError, OSError) as error:
            return card(shorten(clean(item.name), 80), empty("The tensors cannot be shown.", brief(str(error))))
