"""The page of the vocabulary: a table of tokens that can be searched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import Dash, Input, Output, State, dcc, html
from dash_ag_grid import AgGrid

from holdall.base.text import clean, plural, shorten
from holdall.errors import HoldallError
from holdall.viewer.parts import empty

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdall.viewer.subject import Subject
    from holdall.viewer.window import Window

__all__ = ["TITLE", "is_there", "lay_out", "register"]

TITLE = "Vocabulary"
_BLOCK = 200  # rows of a request
_REFRESH = """
function(wanted) {
    window.dash_ag_grid.getApiAsync('tokens').then(api => api.purgeInfiniteCache());
    return window.dash_clientside.no_update;
}
"""


def is_there(window: Window) -> bool:
    """If a model has a vocabulary."""
    return any(_find_tokens(subject) for subject in window.subjects)


def _find_tokens(subject: Subject) -> tuple[str, ...]:
    try:
        vocab = subject.model.vocab
    except (HoldallError, OSError):  # the findings say why
        return ()
    return () if vocab is None else vocab.tokens


def lay_out(window: Window, query: Mapping[str, str]) -> Any:
    """The page for one model."""
    number, subject = window.choose(query)
    tokens = _find_tokens(subject)
    if not tokens:
        return empty("This model has no vocabulary.")
    search = dcc.Input(
        id="tokens-search", type="search", debounce=0.15, placeholder="part of a token, or an id", autoFocus=True
    )
    grid = AgGrid(
        id="tokens",
        rowModelType="infinite",
        columnDefs=[
            {"field": "id", "width": 110, "type": "rightAligned"},
            {"field": "token", "flex": 1, "cellClass": "mono text"},
            {"field": "bytes", "flex": 1, "cellClass": "mono", "headerName": "in UTF-8"},
            {"field": "special", "width": 120},
        ],
        defaultColDef={"sortable": False, "suppressMovable": True},
        dashGridOptions={"cacheBlockSize": _BLOCK, "rowHeight": 28, "headerHeight": 32, "maxBlocksInCache": 20,
                         "maxConcurrentDatasourceRequests": 1,  # dash-ag-grid gives an answer to the latest request
                         "infiniteInitialRowCount": len(tokens)},
        getRowId="params.data.id",
        style={"height": "calc(100vh - 150px)", "minHeight": "300px"},
    )  # fmt: skip
    count = html.Span(id="tokens-count", className="hint")
    return html.Div([dcc.Store(id="tokens-of", data=number), html.Div([search, count], className="line"), grid])


def _describe(subject: Subject, id: int, token: str, special: Mapping[int, str]) -> dict[str, str]:
    stored = token[:64].encode("utf-8", "surrogatepass").hex(" ")
    return {
        "id": str(id),
        "token": shorten(clean(token), 200),
        "bytes": shorten(stored, 100),
        "special": special.get(id, ""),
    }


def register(app: Dash, window: Window) -> None:
    """Add what happens on this page."""
    in_browser: Any = app.clientside_callback
    in_browser(_REFRESH, Output("tokens", "className"), Input("tokens-search", "value"), prevent_initial_call=True)

    @app.callback(
        Output("tokens", "getRowsResponse"),
        Output("tokens-count", "children"),
        Input("tokens", "getRowsRequest"),
        State("tokens-search", "value"),
        State("tokens-of", "data"),
        prevent_initial_call=True,
    )
    def send_rows(request: dict[str, Any] | None, wanted: str | None, number: int) -> tuple[Any, Any]:
        subject = window.subject(number)
        tokens = _find_tokens(subject)
        ids: Any = range(len(tokens))
        if wanted:
            folded = wanted.casefold()
            ids = [id for id, token in enumerate(tokens) if folded in token.casefold() or wanted == str(id)]
        chosen = ids[int((request or {}).get("startRow", 0)) : int((request or {}).get("endRow", 0))]
        special = {id: name for name, id in subject.model.vocab.special.items()} if tokens else {}
        rows = [_describe(subject, id, tokens[id], special) for id in chosen]
        count = plural(len(tokens), "token") if not wanted else f"{len(ids):,} of {plural(len(tokens), 'token')}"
        return {"rowData": rows, "rowCount": len(ids)}, count
