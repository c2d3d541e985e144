"""``holdall explain``: annotated bytes of header and tables, and the map of the whole file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from holdall.cli.options import FILE, Reading, each_file, reading
from holdall.cli.output import emit, emit_json, heading, on_terminal, table, width
from holdall.cli.text import clean, percent, plain, plural, shorten, value_text
from holdall.cli.verify import finding_facts, finding_lines
from holdall.errors import UnsupportedError
from holdall.explain import FieldRow, Record, Span, expand, file_map, records

if TYPE_CHECKING:
    from holdall.examine import Examination
    from holdall.ledger import Owner

__all__ = ["explain"]

_BYTES = 8  # hex bytes on a line
_OWNERS = 200  # tables and regions whose bytes are shown


@click.command(epilog="Example: holdall explain model.oinf --table tensor --limit 3")
@click.argument("file", type=FILE)
@click.option("--map", "only_map", is_flag=True, help="Only the map: ranges and their owners.")
@click.option("--hex", "only_hex", is_flag=True, help="Only the annotated bytes.")
@click.option("--table", "wanted", metavar="NAME", help="Only this table or region.")
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, metavar="N",
              help="Show this many entries of each table, and ranges of each kind.")  # fmt: skip
@reading
def explain(file: str, only_map: bool, only_hex: bool, wanted: str | None, limit: int, reading: Reading) -> None:
    """Show what each byte of FILE is for. Works on damaged files as far as they can be read."""

    def act(path: str, number: int) -> bool:
        with reading.examine(path) as seen:
            if seen.source.is_folder:
                raise UnsupportedError(f"{path}: is a folder; explain one of its files")
            owners = _owners(seen, wanted)
            show_hex, show_map = only_hex or not only_map, only_map or not only_hex
            chosen = set(map(id, owners))
            spans = [span for span in file_map(seen.ledger, seen.source) if wanted is None or id(span.owner) in chosen]
            if reading.json:
                emit_json(_facts(seen, owners if show_hex else [], spans if show_map else [], limit))
                return seen.report.ok
            _title(seen)
            if show_hex:
                _show_hex(seen, owners, limit, wanted is not None)
            if show_map:
                _show_map(seen, spans, limit)
            if seen.report.findings:
                click.echo()
                heading("Findings")
                emit(line for finding in seen.report.findings for line in finding_lines(finding))
            return seen.report.ok

    each_file([file], act)


def _owners(seen: Examination, wanted: str | None) -> list[Owner]:
    owners = seen.ledger.owners
    if wanted is None:
        return owners
    found = [owner for owner in owners if owner.name == wanted]
    if not found:
        known = ", ".join(dict.fromkeys(owner.name for owner in owners)) or "none"
        raise click.UsageError(f"--table: {clean(seen.source.name)} has no table {wanted!r}; it has: {known}.")
    return found


def _title(seen: Examination) -> None:
    what = seen.report.format or "unknown format"
    if seen.model is not None:
        what = f"{what} {'.'.join(map(str, seen.model.version))}".strip()
    click.echo(f"{click.style(clean(seen.source.name), bold=True)}: {what}, {seen.source.size:,} bytes")


# -- annotated bytes --------------------------------------------------------------------------------------------------


def _show_hex(seen: Examination, owners: list[Owner], limit: int, asked: bool) -> None:
    for owner in owners[:_OWNERS]:
        if owner.kind == "payload" and not asked:
            continue  # the map shows them
        total = int(owner.sizes.sum()) if len(owner) else 0
        count = "" if owner.kind in ("record", "region") else f"{plural(len(owner), 'entry', 'entries')}, "
        kind = "" if owner.kind == "record" else f" {owner.kind}"
        click.echo()
        heading(f"{clean(owner.name)}{kind} ({count}{total:,} bytes)")
        for record in islice(records(owner), limit):
            emit(_record_lines(seen, record))
        if len(owner) > limit:
            click.echo(f"  … and {len(owner) - limit:,} more; --limit N shows more")
    if len(owners) > _OWNERS:
        click.echo(f"… and {len(owners) - _OWNERS:,} more tables and regions; --table NAME shows one")


def _record_lines(seen: Examination, record: Record) -> Iterator[str]:
    if record.owner.kind in ("table", "payload"):
        label = f" {shorten(record.label, 80)}" if record.label else ""
        yield click.style(f"  {record.name} {record.row}{label}", fg="cyan")
    for field in expand(record, seen.source):
        yield from _field_lines(field)


def _field_lines(field: FieldRow) -> Iterator[str]:
    if field.name:
        yield f"  {field.offset:08x}  {_hex(field, 0, _BYTES)}  {clean(field.name):<18}  {_value(field)}".rstrip()
        yield from (
            f"  {field.offset + at:08x}  {_hex(field, at, _BYTES)}".rstrip() for at in _places(field, _BYTES)[1:]
        )
    else:  # bytes without fields: a plain dump, twice as wide
        for at in _places(field, 2 * _BYTES):
            shown = _printable(field.data[at : at + 2 * _BYTES])
            yield f"  {field.offset + at:08x}  {_hex(field, at, 2 * _BYTES)}  {shown}"
    if field.size > len(field.data):
        yield f"            … {plural(field.size - len(field.data), 'more byte')}"


def _places(field: FieldRow, step: int) -> range:
    return range(0, len(field.data), step)


def _hex(field: FieldRow, at: int, count: int) -> str:
    return field.data[at : at + count].hex(" ").ljust(3 * count - 1)


def _value(field: FieldRow) -> str:
    value, room = field.value, max(20, width() - 58)
    if isinstance(value, bool) or not isinstance(value, int):
        if value is None:
            return _printable(field.data[:_BYTES])
        if isinstance(value, bytes):
            return _printable(value) if any(value) else "zeros"
        return value_text(repr(value) if isinstance(value, str) else value, room)
    return f"{value}" if value < 10 else f"{value} ({value:#x})"


def _printable(data: bytes) -> str:
    """Bytes as the ASCII column of a hex dump."""
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)


# -- the map ----------------------------------------------------------------------------------------------------------


def _show_map(seen: Examination, spans: list[Span], limit: int) -> None:
    click.echo()
    heading("Map")
    table(("from", "to", "bytes", "kind", "what"), _map_rows(spans, limit), right=("from", "to", "bytes"), indent="  ")
    click.echo()
    size = seen.source.size
    totals = _totals(spans).items()
    rows = ((kind, f"{count:,}", f"{nbytes:,}", percent(nbytes, size)) for kind, (count, nbytes) in totals)
    table(("kind", "ranges", "bytes", "share"), rows, right=("ranges", "bytes", "share"), indent="  ")


def _map_rows(spans: list[Span], limit: int) -> Iterator[tuple[str, ...]]:
    """The first ranges of every sort; what is left out in between becomes one line."""
    seen: dict[tuple[str, str], int] = {}
    left: list[Span] = []
    for span in spans:
        sort = (span.kind, span.name)
        seen[sort] = seen.get(sort, 0) + 1
        if seen[sort] > limit:
            left.append(span)
            continue
        if left:
            yield _left_out(left)
            left = []
        yield f"{span.start:#x}", f"{span.stop:#x}", f"{span.size:,}", _kind(span.kind), _what(span)
    if left:
        yield _left_out(left)


def _kind(kind: str) -> str:
    return kind.upper() if kind == "unknown" else kind


def _left_out(left: list[Span]) -> tuple[str, ...]:
    kinds = ", ".join(dict.fromkeys(span.kind for span in left))
    size = sum(span.size for span in left)
    return (
        f"{left[0].start:#x}",
        f"{left[-1].stop:#x}",
        f"{size:,}",
        "…",
        f"{plural(len(left), 'more range')} ({kinds})",
    )


def _what(span: Span) -> str:
    parts = [clean(span.name)]
    if span.kind == "table":
        parts.append(f"({plural(span.entries, 'entry', 'entries')})")
    elif span.label:
        parts.append(shorten(span.label, 60 if on_terminal() else 200))
    if span.shared:
        parts.append("[shares bytes with a range before]")
    return " ".join(filter(None, parts))


def _totals(spans: list[Span]) -> dict[str, tuple[int, int]]:
    totals: dict[str, tuple[int, int]] = {}
    for span in spans:
        count, nbytes = totals.get(span.kind, (0, 0))
        totals[span.kind] = (count + 1, nbytes + span.size)
    return totals


# -- JSON -------------------------------------------------------------------------------------------------------------


def _facts(seen: Examination, owners: list[Owner], spans: list[Span], limit: int) -> dict[str, Any]:
    shown = [
        record
        for owner in owners[:_OWNERS]
        for record in islice(records(owner), limit)
        if record.owner.kind != "payload"
    ]
    return {
        "path": seen.source.name,
        "format": seen.report.format,
        "size": seen.source.size,
        "records": [_record_facts(seen, record) for record in shown],
        "records_omitted": sum(len(owner) for owner in owners if owner.kind != "payload") - len(shown),
        "map": [_span_facts(span) for span in spans[: limit * 5]],
        "map_omitted": max(0, len(spans) - limit * 5),
        "totals": {kind: {"ranges": n, "bytes": nbytes} for kind, (n, nbytes) in _totals(spans).items()},
        "findings": [finding_facts(finding) for finding in seen.report.findings],
    }


def _record_facts(seen: Examination, record: Record) -> dict[str, Any]:
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
    }


def _span_facts(span: Span) -> dict[str, Any]:
    return {
        "start": span.start,
        "stop": span.stop,
        "kind": span.kind,
        "name": span.name,
        "label": span.label,
        "entries": span.entries,
        "shared": span.shared,
    }
