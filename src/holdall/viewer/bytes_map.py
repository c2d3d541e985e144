"""The bytes of a file page by page: which owner each has, and what it means."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.text import clean, plural, shorten, size_text, value_text
from holdall.errors import HoldallError
from holdall.operations.explain import FieldRow, MapSpan, Record, expand, find_rows
from holdall.operations.outline import Opener
from holdall.viewer.figures import lay_out

if TYPE_CHECKING:
    from holdall.source import Source
    from holdall.viewer.subject import Subject

__all__ = [
    "KINDS",
    "PAGE",
    "BytePage",
    "Meaning",
    "choose_start",
    "describe_fields",
    "draw_strip",
    "find_meaning",
    "list_marks",
]
__all__ += ["read_page"]

WIDTH = 16  # bytes of a row
PAGE = 32 * WIDTH
_ABOVE = 4 * WIDTH  # bytes of a page before the one that was asked for
_STRIP = 800  # cells of the strip
_MARKS = 1000  # of the strip
# The kinds of ranges, with a letter and a colour for each.
KINDS = {
    "record": ("r", "#4c78a8"), "table": ("t", "#5aa9b8"), "region": ("g", "#9a78b8"), "payload": ("p", "#54a07d"),
    "padding": ("a", "#c3cad3"), "zeros": ("z", "#d9b25f"), "unread": ("u", "#b8a98a"), "unknown": ("k", "#d0593f"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class BytePage:
    """Some rows of bytes: ``kinds`` has a letter of :data:`KINDS` for each byte, upper case where a finding points."""

    start: int
    data: bytes
    kinds: str

    def list_rows(self, picked: int) -> list[dict[str, Any]]:
        """The rows of the table; the byte ``picked`` stands out."""
        rows = []
        for at in range(0, len(self.data), WIDTH):
            part = self.data[at : at + WIDTH]
            cells = {f"b{number:x}": f"{byte:02x}" for number, byte in enumerate(part)}
            text = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in part)
            row: dict[str, Any] = {
                "at": f"{self.start + at:08x}",
                "text": text,
                "k": self.kinds[at : at + WIDTH].ljust(WIDTH),
            }
            rows.append(row | {"s": picked - self.start - at} | cells)
        return rows


@dataclass(frozen=True, slots=True)
class Meaning:
    """What one byte is: its range, the record it lies in, the field, and the tensor whose payload it is part of."""

    span: MapSpan | None
    lines: list[tuple[str, str]]
    fields: list[FieldRow]
    tensor: int | None


def find_span(spans: list[MapSpan], at: int) -> MapSpan | None:
    """The last range that begins at or before a byte, if it reaches it."""
    place = bisect_right(spans, at, key=lambda span: span.start)
    for number in range(place - 1, max(-1, place - 9), -1):  # ranges may share bytes
        if spans[number].stop > at:
            return spans[number]
    return None


def choose_start(at: int, before: int | None) -> int:
    """The first byte of the page that has the byte ``at``: that of the page before, if it has it.

    >>> choose_start(0x200, None), choose_start(0x200, 0x1F0), choose_start(0x200, 0)
    (448, 496, 448)
    """
    if before is not None and before <= at < before + PAGE:
        return before
    return max(0, at // WIDTH * WIDTH - _ABOVE)


def read_page(subject: Subject, number: int, start: int) -> BytePage:
    """The page of the file ``number`` that begins at the byte ``start``."""
    source = subject.files[number]
    data = source.read(start, min(PAGE, source.size - start))
    spans = subject.map(number)
    kinds = bytearray(b"k" * len(data))
    first = max(0, bisect_right(spans, start, key=lambda span: span.start) - 9)
    for span in spans[first:]:
        if span.start >= start + len(data):
            break
        low, high = max(span.start, start) - start, min(span.stop, start + len(data)) - start
        if low < high:
            kinds[low:high] = KINDS[span.kind][0].encode() * (high - low)
    for low, high in list_marks(subject, source):
        inside = slice(max(0, low - start), max(0, high - start))
        kinds[inside] = kinds[inside].upper()
    return BytePage(start, data, kinds.decode())


def list_marks(subject: Subject, source: Source) -> list[tuple[int, int]]:
    """The ranges of a file that findings point at: one byte, or all that a hash says is damaged."""
    return [
        (finding.offset, finding.offset + (finding.size or 1))
        for finding in subject.report.findings
        if finding.offset is not None and finding.file in (None, source.name)
    ]


def find_meaning(subject: Subject, number: int, at: int) -> Meaning:
    """What the byte ``at`` of a file belongs to."""
    source = subject.files[number]
    span = find_span(subject.map(number), at)
    lines = [("byte", f"{at:#x} ({at:,})")]
    if span is None:
        return Meaning(None, lines, [], None)
    lines += [("range", f"{span.start:#x} … {span.stop:#x}, {size_text(span.size)}"), ("kind", span.kind)]
    record = _find_record(span, at)
    if record is None:
        return Meaning(span, [*lines, ("belongs to", _describe_gap(span.kind))], [], None)
    owner = clean(record.name) + (f" {record.row}" if len(record.owner) > 1 else "")
    lines.append(("belongs to", f"{owner} {shorten(record.label, 200)}".strip()))
    fields, tensor = [], None
    try:
        if span.kind == "payload":
            tensor, more = _find_element(subject, number, record, at)
            lines += more
        else:
            fields = expand(record, source) if record.owner.layout is not None else []
            lines += _describe_document(subject, number, record, at) if not fields else []
    except (HoldallError, OSError) as error:
        lines.append(("cannot be read", clean(str(error))))
    return Meaning(span, lines, fields, tensor)


def _find_record(span: MapSpan, at: int) -> Record | None:
    if span.owner is None:
        return None
    rows = find_rows(span.owner, at)
    return Record(span.owner, rows[0] if rows else span.row)


def _describe_gap(kind: str) -> str:
    return {
        "padding": "nothing: zeros up to the next multiple of the alignment",
        "zeros": "nothing: zeros",
        "unread": "nothing: zeros as far as they were read",
    }.get(kind, "nothing that is known")


def _find_element(subject: Subject, number: int, record: Record, at: int) -> tuple[int | None, list[tuple[str, str]]]:
    """The tensor whose payload a byte of a file is part of, and which element it is."""
    table, source = subject.model.tensors, subject.files[number]
    ranges = table.ranges()
    inside = (ranges.owners >= 0) & (ranges.starts <= at) & (ranges.starts + ranges.sizes > np.uint64(at))
    if len(subject.files) > 1:
        mine = np.array([each is source or each.name == source.name for each in ranges.sources], bool)
        rows_with_bytes = ranges.owners >= 0
        inside[rows_with_bytes] &= mine[ranges.owners[rows_with_bytes]]
    rows = inside.nonzero()[0].tolist()
    row = next((row for row in rows if table.names[row] == record.label), rows[0] if rows else None)
    if row is None:
        return None, []
    tensor = table[row]
    bits = getattr(tensor.dtype, "bits", None)
    if bits is None or tensor.offset is None or tensor.scaling is not None:
        return row, [("type", str(tensor.dtype))]
    flat = (at - tensor.offset) * 8 // bits
    if flat >= tensor.count:
        return row, [("type", str(tensor.dtype))]
    place = ", ".join(str(int(each)) for each in np.unravel_index(flat, tensor.shape)) if tensor.shape else ""
    value = tensor.replace(shape=(tensor.count,))[flat : flat + 1]
    return row, [("type", str(tensor.dtype)), ("element", f"[{place}] = {value[0]!s}")]


def _describe_document(subject: Subject, number: int, record: Record, at: int) -> list[tuple[str, str]]:
    """The item of a JSON, MessagePack, pickle or protobuf document that a byte is part of."""
    if subject.seen is None or number or subject.seen.source is not subject.files[0]:
        return []
    opened = Opener(subject.seen, 40, at).open(record)
    if opened is None:
        return []
    found = [("document", opened.outline.syntax)]
    if opened.outline.packing:
        return [*found, ("packed with", opened.outline.packing)]
    found += [
        (clean(item.name) or item.kind, _describe_item(item))
        for item in opened.items
        if (item.start if item.key is None else item.key) <= at < item.stop
    ]
    return found[:8]


def _describe_item(item: Any) -> str:
    if item.value is None:
        return f"{item.kind} of {item.count:,}" if item.count is not None else str(item.kind)
    return f"{value_text(item.value, 120)} ({item.kind})"


def draw_strip(subject: Subject, number: int, at: int) -> dict[str, Any]:
    """The whole file as a strip: each cell has the kind of most of its bytes; findings and the page stand out."""
    source = subject.files[number]
    size = max(1, source.size)
    cells = min(_STRIP, size)
    weights = np.zeros((len(KINDS), cells))
    numbers = {kind: at for at, kind in enumerate(KINDS)}
    edges = np.linspace(0, size, cells + 1)
    spans = subject.map(number)
    starts = np.array([span.start for span in spans], np.float64)
    stops = np.array([span.stop for span in spans], np.float64)
    codes = np.array([numbers[span.kind] for span in spans], np.intp)
    for code in set(codes.tolist()):
        mine = codes == code
        weights[code] = _cover(starts[mine], stops[mine], edges)
    strip = weights.argmax(axis=0)
    colors = [color for _, color in KINDS.values()]
    scale = [[x, color] for at_, color in enumerate(colors) for x in (at_ / len(colors), (at_ + 1) / len(colors))]
    ranges = [mark for mark in list_marks(subject, source) if mark[0] < size][:_MARKS]
    marks = [start for start, _ in ranges]
    trace = {
        "type": "heatmap", "z": [strip.tolist()], "x0": edges[1] / 2, "dx": size / cells, "y": [0], "zmin": -0.5,
        "zmax": len(colors) - 0.5, "colorscale": scale, "showscale": False,
        "text": [[list(KINDS)[code] for code in strip.tolist()]],
        "hovertemplate": "%{text}, near byte %{x:,.0f}<extra></extra>",
    }  # fmt: skip
    found = {
        "type": "scatter", "mode": "markers", "x": marks, "y": [0] * len(marks), "hoverinfo": "skip",
        "marker": {"symbol": "line-ns", "size": 26, "line": {"width": 2, "color": "#d0261a"}},
    }  # fmt: skip
    damaged: dict[str, Any] = {"type": "rect", "y0": -0.5, "y1": 0.5, "line": {"width": 0}, "fillcolor": "#d0261a"}
    damages = [damaged | {"x0": start, "x1": stop} for start, stop in ranges if stop - start > 1]
    here = {"type": "line", "x0": at, "x1": at, "y0": -0.5, "y1": 0.5, "line": {"color": "#10202c", "width": 2}}
    plain = {"visible": False, "fixedrange": True}
    layout = lay_out(
        margin={"l": 0, "r": 0, "t": 2, "b": 2},
        xaxis=plain | {"range": [0, size]}, yaxis=plain | {"range": [-0.5, 0.5]},
        shapes=[*damages, here, here | {"line": {"color": "#ffffff", "width": 0.7}}], dragmode=False, clickmode="event",
    )  # fmt: skip
    return {"data": [trace, found], "layout": layout}


def _cover(starts: Any, stops: Any, edges: Any) -> Any:
    """How many bytes of ranges lie in each cell."""
    order = np.argsort(starts, kind="stable")
    starts, stops = starts[order], np.maximum.accumulate(stops[order])
    total = np.concatenate(
        [[0.0], np.cumsum(np.maximum(0, stops - np.maximum(starts, np.concatenate([[0.0], stops[:-1]]))))]
    )

    def before(x: Any) -> Any:
        place = np.searchsorted(starts, x, "right")
        last = np.maximum(place - 1, 0)
        over = np.where(place > 0, np.maximum(0, stops[last] - np.maximum(x, starts[last])), 0)
        return total[place] - over

    return np.diff(before(edges))


def describe_fields(fields: list[FieldRow], at: int) -> list[tuple[str, str, str, bool]]:
    """The fields of a record: offset, name, value, and whether the byte ``at`` lies in it."""
    rows = []
    for field in fields[:64]:
        value = field.value
        text = plural(field.size, "byte") if value is None else value_text(value, 100)
        if isinstance(value, int) and not isinstance(value, bool):
            text = f"{value:,}" + (f" ({value:#x})" if value > 9 else "")
        rows.append((f"{field.offset:#x}", clean(field.name), text, field.offset <= at < field.offset + field.size))
    return rows
