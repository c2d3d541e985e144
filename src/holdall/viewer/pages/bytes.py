"""The page of the bytes: annotated hex page by page, below a strip of the whole file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import Dash, Input, Output, State, dcc, html, no_update
from dash_ag_grid import AgGrid

from holdall.base.text import brief, clean, file_text, shorten
from holdall.errors import HoldallError
from holdall.viewer.bytes_map import (
    KINDS,
    PAGE,
    choose_start,
    describe_fields,
    draw_strip,
    find_meaning,
    list_marks,
    read_page,
)
from holdall.viewer.events import list_new, name_event, watch_page, watch_plot
from holdall.viewer.parts import card, draw_graph, empty, list_facts, show_table
from holdall.viewer.window import check_indices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdall.viewer.events import Event
    from holdall.viewer.subject import Subject
    from holdall.viewer.window import Window

__all__ = ["TITLE", "is_there", "lay_out", "register"]

TITLE = "Bytes"
_BUTTONS = {"first": "⇤ first", "previous": "← previous", "next": "next →", "last": "last ⇥"}


def is_there(window: Window) -> bool:
    """If a model has a file."""
    return any(subject.files for subject in window.subjects)


def lay_out(window: Window, query: Mapping[str, str]) -> Any:
    """The page for one file, at the byte ``at``."""
    number, subject = window.choose(query)
    if not subject.files:
        return empty("This model is in memory: it has no file.")
    file = min(_parse(query.get("file")), len(subject.files) - 1)
    at = min(_parse(query.get("at")), max(0, subject.files[file].size - 1))
    if not subject.files[file].size:
        return empty("The file is empty.")
    key = [
        html.Span([html.I(style={"background": color}), kind], className="chip") for kind, (_, color) in KINDS.items()
    ]
    choose = dcc.Dropdown(
        [{"label": label, "value": at} for at, label in enumerate(_name_files(subject))], file,
        id="bytes-file", clearable=False, className="choose wide",
    )  # fmt: skip
    field = dcc.Input(
        id="bytes-place", type="text", debounce=True, placeholder="offset, such as 0x40", className="short"
    )
    place = html.Div(field, **name_event("place"))
    buttons = [
        html.Button(text, id=f"bytes-{name}", className="button small", **name_event(name))
        for name, text in _BUTTONS.items()
    ]
    strip = draw_graph("bytes-strip", 36, label="The whole file by kind of bytes")
    grid = AgGrid(
        id="bytes-grid",
        columnDefs=_define_columns(),
        defaultColDef={"sortable": False, "resizable": False, "suppressMovable": True},
        dashGridOptions={
            "rowHeight": 22,
            "headerHeight": 26,
            "animateRows": False,
            "suppressColumnVirtualisation": True,
        },
        getRowId="params.data.at",
        className="hex",
        style={"height": "100%"},
    )
    files = html.Div(choose, hidden=len(subject.files) < 2, className="tools")
    stores = [
        dcc.Store(id="bytes-of", data=[number, file]),
        dcc.Store(id="bytes-at", data=at),
        dcc.Store(id="bytes-start"),
    ]
    shown = [
        html.Section([strip, html.Div([*key, files], className="key")], className="card"),
        html.Div(
            [
                card("Bytes", html.Div(id="bytes-error"), html.Div(grid, className="rest"), tools=[place, *buttons]),
                card("Meaning", html.Div(id="bytes-meaning", className="meaning rest", tabIndex="0")),
            ],
            className="columns bytes",
        ),
    ]
    return watch_page("bytes", [*stores, html.Div(shown, className="screen")])


def _name_files(subject: Subject) -> list[str]:
    """The names of the files, without the folder that all of them lie in."""
    names = [file_text(source.name) for source in subject.files]
    parts = [name.split("/") for name in names]
    same = 0
    while all(len(each) > same + 1 and each[same] == parts[0][same] for each in parts):
        same += 1
    return [shorten("/".join(each[same:]), 60) for each in parts]


def _parse(text: str | None) -> int:
    """A number of bytes, decimal or hexadecimal; 0 for anything else."""
    text = (text or "").strip().replace(",", "").lower()
    try:
        return max(0, int(text, 16 if text.startswith("0x") else 10)) if len(text) < 20 else 0
    except ValueError:
        return 0


def _define_columns() -> list[dict[str, Any]]:
    columns: list[dict[str, Any]] = [{"field": "at", "headerName": "offset", "width": 96, "cellClass": "mono soft"}]
    for number in range(16):
        rules = {
            f"k-{kind}": f"params.data.k.charAt({number}).toLowerCase() == '{letter}'"
            for kind, (letter, _) in KINDS.items()
        }
        rules["picked"] = f"params.data.s == {number}"
        rules["marked"] = f"params.data.k.charAt({number}) != params.data.k.charAt({number}).toLowerCase()"
        columns.append(
            {"field": f"b{number:x}", "headerName": f"{number:x}", "width": 31, "minWidth": 20,
             "cellClass": "mono byte", "cellClassRules": rules, "headerClass": "byte"}
        )  # fmt: skip
    return [*columns, {"field": "text", "headerName": "text", "width": 176, "cellClass": "mono text"}]


def _apply(at: int, event: str, detail: Any, size: int) -> int:
    """The byte that an event leads to."""
    if event == "strip":
        return int(detail)
    if event == "cell":
        row, column = detail
        return int(row, 16) + int(column[1:], 16) if column.startswith("b") else at
    if event == "place":
        return _parse(detail) if detail else at
    return {"first": 0, "previous": at - PAGE, "next": at + PAGE, "last": size - 1}[event]


def register(app: Dash, window: Window) -> None:
    """Add what happens on this page."""

    watch_plot(app, "bytes-strip", "plotly_click", "strip", "event.points[0].x")

    @app.callback(
        Output("bytes-at", "data"),
        Output("bytes-seen", "data"),
        Input("bytes-events", "data"),
        State("bytes-seen", "data"),
        State("bytes-at", "data"),
        State("bytes-of", "data"),
        prevent_initial_call=True,
    )
    def go(events: list[Event] | None, seen: int, kept: int, of: list[int]) -> tuple[Any, int]:
        happened, last = list_new(events, seen)
        subject, file = window.file(of)
        size = subject.files[file].size
        (at,) = check_indices(kept, size)
        for name, detail in happened:
            at = min(max(0, _apply(at, name, detail, size)), size - 1)
        return (at if at != kept else no_update), last

    @app.callback(
        Output("place", "href", allow_duplicate=True),
        Input("bytes-file", "value"),
        State("bytes-of", "data"),
        prevent_initial_call=True,
    )
    def change_file(file: int, of: list[int]) -> Any:
        # Dash calls it when the page comes too, since the address was there before.
        _, shown = window.file(of)
        return window.href("/bytes", file=file, of=of[0]) if file != shown else no_update

    @app.callback(
        Output("bytes-grid", "rowData"),
        Output("bytes-strip", "figure"),
        Output("bytes-meaning", "children"),
        Output("bytes-error", "children"),
        Output("bytes-start", "data"),
        Input("bytes-at", "data"),
        State("bytes-start", "data"),
        State("bytes-of", "data"),
    )
    def show(at: int, before: int | None, of: list[int]) -> tuple[Any, ...]:
        subject, file = window.file(of)
        check_indices([at, at if before is None else before], *[subject.files[file].size] * 2)
        try:
            start = choose_start(at, before)
            rows = read_page(subject, file, start).list_rows(at)
            return rows, draw_strip(subject, file, at), _explain(window, of[0], file, at), "", start
        except (HoldallError, OSError) as error:
            return [], no_update, "", html.P(brief(str(error)), className="bad"), no_update


def _explain(window: Window, number: int, file: int, at: int) -> list[Any]:
    """What the byte is, with the way to its tensor, the fields around it, and the findings that point at it."""
    subject = window.subject(number)
    meaning = find_meaning(subject, file, at)
    source = subject.files[file]
    parts: list[Any] = [
        html.P([html.Span(each.severity, className=f"badge {each.severity}"), " ", brief(each.message)])
        for each in subject.report.findings
        if each.offset is not None
        and each.offset <= at < each.offset + (each.size or 1)
        and each.file in (None, source.name)
    ]
    parts.append(list_facts(meaning.lines))
    if meaning.tensor is not None:
        name = shorten(clean(subject.model.tensors.names[meaning.tensor]), 80)
        href = window.href("/tensor", row=meaning.tensor, **({"of": 1} if number else {}))
        parts.append(html.P(dcc.Link(f"open {name} →", href=href, id="bytes-tensor")))
    fields = describe_fields(meaning.fields, at)
    if fields:
        rows = [
            [html.Span(cell, className="here" if here else "") for cell in (offset, name, value)]
            for offset, name, value, here in fields
        ]
        parts.append(show_table(("at", "field", "value"), rows))
    marks = sorted({start for start, _ in list_marks(subject, source)})[:12]
    if marks:
        links = [dcc.Link(f"{mark:#x}", href=window.href("/bytes", at=mark, file=file, of=number)) for mark in marks]
        parts.append(html.P(["findings at ", *[part for link in links for part in (link, " ")]], className="hint"))
    return parts
