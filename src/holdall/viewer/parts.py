"""Parts that several pages are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dash import dcc, html

from holdall.base.text import clean, size_text
from holdall.viewer.figures import CONFIG, lay_out
from holdall.viewer.task import Task

__all__ = ["card", "draw_graph", "empty", "list_facts", "show_progress", "show_scale", "show_table"]


def card(title: str, *content: Any, tools: Any = None, class_name: str = "") -> html.Section:
    """A titled part of a page."""
    head = [html.H2(title)] + ([html.Div(tools, className="tools")] if tools is not None else [])
    return html.Section([html.Header(head), *content], className=f"card {class_name}".strip())


def list_facts(facts: Iterable[tuple[str, Any]]) -> html.Dl:
    """Names and values; a text is cleaned, a component is taken as it is."""
    return html.Dl(
        [
            html.Div([html.Dt(name), html.Dd(clean(value) if isinstance(value, str) else value)])
            for name, value in facts
        ],
        className="facts",
    )


def show_table(headers: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[str] = ()) -> html.Div:
    """A plain table. The caller has cleaned the cells."""
    flush = [header in right for header in headers]

    def cells(kind: Any, row: Sequence[Any]) -> list[Any]:
        return [kind(cell, className="right" if at else "") for cell, at in zip(row, flush, strict=True)]

    body = [html.Tr(cells(html.Td, row)) for row in rows]
    return html.Div(html.Table([html.Thead(html.Tr(cells(html.Th, headers))), html.Tbody(body)]), className="table")


def show_scale(scale: Mapping[str, Any], what: str) -> list[Any]:
    """The key of a treemap whose colours are numbers; empty where there is no scale."""
    if not scale:
        return []
    low, high = f"{scale['low']:.4g}", f"{scale['high']:.4g}"
    return [
        html.Span(f"≤ {low}" if scale["below"] else low),
        html.I(className="scale"),
        html.Span(f"≥ {high}" if scale["above"] else high),
        html.Span(what, className="hint"),
    ]


def empty(text: str, hint: str = "") -> html.Div:
    """What stands where there is nothing to show."""
    return html.Div([html.P(text), html.P(hint, className="hint") if hint else None], className="empty")


def draw_graph(id: str, height: int, figure: dict[str, Any] | None = None, label: str = "", **more: Any) -> Any:
    """A plot of a fixed height, without buttons; ``label`` is what screen readers say."""
    hidden = {"visible": False}
    config: Any = CONFIG | more
    graph = dcc.Graph(
        id=id,
        figure=figure or {"data": [], "layout": lay_out(xaxis=hidden, yaxis=hidden, dragmode=False)},
        config=config,
        style={"height": f"{height}px"},
    )
    name: Any = {"aria-label": label}
    return html.Div(graph, className="plot", role="figure", **name)


def show_progress(task: Task, what: str, waiting: str = "") -> Any:
    """A bar with the state of a task."""
    if task.state in ("idle", "stopped"):
        return html.Div(html.Span(waiting), className="progress") if waiting else ""
    if task.state == "failed":
        return html.Div(html.Span(f"{what}: {clean(task.message)}", className="bad"), className="progress")
    if task.state == "done":
        return html.Div(html.Span(f"{what}: complete"), className="progress done")
    total = f" of {size_text(task.total)}" if task.total else ""
    bar = html.Div(html.Div(style={"width": f"{100 * task.share:.1f}%"}), className="bar")
    text = f"{what}: {size_text(task.done)}{total}"
    return html.Div([bar, html.Span(text)], className="progress", role="status")
