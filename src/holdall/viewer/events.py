"""What users do on a page, in order and each once: the one rule for callbacks, and what they keep it with.

Dash calls a callback once for all that triggered it while it waited, names the first of the triggers, and drops the
answer of a call when the same callback is triggered again. So that nothing a user does is lost:

- A timer triggers a callback alone, and changes nothing that the user chose.
- An event (a click, a key, a mark on a plot) shares a callback with nothing that a callback writes. The value of a
  field is no event and may stand beside what callbacks write, in a callback that answers from values.
- No callback asks what triggered it. Where the answer to an event depends on what was before, the browser lists the
  events of the page in a store (assets/events.js), and the callback keeps the number of the last one that it has dealt
  with. An answer that was dropped is made up for by the next, from the same list.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from dash import Input, Output, dcc, html

if TYPE_CHECKING:
    from dash import Dash

__all__ = ["Event", "list_new", "name_event", "watch_page", "watch_plot"]

Event: TypeAlias = tuple[int, str, Any]  # number, name, detail: the text of a field, the place of a cell, a mark
_made = count(1)


def watch_page(name: str, content: Sequence[Any]) -> html.Div:
    """A page whose events are listed in the store ``name-events``; ``name-seen`` is for the last one dealt with."""
    stores = [dcc.Store(id=f"{name}-events"), dcc.Store(id=f"{name}-seen", data=0)]
    data: Any = {"data-events": f"{name}-events", "data-made": str(next(_made))}
    return html.Div([*stores, *content], **data)


def name_event(name: str) -> Any:
    """What makes a click on a button, or a change of the field in a label, an event."""
    return {"data-event": name}


def watch_plot(app: Dash, plot: str, event: str, name: str, detail: str, answer: str = "true") -> None:
    """List an event of Plotly as ``name`` with what the expression ``detail`` makes of ``event``.

    Dash does not tell of an event that equals the one before, such as a second click on one place. ``answer`` is what
    Plotly gets: "false" keeps it from doing what it does by itself.
    """
    watch = f"window.holdallWatchPlot('{plot}', '{event}', '{name}', event => {detail}, {answer})"
    in_browser: Any = app.clientside_callback
    in_browser(
        f"function() {{ {watch}; return window.dash_clientside.no_update; }}",
        Output(plot, "className"),
        Input(plot, "figure"),
    )


def list_new(events: Sequence[Event] | None, seen: int) -> tuple[list[tuple[str, Any]], int]:
    """The events after number ``seen``, and the number of the last one.

    >>> list_new([(1, "in", None), (2, "left", None), (3, "rows", "0:4")], 1)
    ([('left', None), ('rows', '0:4')], 3)
    """
    found = [(name, detail) for number, name, detail in events or () if number > seen]
    return found, events[-1][0] if events else seen
