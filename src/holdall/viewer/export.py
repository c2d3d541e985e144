"""One page to send around: a file of its own, with its scripts inside, that opens without a network."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.progress import Progress
from holdall.base.text import brief, count_text, html_text, percent, plural, shorten, size_text, value_text
from holdall.base.urls import hide_secrets_in
from holdall.errors import HoldallError, MissingError, UnsupportedError
from holdall.operations.overview import count_kinds
from holdall.sink.text import write_text
from holdall.viewer.figures import CONFIG
from holdall.viewer.plots import draw_heat, draw_histograms
from holdall.viewer.statistics import COLUMNS
from holdall.viewer.subject import Subject
from holdall.viewer.treemap import assign_types, draw_treemap, rank_types

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["choose_tensors", "render_export", "write_export"]

_MOST = 20_000_000  # bytes of the page
_ROWS = 50_000  # tensors of the table, those with most bytes
_ENTRIES = 500  # of metadata
_VALUE = 4000  # letters of a value
_HEIGHT, _WIDTH = 200, 400  # cells of a heat map
_MAPS = 64
_FINE = 6_000_000  # bytes of heat maps, beyond which a cell has the upper half of its float32
_DRAW = """
function widen(packed) {
    const halves = new Uint16Array(Uint8Array.from(atob(packed.upper), letter => letter.charCodeAt(0)).buffer);
    const cells = new Float32Array(Uint32Array.from(halves, half => half * 65536).buffer);
    const wide = packed.columns;
    return Array.from({length: packed.rows}, (_, row) => cells.subarray(row * wide, (row + 1) * wide));
}
for (const each of JSON.parse(document.getElementById('figures').textContent)) {
    const data = each.figure.data;
    if (data[0].z && data[0].z.upper) data[0].z = widen(data[0].z);
    Plotly.newPlot(each.id, data, each.figure.layout, each.config);
}
"""


def choose_tensors(subject: Subject, wanted: Sequence[str]) -> list[int]:
    """The rows of the tensors called ``wanted``, which may be patterns, in file order."""
    names = subject.model.tensors.names
    rows = []
    for pattern in wanted:
        found = [row for row, name in enumerate(names) if name == pattern or fnmatchcase(name, pattern)]
        if not found:
            shown = hide_secrets_in(repr(pattern), [pattern])  # a URL may have been given in its place
            raise MissingError(f"there is no tensor {shown} among the {len(names)}", pattern, names)
        rows += found
    chosen = sorted(set(rows))
    if len(chosen) > _MAPS:
        raise UnsupportedError(f"{len(chosen)} tensors match; a page has at most {_MAPS} heat maps")
    return chosen


def write_export(
    path: str | os.PathLike[str], subject: Subject, tensors: Sequence[str] = (), progress: Progress | None = None
) -> int:
    """Write the page of a model, with a heat map of each of ``tensors``. Returns its size in bytes."""
    subject.demand_tensors()
    page = render_export(subject, choose_tensors(subject, tensors), progress)
    write_text(path, page)
    return len(page.encode("utf-8"))


def render_export(subject: Subject, rows: Sequence[int] = (), progress: Progress | None = None) -> str:
    """The page as text, of at most 20 MB: of a model with very many tensors the table has the largest."""
    subject.statistics.measure(progress)
    figures: list[dict[str, Any]] = []
    head = list(_list_sections(subject, rows, figures))
    maps = _measure_maps(figures)
    if maps > _FINE:
        _halve_maps(figures)
        maps = _measure_maps(figures)
    count = min(_ROWS, len(subject.model.tensors))
    while True:
        page = _assemble(subject, head, _render_tensors(subject, count), figures)
        size = len(page.encode("utf-8", "replace"))
        if size <= _MOST:
            return page
        if not count:
            raise UnsupportedError(
                f"the page would have {size:,} bytes without a table of tensors, and has at most {_MOST:,}, "
                f"{plural(len(rows), 'heat map')}: {maps:,}; ask for fewer"
            )
        count = count // 8 if size >= 4 * _MOST else min(count - 1, int(count * _MOST / size * 0.8))


def _list_maps(figures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each["figure"]["data"][0] for each in figures if each["figure"]["data"][0]["type"] == "heatmap"]


def _measure_maps(figures: list[dict[str, Any]]) -> int:
    return sum(len(trace["z"].get("bdata") or trace["z"]["upper"]) for trace in _list_maps(figures))


def _halve_maps(figures: list[dict[str, Any]]) -> None:
    """Keep the upper half of each cell that is a float32: its whole range, with three digits."""
    for trace in _list_maps(figures):
        z = trace["z"]
        if z["dtype"] == "f4":
            rows, columns = map(int, z["shape"].split(", "))
            halves = _take_upper_half(np.frombuffer(base64.b64decode(z["bdata"]), "<f4"))
            text = base64.b64encode(halves.tobytes()).decode("ascii")
            trace["z"] = {"upper": text, "rows": rows, "columns": columns}
            trace["hovertemplate"] = trace["hovertemplate"].replace("%{z}", "%{z:.3g}")


def _take_upper_half(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The nearest numbers whose lower 16 bits are zero, without those bits.

    >>> [hex(each) for each in _take_upper_half(np.array([1, -2.5, np.nan, np.inf], np.float32))]
    ['0x3f80', '0xc020', '0x7fc0', '0x7f80']
    """
    bits = values.view("<u4").astype(np.uint64)
    rounded = ((bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)).astype("<u2")
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded).astype("<u2")


