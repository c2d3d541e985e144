"""The page of one tensor: a heat map down to single numbers, what its values are like, and how to read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import Dash, Input, Output, State, dcc, html, no_update

from holdall.base.text import brief, clean, count_text, shape_text, shorten, size_text
from holdall.errors import HoldallError
from holdall.operations.stats import tensor_stats
from holdall.viewer.events import list_new, name_event, watch_page, watch_plot
from holdall.viewer.matrix import Region
from holdall.viewer.parts import card, draw_graph, empty, list_facts, show_table
from holdall.viewer.plots import draw_bars, draw_heat, draw_histograms, draw_profile
from holdall.viewer.quantized import read_quantized
from holdall.viewer.rows import format_number
from holdall.viewer.window import ANY, check_indices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdall.model.tensor import Tensor
    from holdall.viewer.events import Event
    from holdall.viewer.matrix import Matrix
    from holdall.viewer.pooling import Pooled
    from holdall.viewer.subject import Subject
    from holdall.viewer.window import Window

__all__ = ["TITLE", "is_there", "lay_out", "register"]

TITLE = ""  # it is reached from the table
_HEIGHT, _WIDTH = 150, 300  # cells of a heat map
_REMOTE = 32 << 20  # bytes of a remote tensor that are fetched without being asked
_SPELLED = 400  # letters of a name that the line of Python spells
_CORNER = 256  # rows and columns of a larger one that are shown first
_STEPS = ("left", "up", "down", "right", "in", "out", "whole")
_FIELDS = ("tensor-top", "tensor-left-edge")  # of rows and of columns


def is_there(window: Window) -> bool:
    """Always."""
    return True


def lay_out(window: Window, query: Mapping[str, str]) -> Any:
    """The page of the tensor that ``row`` names."""
    number, subject = window.choose(query)
    row = int(query["row"]) if query.get("row", "").isdecimal() and len(query["row"]) < 10 else -1
    if not 0 <= row < len(subject.model.tensors):
        return empty("There is no such tensor.", "The table lists those that there are.")
    tensor = subject.model.tensors[row]
    wanted = query.get("filter") or None
    text = f"← tensors that match {shorten(clean(wanted), 60)}" if wanted else "← all tensors"
    href = window.href("/tensors", of=number or None, filter=wanted)
    back = dcc.Link(text, href=href, id="tensor-back", className="hint")
    head = [
        back,
        html.H1(html.Code(shorten(tensor.name, 400) or "(no name)")),
        list_facts(_list_facts(window, number, tensor)),
    ]
    problem = _find_problem(tensor)
    if problem:
        return html.Div([*head, card("Values", empty(problem))])
    try:
        matrix = subject.pool(row).matrix
    except HoldallError as error:
        return html.Div([*head, card("Values", empty("The values cannot be shown.", brief(str(error))))])
    whole = matrix.whole
    if subject.is_remote and tensor.nbytes > _REMOTE:
        whole = matrix.clip(Region(0, _CORNER, 0, _CORNER))
    return watch_page(
        "tensor",
        [
            dcc.Store(id="tensor-row", data=[number, row]),
            dcc.Store(id="tensor-region", data=list(whole)),
            dcc.Store(id="tensor-drawn"),
            *head,
            html.Div([_draw_map(), _draw_side()], className="columns wide-left"),
            html.Div(
                [
                    card("By row", draw_graph("tensor-rows", 190, label="Statistics by row")),
                    card("By column", draw_graph("tensor-columns", 190, label="Statistics by column")),
                ],
                className="columns",
            ),
            html.Div([card("Largest values", html.Div(id="tensor-largest")), _draw_quantized()], className="columns"),
        ],
    )


def _list_facts(window: Window, number: int, tensor: Tensor) -> list[tuple[str, Any]]:
    subject = window.subjects[number]
    facts: list[tuple[str, Any]] = [
        ("type", str(tensor.dtype)),
        ("shape", shape_text(tensor.shape)),
        ("elements", count_text(tensor.count)),
        ("bytes", size_text(tensor.nbytes) if tensor.has_data else "no data"),
    ]
    place = subject.locate(tensor)
    if place is not None:
        href = window.href("/bytes", at=place[1], file=place[0], of=number)
        facts.append(("at byte", dcc.Link(f"{place[1]:#x}", href=href, id="tensor-bytes")))
    return facts


def _find_problem(tensor: Tensor) -> str:
    if not tensor.has_data:
        return "The file declares this tensor without storing its values."
    return "" if tensor.count else "This tensor has no elements."


def _draw_map() -> Any:
    options = [
        {"label": "max |x|", "value": "max"},
        {"label": "mean", "value": "mean"},
        {"label": "std", "value": "std"},
    ]
    labels = dict(zip(_STEPS, ("←", "↑", "↓", "→", "+", "−", "whole"), strict=True))
    titles = dict(zip(_STEPS, ("go left", "go up", "go down", "go right", "zoom in", "zoom out", "all"), strict=True))
    buttons = [
        html.Button(labels[step], id=f"tensor-{step}", title=titles[step], className="button small", **name_event(step))
        for step in _STEPS
    ]
    tools = [
        html.Div(buttons, className="buttons"),
        dcc.Dropdown(options, "max", id="tensor-by", clearable=False, searchable=False, className="choose"),
    ]
    fields = html.Div(
        [
            *[
                html.Label([name, dcc.Input(id=id, type="text", debounce=True, className="short")], **name_event(name))
                for name, id in zip(("rows", "columns"), _FIELDS, strict=True)
            ],
            html.Span(id="tensor-scale", className="hint"),
        ],
        className="line fields",
    )
    code = html.Div(
        [html.Pre(id="tensor-code"), dcc.Clipboard(target_id="tensor-code", title="copy", className="copy")],
        className="code",
    )
    graph = dcc.Loading(draw_graph("tensor-heat", 420, label="Heat map"), delay_show=300, type="dot")
    return card("Values", graph, fields, code, tools=tools)


def _draw_side() -> Any:
    graph = draw_graph("tensor-histogram", 220, label="Histogram of the values")
    return card("Distribution", graph, html.Div(id="tensor-facts"))


def _draw_quantized() -> Any:
    return card("As stored", html.Div(id="tensor-quantized"))


def _parse_span(text: str | None, size: int) -> tuple[int, int] | None:
    """A text such as 0:256 as a range; None if it is none."""
    first, _, last = (text or "").replace(",", "").replace(" ", "").partition(":")
    if not (first or "0").isdecimal() or not (last or "0").isdecimal() or len(first) > 15 or len(last) > 15:
        return None
    start = int(first or 0)
    stop = int(last) if last else (size if ":" in (text or "") else start + 1)
    return (start, stop) if start < stop else None


def _move(region: Region, step: str, whole: Region) -> Region:
    """The region after a button."""
    top, bottom, left, right = region
    tall, wide = bottom - top, right - left
    down, across = max(1, tall // 2), max(1, wide // 2)
    if step == "whole":
        return whole
    if step == "in":
        return Region(
            top + tall // 4, top + tall // 4 + max(1, tall // 2), left + wide // 4, left + wide // 4 + max(1, wide // 2)
        )
    if step == "out":
        return Region(top - down, bottom + down, left - across, right + across)
    shift = {
        "left": (0, -across),
        "right": (0, across),
        "up": (-down, 0),
        "down": (down, 0),
    }[step]
    y = min(max(top + shift[0], 0), max(0, whole.bottom - tall))
    x = min(max(left + shift[1], 0), max(0, whole.right - wide))
    return Region(y, y + tall, x, x + wide)


def _drag(region: Region, change: dict[str, Any], whole: Region) -> Region | None:
    """The region that was marked with the mouse; None if nothing was."""
    if any(key.endswith("autorange") for key in change):
        return whole
    values = {key: change.get(key) for key in ("xaxis.range[0]", "xaxis.range[1]", "yaxis.range[0]", "yaxis.range[1]")}
    if not any(isinstance(value, (int, float)) for value in values.values()):
        return None
    x = (
        sorted((values["xaxis.range[0]"] or 0.0, values["xaxis.range[1]"] or 0.0))
        if values["xaxis.range[0]"] is not None
        else [region.left - 0.5, region.right - 0.5]
    )
    y = (
        sorted((values["yaxis.range[0]"] or 0.0, values["yaxis.range[1]"] or 0.0))
        if values["yaxis.range[0]"] is not None
        else [region.top - 0.5, region.bottom - 0.5]
    )
    return Region(round(y[0] + 0.5), round(y[1] + 0.5), round(x[0] + 0.5), round(x[1] + 0.5))


def _write_code(subject: Subject, row: int, line: str) -> str:
    """Write what reads the slice; repr() escapes what is not printable, so that the line runs for any name."""
    path = subject.files[0].name if subject.files else subject.name
    name = subject.model.tensors[row].name
    tensor = f"[{name!r}]" if len(name) <= _SPELLED else f".tensors[{row}]"
    return f"holdall.open({path!r}){tensor}{line}"


def _describe_cells(pooled: Pooled) -> str:
    if pooled.tall == pooled.wide == 1:
        return "each cell is one element"
    return f"each cell stands for {pooled.tall} × {pooled.wide} elements"


def _list_largest(subject: Subject, row: int, tensor: Tensor) -> Any:
    if subject.is_remote and tensor.nbytes > _REMOTE:
        return empty("They are not looked for in a large remote tensor.")
    found = subject.pool(row).find_largest()
    rows = [(html.Code(str(list(place))), str(value)) for place, value in found]
    return show_table(("index", "value"), rows, ("value",))


def _show_quantized(tensor: Tensor) -> Any:
    found = read_quantized(tensor)
    if found is None:
        return empty(f"The elements are stored as {tensor.dtype}, without scales.")
    parts: list[Any] = [html.P(found.text, className="hint")]
    for name, values in (("scales", found.scales), ("codes", found.codes)):
        if values is not None and values.size:
            parts += [html.H3(name), draw_graph(f"tensor-{name}", 130, draw_bars(values), name)]
    missing = [name for name, values in (("scales", found.scales), ("codes", found.codes)) if values is None]
    if missing:
        text = f"{' and '.join(missing).capitalize()} of {tensor.dtype} are not shown."
        parts.append(html.P(text, className="hint"))
    return parts


def register(app: Dash, window: Window) -> None:
    """Add what happens on this page."""
    watch_plot(app, "tensor-heat", "plotly_relayout", "mark", "event")
    _register_moves(app, window)
    _register_pictures(app, window)
    _register_values(app, window)


def _register_moves(app: Dash, window: Window) -> None:
    """What a user does moves the region: buttons, a mark on the heat map, the two fields."""

    @app.callback(
        Output("tensor-region", "data"),
        Output("tensor-seen", "data"),
        Input("tensor-events", "data"),
        State("tensor-seen", "data"),
        State("tensor-region", "data"),
        State("tensor-row", "data"),
        prevent_initial_call=True,
    )
    def zoom(events: list[Event] | None, seen: int, kept: list[int], at: list[int]) -> tuple[Any, int]:
        happened, last = list_new(events, seen)
        region = _read_region(kept)
        if happened:
            subject, row = window.tensor(at)
            matrix = subject.pool(row).matrix
            for name, detail in happened:
                region = matrix.clip(_apply(region, name, detail, matrix) or region)
        return (list(region) if list(region) != kept else no_update), last


def _read_region(sent: object) -> Region:
    """The rows and columns that a page sent."""
    return Region(*check_indices(sent, ANY, ANY, ANY, ANY))


def _apply(region: Region, event: str, detail: Any, matrix: Matrix) -> Region | None:
    """The region after an event; None if it changes nothing."""
    if event in _STEPS:
        return _move(region, event, matrix.whole)
    if event == "mark":
        return _drag(region, detail or {}, matrix.whole)
    span = _parse_span(detail, matrix.rows if event == "rows" else matrix.columns)
    if span is None:
        return None
    return Region(*span, region.left, region.right) if event == "rows" else Region(region.top, region.bottom, *span)


def _register_pictures(app: Dash, window: Window) -> None:
    """The heat map of the region, and what stands around it."""

    @app.callback(
        Output("tensor-heat", "figure"),
        Output("tensor-rows", "figure"),
        Output("tensor-columns", "figure"),
        Output("tensor-scale", "children"),
        Output("tensor-code", "children"),
        *[Output(id, "value") for id in _FIELDS],
        Output("tensor-drawn", "data"),
        Input("tensor-region", "data"),
        Input("tensor-by", "value"),
        State("tensor-row", "data"),
        State("tensor-drawn", "data"),
    )
    def draw(kept: list[int], by: str, at: list[int], drawn: list[int] | None) -> tuple[Any, ...]:
        subject, row = window.tensor(at)
        region = _read_region(kept)
        try:
            pooling = subject.pool(row)
            pooled = pooling.look(pooling.matrix.clip(region), _HEIGHT, _WIDTH)
            figure = draw_heat(pooling.matrix, pooled, by)
        except (HoldallError, OSError) as error:
            blank: dict[str, Any] = {"data": [], "layout": {}}
            problem = html.Span(brief(str(error)), className="bad")
            return blank, blank, blank, problem, "", no_update, no_update, at
        shown = pooled.region
        code = _write_code(subject, row, pooling.matrix.write_line(shown))
        texts = [f"{shown.top}:{shown.bottom}", f"{shown.left}:{shown.right}"]
        profiles = draw_profile(pooled, 0), draw_profile(pooled, 1)
        return figure, *profiles, _describe_cells(pooled), code, *texts, no_update if drawn else at


def _register_values(app: Dash, window: Window) -> None:
    """What the values are like: after the first picture, which comes sooner."""

    @app.callback(
        Output("tensor-histogram", "figure"),
        Output("tensor-facts", "children"),
        Input("tensor-drawn", "data"),
        prevent_initial_call=True,
    )
    def measure(at: list[int]) -> tuple[Any, Any]:
        subject, row = window.tensor(at)
        return _measure(subject, subject.model.tensors[row])

    @app.callback(
        Output("tensor-largest", "children"),
        Output("tensor-quantized", "children"),
        Input("tensor-drawn", "data"),
        prevent_initial_call=True,
    )
    def list_more(at: list[int]) -> tuple[Any, Any]:
        subject, row = window.tensor(at)
        tensor = subject.model.tensors[row]
        try:
            return _list_largest(subject, row, tensor), _show_quantized(tensor)
        except (HoldallError, OSError) as error:
            return empty("The values cannot be read.", brief(str(error))), ""


def _measure(subject: Subject, tensor: Tensor) -> tuple[Any, Any]:
    """The histogram of a tensor, and its statistics."""
    if subject.is_remote and tensor.nbytes > _REMOTE:
        return no_update, empty(f"{size_text(tensor.nbytes)} are not fetched for a histogram.")
    try:
        stats = tensor_stats(tensor, 64)
    except (HoldallError, OSError) as error:
        return no_update, empty("There is no histogram.", brief(str(error)))
    names = ("min", "max", "mean", "median", "std")
    facts: list[tuple[str, Any]] = [(name, format_number(getattr(stats, name)) or "–") for name in names]
    facts += [(name, f"{getattr(stats, name):,}") for name in ("zeros", "nan", "inf")]
    return draw_histograms([(tensor.name, stats)]), list_facts(facts)
