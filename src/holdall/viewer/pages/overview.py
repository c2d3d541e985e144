"""The page that shows what a model is: facts, a treemap, metadata, assets, findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import MATCH, Dash, Input, Output, State, dcc, html, no_update

from holdall.base.text import brief, clean, count_text, percent, plural, shorten, size_text, value_text
from holdall.errors import HoldallError
from holdall.operations.overview import OTHER, count_kinds
from holdall.viewer.events import list_new, name_event, watch_page, watch_plot
from holdall.viewer.names import split_place
from holdall.viewer.parts import card, draw_graph, empty, list_facts, show_progress, show_scale, show_table
from holdall.viewer.shading import Shading, Statistic, count_elements
from holdall.viewer.statistics import COLUMNS
from holdall.viewer.treemap import BY_TYPE, assign_types, draw_treemap, rank_types
from holdall.viewer.window import check_indices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdall.viewer.events import Event
    from holdall.viewer.subject import Subject
    from holdall.viewer.window import Window

__all__ = ["TITLE", "is_there", "lay_out", "register"]

TITLE = "Overview"
_ENTRIES = 100  # of metadata at a time
_VALUE = 110  # letters of a folded value
_OPENED = 20_000  # letters of an unfolded one
_HEAD = 4000  # bytes of an asset that are shown


def is_there(window: Window) -> bool:
    """Always."""
    return True


def lay_out(window: Window, query: Mapping[str, str]) -> Any:
    """The page for one model."""
    number, subject = window.choose(query)
    store = dcc.Store(id="overview-of", data=number)
    beat = dcc.Interval(id="overview-beat", interval=1000)
    parts = [html.H1(clean(subject.title)), list_facts(_list_facts(subject))]
    if len(subject.model.tensors):
        parts.append(_draw_map(window, subject))
        parts.append(html.Div([_list_types(subject), _list_kinds(subject)], className="columns"))
    else:
        parts.append(card("Tensors", empty("This model has no tensors.")))
    parts += [_show_findings(subject), _show_metadata(subject), _show_assets(subject)]
    return html.Div([store, beat, *parts])


def _list_facts(subject: Subject) -> list[tuple[str, str]]:
    model = subject.model
    totals = rank_types(model)
    parameters = sum(total.elements for total in totals.values())
    version = ".".join(map(str, model.version))
    format = subject.seen.format if subject.seen is not None else None
    facts = [
        ("format", f"{model.format or subject.report.format or 'in memory'} {version}".strip()),
        ("size", size_text(subject.size) + (f" in {len(subject.files)} files" if len(subject.files) > 1 else "")),
        ("tensors", f"{len(model.tensors):,}"),
        ("parameters", count_text(parameters)),
        ("types", ", ".join(totals) or "none"),
    ]
    if subject.cut:
        facts.append(("file", subject.cut))
    if format is not None:
        try:
            described = format.describe(model)
        except HoldallError:  # the findings say why
            described = {}
        facts += [(name, brief(value)) for name, value in described.items() if isinstance(value, str)]
    facts += [(f"size {name}", f"{value:,}") for name, value in list(model.sizevars.items())[:8]]
    return facts


def _draw_map(window: Window, subject: Subject) -> Any:
    options = [{"label": "type", "value": BY_TYPE}]
    options += [{"label": name, "value": name} for name in COLUMNS]
    if window.comparison is not None:
        options.append({"label": "difference", "value": "difference"})
    choose = dcc.Dropdown(options, BY_TYPE, id="treemap-by", clearable=False, searchable=False, className="choose")
    tools = [html.Label("colour by", htmlFor="treemap-by"), choose]
    graph = draw_graph("treemap", 400, draw_treemap(subject.model, title=subject.title), "Tensors by size")
    stores = [dcc.Store(id="treemap-place", data="")]
    stores += [dcc.Store(id=f"treemap-{name}", data=0) for name in ("known", "drawn")]
    steps = html.Div(_draw_steps(subject, ""), id="treemap-steps", className="steps")
    key = html.Div(_draw_key(subject, BY_TYPE, {}), id="treemap-key", className="key")
    return watch_page("treemap", [*stores, card("Where the bytes are", steps, graph, key, tools=tools)])


def _draw_steps(subject: Subject, place: str) -> list[Any]:
    """The way to the place that is shown, each step a button."""
    steps = [("", subject.title), *split_place(place)]
    found: list[Any] = []
    for at, (target, label) in enumerate(steps):
        if at:
            found.append(html.Span("›", className="sep"))
        found.append(
            html.Button(shorten(clean(label) or "·", 40), disabled=at == len(steps) - 1, className="step",
                        **name_event(f"p{target}"))
        )  # fmt: skip
    return found


def _draw_key(subject: Subject, by: str, layout: dict[str, Any]) -> list[Any]:
    if by == BY_TYPE:
        paint = assign_types(subject.model)
        return [
            html.Span([html.I(style={"background": color}), clean(name)], className="chip")
            for name, color in list(paint.items())[:12]
        ]
    return show_scale(layout.get("meta") or {}, COLUMNS.get(by, "how large the difference is beside the values"))


def _list_types(subject: Subject) -> Any:
    totals = rank_types(subject.model)
    nbytes = sum(total.nbytes for total in totals.values())
    rows = [
        (clean(name), f"{t.tensors:,}", count_text(t.elements), size_text(t.nbytes), percent(t.nbytes, nbytes))
        for name, t in totals.items()
    ]
    headers = ("type", "tensors", "parameters", "bytes", "share")
    return card("Types", show_table(headers, rows, headers[1:]))


def _list_kinds(subject: Subject) -> Any:
    kinds = count_kinds(subject.model)
    headers = ("layers", "tensors", "parameters", "share")
    total = sum(kind.parameters for kind in kinds.values())
    rows = [
        (name, f"{kind.tensors:,}", count_text(kind.parameters), percent(kind.parameters, total))
        for name, kind in kinds.items()
    ]
    if not set(kinds) - {OTHER}:
        return card("Layers", empty("Neither names nor nodes tell kinds of layers."))
    return card("Layers", show_table(headers, rows, headers[1:]))


def _show_findings(subject: Subject) -> Any:
    task = subject.verification
    task.keep()
    hidden = subject.seen is None or not task.is_waiting
    button = html.Button("Verify all bytes", id="verify", className="button", hidden=hidden)
    return card("Findings", html.Div(id="findings"), tools=[button])


def _list_findings(window: Window, number: int) -> Any:
    subject = window.subject(number)
    findings, counts = subject.report.findings, subject.report.counts
    verified = subject.verification.state == "done"
    progress = show_progress(subject.verification, "verifying") if not verified else ""
    if not counts:
        level = "All hashes, padding and values were checked" if verified else "The structure was checked"
        return [progress, empty(f"Nothing is wrong. {level}." if subject.seen else "A model in memory has no file.")]
    rows = []
    for finding in findings[:200]:
        place: Any = ""
        if finding.offset is not None:
            file = next((at for at, each in enumerate(subject.files) if each.name == finding.file), 0)
            href = window.href("/bytes", at=finding.offset, file=file, of=number)
            place = dcc.Link(f"{finding.offset:#x}", href=href)
        inner = f" [{finding.inner}]" if finding.inner else ""
        hint = html.Div(brief(finding.hint), className="hint") if finding.hint else None
        severity = html.Span(finding.severity, className=f"badge {finding.severity}")
        rows.append((severity, place, [brief(finding.message + inner), hint], html.Code(clean(finding.rule))))
    more = sum(counts.values()) - len(rows)
    note = html.P(f"… and {more:,} more: holdall verify lists them", className="hint") if more > 0 else ""
    return [progress, show_table(("", "byte", "what is wrong", "rule"), rows), note]


def _show_metadata(subject: Subject) -> Any:
    try:
        count = len(subject.model.metadata.entries)
    except HoldallError as error:
        return card("Metadata", empty("The metadata cannot be read.", clean(str(error))))
    if not count:
        return card("Metadata", empty("There is no metadata."))
    search = dcc.Input(
        id="metadata-search", type="search", placeholder=f"search {plural(count, 'entry', 'entries')}", debounce=0.2
    )
    return card("Metadata", html.Div(_list_metadata(subject, ""), id="metadata"), tools=[search])


def _list_metadata(subject: Subject, wanted: str) -> Any:
    try:
        return _find_metadata(subject, wanted.casefold())
    except (HoldallError, OSError) as error:  # some values are read when they are shown
        return empty("The metadata cannot be read.", brief(str(error)))


def _find_metadata(subject: Subject, wanted: str) -> Any:
    rows, found = [], 0
    for entry in subject.model.metadata.entries:
        text = value_text(entry.value, _OPENED)
        if wanted and wanted not in entry.key.casefold() and wanted not in text.casefold():
            continue
        found += 1
        if found <= _ENTRIES:
            kind = html.Span(clean(str(entry.kind or "")), className="hint")
            rows.append((html.Code(shorten(entry.key, 120)), kind, _fold(text)))
    if not rows:
        return empty("No entry matches.")
    more = html.P(f"… and {found - _ENTRIES:,} more: search for them", className="hint") if found > _ENTRIES else ""
    return [show_table(("key", "kind", "value"), rows), more]


def _fold(text: str) -> Any:
    """A value; a long one is folded."""
    if len(text) <= _VALUE:
        return html.Span(text, className="value")
    return html.Details([html.Summary(f"{text[:_VALUE]}…"), html.Pre(text)], className="value")


def _show_assets(subject: Subject) -> Any:
    try:
        names = list(subject.model.assets)
    except HoldallError as error:
        return card("Assets", empty("The assets cannot be read.", clean(str(error))))
    if not names:
        return card("Assets", empty("There are no files inside, such as a tokenizer."))
    rows = []
    for at, name in enumerate(names[:200]):
        size = subject.model.assets.measure(name)
        button = html.Button("show", id={"type": "asset", "at": at}, className="button small")
        shown = html.Div(id={"type": "asset-text", "at": at})
        rows.append(
            (html.Code(shorten(name, 120)), "cannot be read" if size is None else size_text(size), button, shown)
        )
    more = f"… and {len(names) - 200:,} more" if len(names) > 200 else ""
    return card("Assets", show_table(("name", "size", "", ""), rows, ("size",)), html.P(more, className="hint"))


def _read_asset(subject: Subject, at: object) -> Any:
    names = list(subject.model.assets)
    name = names[check_indices(at, len(names))[0]]
    try:
        payload = subject.model.assets.payload(name)
        head = bytes(payload.slice(0, min(_HEAD, payload.size)))
    except (HoldallError, OSError) as error:
        return html.Span(brief(str(error)), className="bad")
    text = head.decode("utf-8", "backslashreplace")
    lines = "\n".join(clean(line) for line in text.split("\n"))
    return html.Pre(lines + ("\n…" if payload.size > _HEAD else ""), className="value")


def _count_known(window: Window, subject: Subject, by: str) -> int:
    """How much is known of what the colours show. To ask keeps the work going."""
    if by == "difference" and window.comparison is not None:
        window.comparison.task.keep()
        return int(window.comparison.found is not None)
    subject.statistics.task.keep()
    return subject.statistics.filled


def _find_waiting(window: Window, subject: Subject, by: str) -> list[Any]:
    """What is said instead of a scale while the work behind the colours waits for a user; else nothing."""
    apart = window.comparison if by == "difference" else None
    if by == BY_TYPE or not (apart or subject.statistics).task.is_waiting:
        return []
    title, path = ("Compare", "/compare") if apart else ("Tensors", "/tensors")
    text = "unknown: this would fetch whole files, and begins with the button of the page "
    return [html.Span(text, className="hint"), dcc.Link(title, href=window.href(path))]


def _choose_shading(window: Window, number: int, by: str) -> Shading | None:
    if by == "difference" and window.comparison is not None:
        return window.comparison.shade(number)
    subject = window.subject(number)
    column = subject.statistics.columns.get(by)
    return None if column is None else Statistic(column, count_elements(subject.model))


def register(app: Dash, window: Window) -> None:
    """Add what happens on this page."""
    # Plotly does not zoom by itself: the next level may be yet to be sent.
    watch_plot(app, "treemap", "plotly_treemapclick", "tile", "event.points[0].customdata", "false")
    _register_map(app, window)
    _register_findings(app, window)
    _register_contents(app, window)


def _register_map(app: Dash, window: Window) -> None:
    """The treemap: where it is, and what its colours say."""

    @app.callback(
        Output("treemap-place", "data"),
        Output("place", "href"),
        Output("treemap-seen", "data"),
        Input("treemap-events", "data"),
        State("treemap-seen", "data"),
        State("overview-of", "data"),
        prevent_initial_call=True,
    )
    def zoom(events: list[Event] | None, seen: int, number: int) -> tuple[Any, Any, int]:
        happened, last = list_new(events, seen)
        place: Any = no_update
        href: Any = no_update
        for name, detail in happened:
            # A tile has its target as detail, a button of a step in its name.
            target = str(detail or "") if name == "tile" else name
            if target.startswith("p"):
                place, href = target[1:], no_update
            elif target.startswith("t"):
                href = window.href("/tensor", row=target[1:], **({"of": 1} if number else {}))
        return place, href, last

    @app.callback(
        Output("treemap-known", "data"),
        Input("overview-beat", "n_intervals"),
        State("treemap-by", "value"),
        State("treemap-known", "data"),
        State("treemap-drawn", "data"),
        State("overview-of", "data"),
        prevent_initial_call=True,
    )
    def count_known(_: int | None, by: str, known: int, drawn: int, number: int) -> Any:
        now = known if by == BY_TYPE else _count_known(window, window.subject(number), by)
        # A picture is awaited before the next is asked for: that one would make Dash drop it.
        return now if now != known and drawn == known else no_update

    @app.callback(
        Output("treemap", "figure"),
        Output("treemap-key", "children"),
        Output("treemap-drawn", "data"),
        Input("treemap-place", "data"),
        Input("treemap-by", "value"),
        Input("treemap-known", "data"),
        State("overview-of", "data"),
        prevent_initial_call=True,
    )
    def draw(place: str, by: str, known: int, number: int) -> tuple[Any, Any, int]:
        subject = window.subject(number)
        figure = draw_treemap(subject.model, place, _choose_shading(window, number, by), subject.title)
        key = _find_waiting(window, subject, by) or _draw_key(subject, by, figure["layout"])
        return figure, key, known

    @app.callback(
        Output("treemap-steps", "children"),
        Input("treemap-place", "data"),
        State("overview-of", "data"),
        prevent_initial_call=True,
    )
    def draw_steps(place: str, number: int) -> Any:
        return _draw_steps(window.subject(number), place)


def _register_findings(app: Dash, window: Window) -> None:
    """The findings, while the verification goes on."""

    @app.callback(Output("findings", "children"), Input("overview-beat", "n_intervals"), State("overview-of", "data"))
    def show_findings(_: int | None, number: int) -> Any:
        window.subject(number).verification.keep()
        return _list_findings(window, number)

    @app.callback(
        Output("verify", "hidden"), Input("verify", "n_clicks"), State("overview-of", "data"), prevent_initial_call=True
    )
    def verify(clicks: int | None, number: int) -> bool:
        if clicks:
            window.subject(number).verification.start()
        return bool(clicks)


def _register_contents(app: Dash, window: Window) -> None:
    """What lies beside the tensors: metadata and assets."""

    @app.callback(
        Output("metadata", "children"),
        Input("metadata-search", "value"),
        State("overview-of", "data"),
        prevent_initial_call=True,
    )
    def search(wanted: str | None, number: int) -> Any:
        return _list_metadata(window.subject(number), wanted or "")

    @app.callback(
        Output({"type": "asset-text", "at": MATCH}, "children"),
        Input({"type": "asset", "at": MATCH}, "n_clicks"),
        State({"type": "asset", "at": MATCH}, "id"),
        State("overview-of", "data"),
        prevent_initial_call=True,
    )
    def show_asset(clicks: int | None, id: dict[str, Any], number: int) -> Any:
        return _read_asset(window.subject(number), id["at"]) if (clicks or 0) % 2 else ""