def _assemble(subject: Subject, head: list[str], table: str, figures: list[dict[str, Any]]) -> str:
    library = _read_plotly()
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in (library, _DRAW))
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"
    style = (Path(__file__).parent / "assets" / "view.css").read_text(encoding="utf-8")
    title = html_text(shorten(subject.title, 200))
    data = json.dumps(figures, allow_nan=False).replace("<", "\\u003c")
    return "".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            f'<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"><title>{title}</title>',
            f'<style>{style}</style></head><body><main id="page"><h1>{title}</h1>',
            *head,
            table,
            f'</main><script type="application/json" id="figures">{data}</script>',
            f"<script>{library}</script><script>{_DRAW}</script></body></html>\n",
        ]
    )


def _read_plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise UnsupportedError("the page needs Plotly: pip install 'holdall[view]'") from error
    return str(get_plotlyjs()).replace("</script", "<\\/script")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _list_sections(subject: Subject, rows: Sequence[int], figures: list[dict[str, Any]]) -> Iterator[str]:
    model = subject.model
    totals = rank_types(model)
    nbytes = sum(total.nbytes for total in totals.values())
    facts = [
        (
            "format",
            f"{model.format or subject.report.format or 'in memory'} {'.'.join(map(str, model.version))}".strip(),
        ),
        ("size", size_text(subject.size)),
        ("tensors", f"{len(model.tensors):,}"),
        ("parameters", count_text(sum(total.elements for total in totals.values()))),
        ("types", ", ".join(totals) or "none"),
    ]
    facts += [("file", subject.cut)] if subject.cut else []
    yield '<dl class="facts">' + "".join(_render_fact(*fact) for fact in facts) + "</dl>"
    if len(model.tensors):
        figure = draw_treemap(model, title=subject.title)
        figure["data"][0]["pathbar"] = {"visible": True}
        chips = "".join(f'<span class="chip"><i style="background:{color}"></i>{html_text(name)}</span>'
                        for name, color in list(assign_types(model).items())[:12])  # fmt: skip
        yield _render_card("Where the bytes are", _place(figures, figure, 420) + f'<div class="key">{chips}</div>')
    for row in rows:
        yield _render_tensor(subject, row, figures)
    types = [
        (name, f"{t.tensors:,}", count_text(t.elements), size_text(t.nbytes), percent(t.nbytes, nbytes))
        for name, t in totals.items()
    ]
    kinds = [(name, f"{k.tensors:,}", count_text(k.parameters)) for name, k in count_kinds(model).items()]
    left = _render_card("Types", _render_table(("type", "tensors", "parameters", "bytes", "share"), types, 1))
    right = _render_card("Layers", _render_table(("layers", "tensors", "parameters"), kinds, 1))
    yield f'<div class="columns">{left}{right}</div>'
    yield _render_card("Findings", _render_findings(subject))
    yield _render_card("Metadata", _render_metadata(subject))


