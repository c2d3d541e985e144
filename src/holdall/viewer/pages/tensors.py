"""The page with the table of all tensors. Rows come when they are scrolled to, statistics when they are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import Dash, Input, Output, State, dcc, html, no_update
from dash_ag_grid import AgGrid

from holdall.base.text import plural
from holdall.viewer.parts import empty, show_progress
from holdall.viewer.statistics import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdall.viewer.window import Window

__all__ = ["TITLE", "is_there", "lay_out", "register"]

TITLE = "Tensors"
_BLOCK = 200  # rows of a request
_NARROW, _WIDE = 200, 480  # pixels of the column of names
_LETTER, _BESIDE = 7.6, 36  # pixels of a letter, and of what is beside the names
_HINTS = {"shape": "sorted by the number of elements", "bytes": "stored bytes", "offset": "the first byte in the file"}
# The table asks for its rows anew when another filter holds, and for those it shows when more statistics are known.
_SHOW_CHOSEN = """
function(wanted) {
    window.dash_ag_grid.getApiAsync('tensors').then(api => {
        api.ensureIndexVisible(0, 'top');
        api.purgeInfiniteCache();
    });
    return window.dash_clientside.no_update;
}
"""
_SHOW_FILLED = """
function(filled) {
    window.dash_ag_grid.getApiAsync('tensors').then(api => api.refreshInfiniteCache());
    return window.dash_clientside.no_update;
}
"""


def is_there(window: Window) -> bool:
    """Always."""
    return True


def lay_out(window: Window, query: Mapping[str, str]) -> Any:
    """The page for one model."""
    number, subject = window.choose(query)
    if not len(subject.model.tensors):
        return html.Div([html.H1("Tensors"), empty("This model has no tensors.")])
    wanted = dcc.Input(
        id="tensors-filter", type="search", debounce=0.15, value=query.get("filter", ""), autoFocus=True,
        placeholder="filter by name, such as *.attn.*", className="wide-field",
    )  # fmt: skip
    button = html.Button("Read all tensors for statistics", id="tensors-start", className="button",
                         hidden=not subject.statistics.task.is_waiting)  # fmt: skip
    grid = AgGrid(
        id="tensors",
        rowModelType="infinite",
        columnDefs=_define_columns(subject.model.tensors.names),
        defaultColDef={
            "resizable": True,
            "sortable": True,
            "suppressMovable": True,
            "sortingOrder": ["desc", "asc", None],
        },
        dashGridOptions={
            "cacheBlockSize": _BLOCK,
            "maxBlocksInCache": 20,
            "maxConcurrentDatasourceRequests": 1,  # dash-ag-grid gives an answer to the latest request
            "infiniteInitialRowCount": len(subject.model.tensors),
            "rowHeight": 30,
            "headerHeight": 34,
            "rowSelection": {"mode": "singleRow", "checkboxes": False, "enableClickSelection": True},
            "blockLoadDebounceMillis": 20,
            "animateRows": False,
        },
        getRowId="params.data.row",
        style={"height": "calc(100vh - 170px)", "minHeight": "320px"},
    )
    return html.Div(
        [
            dcc.Store(id="tensors-of", data=number),
            dcc.Store(id="tensors-filled", data=0),
            dcc.Interval(id="tensors-beat", interval=1000),
            html.Div(
                [wanted, html.Span(id="tensors-count", className="hint"), html.Div(id="tensors-progress"), button],
                className="line",
            ),
            grid,
            html.P("A click on a row, or Space, opens the tensor.", className="hint"),
        ]
    )


def _define_columns(tensors: Sequence[str]) -> list[dict[str, Any]]:
    longest = max(map(len, tensors), default=0)
    wide = min(max(_NARROW, longest * _LETTER + _BESIDE), _WIDE)
    right = {"textAlign": "right"}
    names = [
        {"field": "name", "pinned": "left", "width": wide, "tooltipField": "name", "cellClass": "mono"},
        {"field": "type", "width": 96},
        {"field": "shape", "width": 130, "cellClass": "mono"},
        {"field": "bytes", "width": 96, "cellStyle": right, "headerClass": "right"},
        {"field": "offset", "width": 116, "cellStyle": right, "headerClass": "right", "cellClass": "mono"},
    ]
    statistics = [
        {"field": name, "width": 104, "cellStyle": right, "headerClass": "right", "headerTooltip": text}
        for name, text in COLUMNS.items()
    ]
    return [
        each | ({"headerTooltip": _HINTS[each["field"]]} if each["field"] in _HINTS else {}) for each in names
    ] + statistics


def register(app: Dash, window: Window) -> None:
    """Add what happens on this page."""
    in_browser: Any = app.clientside_callback
    for function, cause in (
        (_SHOW_CHOSEN, Input("tensors-filter", "value")),
        (_SHOW_FILLED, Input("tensors-filled", "data")),
    ):
        in_browser(function, Output("tensors", "className", allow_duplicate=True), cause, prevent_initial_call=True)

    @app.callback(
        Output("tensors", "getRowsResponse"),
        Output("tensors-count", "children"),
        Input("tensors", "getRowsRequest"),
        State("tensors-filter", "value"),
        State("tensors-of", "data"),
        prevent_initial_call=True,
    )
    def send_rows(request: dict[str, Any] | None, wanted: str | None, number: int) -> tuple[Any, Any]:
        if request is None:
            return no_update, no_update
        subject = window.subject(number)
        order = [(str(each["colId"]), each["sort"] == "desc") for each in request.get("sortModel") or ()]
        rows = subject.rows.select(wanted or "", order)
        chosen = rows[int(request["startRow"]) : int(request["endRow"])].tolist()
        total = len(subject.model.tensors)
        count = plural(total, "tensor") if len(rows) == total else f"{len(rows):,} of {plural(total, 'tensor')}"
        return {"rowData": subject.rows.describe(chosen), "rowCount": len(rows)}, count

    @app.callback(
        Output("tensors-progress", "children"),
        Output("tensors-filled", "data"),
        Input("tensors-beat", "n_intervals"),
        State("tensors-filled", "data"),
        State("tensors-of", "data"),
    )
    def fill(beats: int | None, before: int, number: int) -> tuple[Any, Any]:
        subject = window.subject(number)
        statistics = subject.statistics
        statistics.task.keep()
        filled = statistics.filled
        return show_progress(statistics.task, "statistics"), no_update if filled == before else filled

    @app.callback(
        Output("tensors-start", "hidden"),
        Input("tensors-start", "n_clicks"),
        State("tensors-of", "data"),
        prevent_initial_call=True,
    )
    def start(clicks: int | None, number: int) -> bool:
        if clicks:
            window.subject(number).statistics.task.start()
        return bool(clicks)

    @app.callback(
        Output("place", "href", allow_duplicate=True),
        Input("tensors", "selectedRows"),
        State("tensors-filter", "value"),
        State("tensors-of", "data"),
        prevent_initial_call=True,
    )
    def open_tensor(rows: list[dict[str, Any]] | None, wanted: str | None, number: int) -> Any:
        if not rows or rows[0].get("row") is None:
            return no_update
        return window.href("/tensor", row=rows[0]["row"], of=number or None, filter=wanted or None)
