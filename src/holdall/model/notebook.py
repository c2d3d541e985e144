"""A model in a notebook: compact tables, with all text from the file escaped."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from holdall.base.text import count_text, html_text, list_text, plural, shape_text, size_text, value_text
from holdall.errors import ClosedError

if TYPE_CHECKING:
    from holdall.model.model import Model
    from holdall.model.tensor import Tensor

__all__ = ["model_html"]

# What is shown; the rest is counted.
_TENSORS = 20
_ENTRIES = 20
_NAME = 120  # characters of a text


def model_html(model: Model) -> str:
    """The model as HTML: totals, the first tensors, the first metadata entries.

    >>> import numpy as np
    >>> from holdall.model.model import model_of
    >>> "&lt;b&gt;" in model_html(model_of({"<b>": np.zeros(2)}))
    True
    """
    try:
        tensors = model.tensors
    except ClosedError:
        return "<div><b>model</b>, closed</div>"
    totals = tensors.totals()
    elements, nbytes = sum(t.elements for t in totals.values()), sum(t.nbytes for t in totals.values())
    title = " ".join(filter(None, [model.format or "model", ".".join(map(str, model.version))]))
    kinds = list_text([f"{name} × {total.tensors:,}" for name, total in totals.items()])
    parts = [
        f"<div><b>{_escape(title)}</b>: {plural(len(tensors), 'tensor')}, {count_text(elements)} elements, "
        f"{size_text(nbytes)}{_escape(f' ({kinds})') if kinds else ''}</div>"
    ]
    if len(tensors):
        shown = [_cells_of(tensors[row]) for row in range(min(_TENSORS, len(tensors)))]
        parts.append(_render_table(("name", "dtype", "shape", "bytes"), shown, len(tensors) - len(shown)))
    if model.metadata:
        entries = [(key, value_text(model.metadata[key], 80)) for key in islice(model.metadata, _ENTRIES)]
        parts.append(_render_table(("metadata", "value"), entries, len(model.metadata) - len(entries)))
    if model.assets:
        blobs = [(name, size_text(model.assets.payload(name).size)) for name in islice(model.assets, _ENTRIES)]
        parts.append(_render_table(("asset", "bytes"), blobs, len(model.assets) - len(blobs)))
    return "\n".join(parts)


def _cells_of(tensor: Tensor) -> tuple[str, ...]:
    nbytes = size_text(tensor.nbytes) if tensor.has_data else "no data"
    return tensor.name, str(tensor.dtype), shape_text(tensor.shape), nbytes


def _render_table(headers: tuple[str, ...], rows: list[Any], more: int) -> str:
    head = "".join(f"<th style='text-align:left'>{_escape(header)}</th>" for header in headers)
    body = "".join(f"<tr>{''.join(_render_cell(cell) for cell in row)}</tr>" for row in rows)
    if more > 0:
        body += f"<tr><td colspan='{len(headers)}'>… and {more:,} more</td></tr>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _render_cell(text: str) -> str:
    return f"<td style='text-align:left'>{_escape(text)}</td>"


def _escape(text: str) -> str:
    shown = text if len(text) <= _NAME else text[:_NAME] + "…"
    return html_text(shown)