def _render_tensor(subject: Subject, row: int, figures: list[dict[str, Any]]) -> str:
    tensor = subject.model.tensors[row]
    title = html_text(shorten(f"{tensor.name}  {tensor.dtype}{list(tensor.shape)}", 200))
    if not tensor.has_data or not tensor.count:
        return _render_card(title, "<p class='empty'>It has no values.</p>", is_safe=True)
    from holdall.operations.stats import tensor_stats

    try:
        pooling = subject.pool(row)
        pooled = pooling.look(pooling.matrix.whole, _HEIGHT, _WIDTH)
        drawings = draw_heat(pooling.matrix, pooled, "max"), draw_histograms([(tensor.name, tensor_stats(tensor, 64))])
    except HoldallError as error:
        return _render_card(title, f"<p class='empty'>{html_text(brief(str(error)))}</p>", is_safe=True)
    heat, spread = (_place(figures, figure, height) for figure, height in zip(drawings, (420, 180), strict=True))
    hint = f"<p class='hint'>max |x|; each cell stands for {pooled.tall} × {pooled.wide} elements</p>"
    return _render_card(title, heat + hint + spread, is_safe=True)


def _place(figures: list[dict[str, Any]], figure: dict[str, Any], height: int) -> str:
    """A place for a figure on the page."""
    id = f"figure-{len(figures)}"
    figures.append({"id": id, "figure": figure, "config": CONFIG})
    return f'<div class="plot" id="{id}" style="height:{height}px"></div>'


def _render_card(title: str, body: str, *, is_safe: bool = False) -> str:
    name = title if is_safe else html_text(title)
    return f'<section class="card"><header><h2>{name}</h2></header>{body}</section>\n'


def _render_fact(name: str, value: str) -> str:
    return f"<div><dt>{html_text(name)}</dt><dd>{html_text(value)}</dd></div>"


def _render_table(headers: Sequence[str], rows: Iterable[Sequence[str]], right: int) -> str:
    """A table whose columns from ``right`` on are flush right."""
    marks = ["" if at < right else ' class="right"' for at in range(len(headers))]
    head = "".join(f"<th{mark}>{html_text(name)}</th>" for mark, name in zip(marks, headers, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{mark}>{html_text(cell)}</td>" for mark, cell in zip(marks, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _render_findings(subject: Subject) -> str:
    rows = [
        (each.severity, "" if each.offset is None else f"{each.offset:#x}", brief(each.message), each.rule)
        for each in subject.report.findings[:200]
    ]
    if not rows:
        return '<p class="empty">Nothing is wrong with the structure.</p>'
    return _render_table(("", "byte", "what is wrong", "rule"), rows, 9)


def _render_metadata(subject: Subject) -> str:
    entries = subject.model.metadata.entries
    if not entries:
        return '<p class="empty">There is no metadata.</p>'
    rows = []
    for entry in entries[:_ENTRIES]:
        text = html_text(value_text(entry.value, _VALUE))
        key = html_text(shorten(entry.key, 200))
        shown = text if len(text) <= 120 else f"<details><summary>{html_text(value_text(entry.value, 100))}</summary>" \
            f"<pre>{text}</pre></details>"  # fmt: skip
        rows.append(f'<tr><td><code>{key}</code></td><td class="value">{shown}</td></tr>')
    more = f'<p class="hint">… and {len(entries) - _ENTRIES:,} more</p>' if len(entries) > _ENTRIES else ""
    return f'<div class="table"><table><tbody>{"".join(rows)}</tbody></table></div>{more}'


def _render_tensors(subject: Subject, count: int) -> str:
    table = subject.model.tensors
    chosen = sorted(table.largest(count)) if count < len(table) else range(len(table))
    cells = subject.rows.describe(list(chosen))
    names = ("name", "type", "shape", "bytes", *COLUMNS)
    rows = ([each[name] for name in names] for each in cells)
    body = _render_table(names, rows, 3)
    if count < len(table):
        left = plural(len(table) - count, "smaller tensor")
        body += f'<p class="hint">{html_text(left)} left out: the page has at most 20 MB</p>'
    return _render_card("Tensors", body)
