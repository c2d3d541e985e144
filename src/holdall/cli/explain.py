"""``holdall explain``: show the annotated bytes of headers and tables, and the map of the whole file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from holdall.base.text import clean, file_text, percent, plain, plural, shorten, value_text
from holdall.cli.opened import describe_opened, opened_lines, opened_to_json
from holdall.cli.options import EXIT_CODES, FILE, AnyType, Count, Reading, add_reading_options, for_each_file
from holdall.cli.output import echo, emit, emit_heading, emit_json, emit_table, on_terminal, width
from holdall.cli.verify import finding_to_json, format_finding
from holdall.errors import UnsupportedError
from holdall.operations.explain import FieldRow, MapSpan, Record, expand, find_rows, map_file
from holdall.operations.outline import Opened, Opener, claim_foreign

if TYPE_CHECKING:
    from holdall.operations.examine import Examination
    from holdall.source.ledger import Owner

__all__ = ["explain"]

_BYTES = 8  # hex bytes on a line
_OWNERS = 200  # tables and regions whose bytes are shown
_ITEMS = 5  # items of a document for each row that is asked for


class _Offset(AnyType):
    """A byte of the file, as a decimal or hexadecimal number."""

    name = "offset"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse the number."""
        try:
            found = int(str(value), 0)
        except ValueError:
            found = -1
        if found < 0:
            self.fail(f"{value!r} is no offset, such as 8000 or 0x1f40", param, ctx)
        return found


@click.command(
    epilog="Examples: holdall explain model.oinf --table tensor --rows 3; holdall explain model.pt --at 0x40"
)
@click.argument("file", type=FILE)
@click.option("--map", "only_map", is_flag=True, help="Only the map: ranges and their owners.")
@click.option("--hex", "only_hex", is_flag=True, help="Only the annotated bytes.")
@click.option("--table", "wanted", metavar="NAME", help="Only this table or region.")
@click.option("--rows", "limit", type=Count(0), default=20, show_default=True, metavar="N",
              help="Show this many entries of each table and ranges of each kind, and 5 times as many parts of a "
              "document.")  # fmt: skip
@click.option("--at", "at", type=_Offset(), metavar="OFFSET",
              help="Only what owns this byte, such as 0x1f40; its document is opened from there on.")  # fmt: skip
@add_reading_options
def explain(
    file: str, only_map: bool, only_hex: bool, wanted: str | None, limit: int, at: int | None, reading: Reading
) -> None:
    """Show what each byte of FILE is for.

    Headers and tables are shown by field; pickles, protobuf, JSON, MessagePack and compressed documents are opened.
    Works on damaged files as far as they can be read.
    """

    def act(path: str, number: int) -> int:
        with reading.examine(path) as seen:
            if seen.source.is_folder:
                raise UnsupportedError(f"{file_text(path)}: is a folder; explain one of its files")
            if at is not None and at >= seen.source.size:
                size = plural(seen.source.size, "byte")
                raise click.UsageError(f"--at: {file_text(path)} has {size}, none at {at:#x}.")
            claim_foreign(seen)
            owners = _list_owners(seen, wanted)
            show_hex, show_map = only_hex or not only_map, only_map or not only_hex
            chosen = set(map(id, owners))
            spans = [span for span in map_file(seen.ledger, seen.source) if wanted is None or id(span.owner) in chosen]
            if at is not None:
                spans = [span for span in spans if span.start <= at < span.stop]
            asked = wanted is not None or at is not None
            opener = Opener(seen, _ITEMS * limit, at or 0)
            sections = _pick_sections(opener, owners, limit, at, asked) if show_hex else []
            carried = opener.open_carried() if show_hex and not asked else None
            if reading.json:
                emit_json(_to_json(seen, sections, carried, spans if show_map else [], limit))
                return EXIT_CODES[seen.report.verdict]
            _show_title(seen)
            if show_hex:
                _show_hex(sections, seen, 0 if at is not None else len(owners) - _OWNERS)
            if carried is not None:
                echo()
                emit_heading("carried skeleton, in the metadata")
                emit([f"  {describe_opened(carried)}", *opened_lines(carried)])
            if show_map:
                _show_map(seen, spans, limit)
            if seen.report.findings:
                echo()
                emit_heading("Findings")
                emit(line for finding in seen.report.findings for line in format_finding(finding))
            return EXIT_CODES[seen.report.verdict]

    for_each_file([file], act)


