"""The application: the frame around the pages, and which page an address shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from dash import Dash, Input, Output, dcc, html

from holdall.base.text import brief, clean, shorten, size_text
from holdall.errors import HoldallError
from holdall.viewer.pages import PAGES
from holdall.viewer.parts import empty

if TYPE_CHECKING:
    from holdall.viewer.window import Window

__all__ = ["make_app"]

_LABEL: Any = {"aria-label": "Pages"}

# Without the conditional comment of Dash, which has a script for browsers that are gone.
_INDEX = """<!DOCTYPE html>
<html lang="en"><head>{%metas%}<meta name="color-scheme" content="light dark"><title>{%title%}</title>
<link rel="icon" href="data:,">{%css%}</head>
<body>{%app_entry%}<footer hidden>{%config%}{%scripts%}{%renderer%}</footer></body></html>
"""


def make_app(window: Window, prefix: str = "/") -> Dash:
    """The Dash application of a window, whose addresses begin with ``prefix``."""
    app = Dash(
        "holdall.viewer",
        assets_folder=str(Path(__file__).parent / "assets"),
        requests_pathname_prefix=prefix,
        routes_pathname_prefix="/",
        serve_locally=True,
        suppress_callback_exceptions=True,
        update_title="",
        title=f"{window.subjects[0].title} · holdall",
        index_string=_INDEX,
        add_log_handler=False,
    )
    window.prefix = prefix
    app.layout = _make_frame(window)
    _register(app, window)
    for page in PAGES.values():
        page.register(app, window)
    return app


def _make_frame(window: Window) -> Any:
    return html.Div(
        [
            dcc.Location(id="place", refresh="callback-nav"),
            dcc.Interval(id="beat", interval=2000),
            html.Header(
                [
                    html.A("Skip to the page", href="#page", className="skip"),
                    html.Span("holdall", className="brand"),
                    html.Nav(id="nav", **_LABEL),
                    html.Div(id="status", className="status", role="status"),
                ],
                className="top",
            ),
            html.Div(id="notice"),
            html.Main(id="page", tabIndex="-1", children=html.Div(className="loading")),
        ]
    )


def _register(app: Dash, window: Window) -> None:
    @app.callback(
        Output("page", "children"), Output("nav", "children"), Input("place", "pathname"), Input("place", "search")
    )
    def show_page(path: str | None, search: str | None) -> tuple[Any, Any]:
        query = dict(parse_qsl((search or "").lstrip("?")))
        name = "/" + (path or "/").removeprefix(window.prefix).strip("/")
        page = PAGES.get(name)
        if page is None or not page.is_there(window):
            name, page = "/", PAGES["/"]
        try:
            content = page.lay_out(window, query)
        except (HoldallError, OSError) as error:  # such as a file that was cut since it was opened
            content = empty("This page cannot be shown.", brief(str(error)))
        return content, _draw_nav(window, name, query)

    @app.callback(Output("status", "children"), Output("notice", "children"), Input("beat", "n_intervals"))
    def show_status(_: int | None) -> tuple[Any, Any]:
        received = [subject.received for subject in window.subjects if subject.received is not None]
        status = f"{size_text(sum(received))} fetched" if received else ""
        changes = [change for subject in window.subjects if (change := subject.find_change())]
        return status, [html.Div(change, className="notice", role="alert") for change in changes]


def _draw_nav(window: Window, shown: str, query: dict[str, str]) -> list[Any]:
    number, subject = window.choose(query)
    links = []
    for path, page in PAGES.items():
        if page.TITLE and page.is_there(window):
            current = path == shown or (path == "/tensors" and shown == "/tensor")
            of = {"of": str(number)} if number and path != "/compare" else {}
            href = window.href(path, **of)
            links.append(dcc.Link(page.TITLE, href=href, className="current" if current else ""))
    names: list[Any] = [html.Span(shorten(clean(subject.title), 48), className="file", title=clean(subject.name))]
    if len(window.subjects) == 2 and shown in ("/", "/tensors", "/bytes", "/vocabulary"):
        names = [
            dcc.Link(
                [html.B("AB"[each]), " ", shorten(clean(window.subjects[each].title), 28)],
                href=window.href(shown, **({"of": "1"} if each else {})),
                className="file choice" + (" current" if each == number else ""),
            )
            for each in (0, 1)
        ]
    elif len(window.subjects) == 2:
        names = [
            html.Span(
                [html.B("AB"[at]), " ", shorten(clean(each.title), 28)],
                className="file choice" + (" current" if shown == "/tensor" and at == number else ""),
            )
            for at, each in enumerate(window.subjects)
        ]
    return [html.Span(names, className="files"), html.Span(links, className="links")]
