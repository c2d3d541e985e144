"""``holdall formats``: list the formats and what each can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdall.base.text import clean
from holdall.cli.options import FORMAT_NAME
from holdall.cli.output import echo, emit_heading, emit_json, emit_json_lines, emit_pairs, emit_table

if TYPE_CHECKING:
    from holdall.format.base import Format

__all__ = ["formats"]


@click.command(epilog="Example: holdall formats oinf")
@click.argument("name", required=False, type=FORMAT_NAME)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
def formats(name: str | None, as_json: bool) -> None:
    """List the formats and what each can hold; with NAME, one of them with its writer's options."""
    from holdall.format import registry
    from holdall.operations.open_save import formats as all_formats

    if name is not None:
        found = registry.find(name)
        if as_json:
            emit_json(_to_json(found))
        else:
            _show(found)
        return
    every = all_formats().values()
    if as_json:
        emit_json_lines(map(_to_json, every))
        return
    rows = (
        (
            clean(f.name), " ".join(f.suffixes) or "-", _format_flag(f.writes), str(len(f.holds.dtypes)),
            _rank(f), _format_flag(f.holds.metadata), _format_flag(f.holds.assets),
            _format_flag(f.holds.declared), clean(f.title),
        )
        for f in every
    )  # fmt: skip
    headers = ("format", "suffixes", "writes", "dtypes", "rank", "metadata", "assets", "declared", "title")
    emit_table(headers, rows, right=("dtypes", "rank"), prose=("suffixes", "title"))


def _format_flag(fact: bool) -> str:
    return "yes" if fact else "-"


def _rank(format: Format) -> str:
    low, high = format.holds.min_rank, format.holds.max_rank
    if high is None:
        return f"{low}+" if low else "any"
    return str(high) if low == high else f"{low}-{high}"


def _list_dtypes(format: Format) -> list[str]:
    """List dtypes in the order of the table, then encodings."""
    from holdall.model.dtypes import DTYPES

    known = [name for name in DTYPES if name in format.holds.dtypes]
    return known + sorted(format.holds.dtypes - set(known))


def _to_json(format: Format) -> dict[str, Any]:
    holds = format.holds
    return {
        "name": format.name,
        "title": format.title,
        "suffixes": list(format.suffixes),
        "folder": format.folder,
        "writes": format.writes,
        "dtypes": _list_dtypes(format),
        "min_rank": holds.min_rank,
        "max_rank": holds.max_rank,
        "zero_size": holds.zero_size,
        "declared": holds.declared,
        "aliases": holds.aliases,
        "metadata": holds.metadata,
        "assets": holds.assets,
        "free_text": holds.free_text,
        "text_bytes": holds.text_bytes,
        "names": holds.names,
        "options": [
            {"name": o.name, "default": str(o.default), "help": o.help, "choices": list(o.choices)}
            for o in format.options
        ],
    }


def _show(format: Format) -> None:
    holds = format.holds
    emit_heading(f"{clean(format.name)}: {clean(format.title)}")
    emit_pairs(
        [
            ("suffixes", " ".join(format.suffixes) or "-"),
            ("stored as", "a folder" if format.folder else "a file"),
            ("written", _format_flag(format.writes)),
            ("dtypes", " ".join(_list_dtypes(format))),
            ("rank", _rank(format)),
            ("names", clean(holds.names)),
            ("zero-size tensors", _format_flag(holds.zero_size)),
            ("tensors without data", _format_flag(holds.declared)),
            ("aliases", _format_flag(holds.aliases)),
            ("metadata", _format_flag(holds.metadata)),
            ("assets", _format_flag(holds.assets)),
        ]
    )
    if format.options:
        echo()
        rows = ((o.name, str(o.default), " ".join(o.choices), clean(o.help)) for o in format.options)
        emit_table(("writer option", "default", "choices", "meaning"), rows, prose=("choices", "meaning"), indent="  ")