def _list_owners(seen: Examination, wanted: str | None) -> list[Owner]:
    owners = seen.ledger.owners
    if wanted is None:
        return owners
    found = [owner for owner in owners if owner.name == wanted]
    if not found:
        known = ", ".join(dict.fromkeys(owner.name for owner in owners)) or "none"
        raise click.UsageError(f"--table: {clean(seen.source.name)} has no table {wanted!r}; it has: {known}.")
    return found


def _show_title(seen: Examination) -> None:
    what = seen.report.format or "unknown format"
    if seen.model is not None:
        what = f"{what} {'.'.join(map(str, seen.model.version))}".strip()
    echo(f"{click.style(clean(seen.source.name), bold=True)}: {what}, {seen.source.size:,} bytes")


@dataclass(slots=True)
class _Section:
    """The rows of one owner that are shown, with the documents in them, and how many are left out."""

    owner: Owner
    rows: list[tuple[Record, Opened | None]]
    omitted: int


def _pick_sections(opener: Opener, owners: list[Owner], limit: int, at: int | None, asked: bool) -> list[_Section]:
    """Pick the rows that are shown, and open them: those that own the byte ``at``, or the first of each owner."""
    found = []
    for owner in owners if at is not None else owners[:_OWNERS]:
        rows = range(len(owner)) if at is None else find_rows(owner, at)
        records = (Record(owner, row) for row in rows[:limit])
        section = _Section(owner, [], max(0, len(rows) - limit))
        for record in records:
            opened = opener.open(record)
            if opened is None and owner.kind == "payload" and not asked:
                break  # the map shows them
            section.rows.append((record, opened))
        if section.rows or (at is None and owner.kind != "payload"):
            found.append(section)
    return found


def _show_hex(sections: list[_Section], seen: Examination, left_out: int) -> None:
    for section in sections:
        owner = section.owner
        total = int(owner.sizes.sum()) if len(owner) else 0
        count = "" if owner.kind in ("record", "region") else f"{plural(len(owner), 'entry', 'entries')}, "
        kind = "" if owner.kind == "record" else f" {owner.kind}"
        echo()
        emit_heading(f"{clean(owner.name)}{kind} ({count}{total:,} bytes)")
        for record, opened in section.rows:
            emit(_record_lines(seen, record, opened))
        if section.omitted:
            echo(f"  … and {section.omitted:,} more; --rows N shows more")
    if left_out > 0:
        echo(f"… and {left_out:,} more tables and regions; --table NAME shows one")


def _record_lines(seen: Examination, record: Record, opened: Opened | None) -> Iterator[str]:
    several = record.owner.kind in ("table", "payload")
    if several or opened is not None:
        label = f" {shorten(record.label, 80)}" if record.label else ""
        number = f" {record.row}" if several or len(record.owner) > 1 else ""
        what = f": {describe_opened(opened)}" if opened is not None else ""
        yield click.style(f"  {clean(record.name)}{number}{label}{what}", fg="cyan")
    if opened is not None:
        yield from opened_lines(opened)
        return
    for field in expand(record, seen.source):
        yield from _format_fields(field)


def _format_fields(field: FieldRow) -> Iterator[str]:
    if field.name:
        name, value = f"{clean(field.name):<18}", _format_value(field)
        yield f"  {field.offset:08x}  {_format_hex(field, 0, _BYTES)}  {name}  {value}".rstrip()
        for at in _split_rows(field, _BYTES)[1:]:
            yield f"  {field.offset + at:08x}  {_format_hex(field, at, _BYTES)}".rstrip()
    else:  # bytes without fields: a hex dump, twice as wide
        for at in _split_rows(field, 2 * _BYTES):
            shown = _format_printable(field.data[at : at + 2 * _BYTES])
            yield f"  {field.offset + at:08x}  {_format_hex(field, at, 2 * _BYTES)}  {shown}"
    if field.size > len(field.data):
        yield f"            … {plural(field.size - len(field.data), 'more byte')}"


def _split_rows(field: FieldRow, step: int) -> range:
    return range(0, len(field.data), step)


def _format_hex(field: FieldRow, at: int, count: int) -> str:
    return field.data[at : at + count].hex(" ").ljust(3 * count - 1)


def _format_value(field: FieldRow) -> str:
    value, room = field.value, max(20, width() - 58)
    if isinstance(value, bool) or not isinstance(value, int):
        if value is None:
            return _format_printable(field.data[:_BYTES])
        if isinstance(value, bytes):
            return _format_printable(value) if any(value) else "zeros"
        return value_text(repr(value) if isinstance(value, str) else value, room)
    return f"{value}" if value < 10 else f"{value} ({value:#x})"


def _format_printable(data: bytes) -> str:
    """Return bytes as the ASCII column of a hex dump."""
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)


def _show_map(seen: Examination, spans: list[MapSpan], limit: int) -> None:
    echo()
    emit_heading("Map")
    emit_table(
        ("from", "to", "bytes", "kind", "what"), _map_rows(spans, limit), right=("from", "to", "bytes"), indent="  "
    )
    echo()
    size = seen.source.size
    totals = _sum_by_kind(spans).items()
    rows = ((kind, f"{count:,}", f"{nbytes:,}", percent(nbytes, size)) for kind, (count, nbytes) in totals)
    emit_table(("kind", "ranges", "bytes", "share"), rows, right=("ranges", "bytes", "share"), indent="  ")


def _map_rows(spans: list[MapSpan], limit: int) -> Iterator[tuple[str, ...]]:
    """Yield the first ranges of every kind and name; those left out in between become one line."""
    seen: dict[tuple[str, str], int] = {}
    left: list[MapSpan] = []
    for span in spans:
        sort = (span.kind, span.name)
        seen[sort] = seen.get(sort, 0) + 1
        if seen[sort] > limit:
            left.append(span)
            continue
        if left:
            yield _summarize_left_out(left)
            left = []
        yield f"{span.start:#x}", f"{span.stop:#x}", f"{span.size:,}", _format_kind(span.kind), _describe_span(span)
    if left:
        yield _summarize_left_out(left)


def _format_kind(kind: str) -> str:
    return kind.upper() if kind == "unknown" else kind


def _summarize_left_out(left: list[MapSpan]) -> tuple[str, ...]:
    kinds = ", ".join(dict.fromkeys(span.kind for span in left))
    size = sum(span.size for span in left)
    return (
        f"{left[0].start:#x}",
        f"{left[-1].stop:#x}",
        f"{size:,}",
        "…",
        f"{plural(len(left), 'more range')} ({kinds})",
    )


def _describe_span(span: MapSpan) -> str:
    parts = [clean(span.name)]
    if span.kind == "table":
        parts.append(f"({plural(span.entries, 'entry', 'entries')})")
    elif span.label:
        parts.append(shorten(span.label, 60 if on_terminal() else 200))
    if span.shared:
        parts.append("[shares bytes with a range before]")
    return " ".join(filter(None, parts))


def _sum_by_kind(spans: list[MapSpan]) -> dict[str, tuple[int, int]]:
    totals: dict[str, tuple[int, int]] = {}
    for span in spans:
        count, nbytes = totals.get(span.kind, (0, 0))
        totals[span.kind] = (count + 1, nbytes + span.size)
    return totals


def _to_json(
    seen: Examination, sections: list[_Section], carried: Opened | None, spans: list[MapSpan], limit: int
) -> dict[str, Any]:
    shown = [
        _record_facts(seen, record, opened)
        for section in sections
        for record, opened in section.rows
        if opened is not None or record.owner.kind != "payload"
    ]
    return {
        "path": seen.source.name,
        "format": seen.report.format,
        "size": seen.source.size,
        "records": shown,
        "records_omitted": sum(section.omitted for section in sections),
        "carried": None if carried is None else opened_to_json(carried),
        "map": [_span_to_json(span) for span in spans[: limit * 5]],
        "map_omitted": max(0, len(spans) - limit * 5),
        "totals": {kind: {"ranges": n, "bytes": nbytes} for kind, (n, nbytes) in _sum_by_kind(spans).items()},
        "findings": [finding_to_json(finding) for finding in seen.report.findings],
    }


def _record_facts(seen: Examination, record: Record, opened: Opened | None) -> dict[str, Any]:
    return {
        "table": record.name,
        "row": record.row,
        "label": record.label,
        "offset": record.start,
        "size": record.size,
        "fields": [
            {"name": f.name, "offset": f.offset, "size": f.size, "hex": f.data.hex(), "value": plain(f.value)}
            for f in expand(record, seen.source)
        ],
        "opened": None if opened is None else opened_to_json(opened),
    }


def _span_to_json(span: MapSpan) -> dict[str, Any]:
    return {
        "start": span.start,
        "stop": span.stop,
        "kind": span.kind,
        "name": span.name,
        "label": span.label,
        "entries": span.entries,
        "shared": span.shared,
    }
