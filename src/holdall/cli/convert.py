"""``holdall convert``: from any container into any other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdall.cli.options import FILE, FORMAT_NAME, Size, Trust, about, checking, target_format, trusting
from holdall.cli.output import emit, emit_json, progress
from holdall.cli.streams import STREAM, print_aside, standard_streams
from holdall.cli.text import clean, plural, size_text

if TYPE_CHECKING:
    from holdall.operations.convert.report import ConversionReport

__all__ = ["convert", "name_values", "report_facts", "report_lines", "writer_options"]

_SHOWN = 5  # names in a line


@click.command(
    epilog="Examples: holdall convert model.safetensors model.oinf --cast bf16   |   "
    "holdall convert part-*.safetensors whole.safetensors   |   holdall convert hf-folder model.mcf --dry-run"
)
@click.argument("sources", nargs=-1, type=FILE)
@click.argument("target", type=FILE)
@click.option("--format", "format", type=FORMAT_NAME, help="The target's format, instead of its suffix.")
@click.option("--include", multiple=True, metavar="GLOB", help="Only tensors with such names.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="No tensors with such names.")
@click.option("--rename", multiple=True, metavar="s/OLD/NEW/", help="Rename by regular expression.")
@click.option("--rename-file", type=FILE, help="A file of lines OLD NEW, or a JSON object.")
@click.option("--cast", multiple=True, metavar="[GLOB=]DTYPE", help="Another dtype; the first matching rule counts.")
@click.option("--transpose", multiple=True, metavar="GLOB", help="Reverse the axes of these tensors.")
@click.option("--dequantize", is_flag=True, help="Quantized tensors become f32.")
@click.option("--dedup", is_flag=True, help="Store equal tensors once, where the target can.")
@click.option(
    "--split", type=Size(1), metavar="SIZE", help="A folder of files with at most so much payload each, such as 2GB."
)
@click.option("--meta", multiple=True, metavar="KEY=VALUE", help="Add or replace a metadata entry.")
@click.option("-o", "--option", "options", multiple=True, metavar="NAME=VALUE",
              help="A writer option of the target: see holdall formats NAME.")  # fmt: skip
@click.option("--max-shard-size", type=Size(1), metavar="SIZE", help="The same as -o max_shard_size=SIZE.")
@click.option("--carry", is_flag=True, help="Store the original along, for holdall restore; no change of content.")
@click.option("--shorten-names", is_flag=True, help="Shorten names that the target has no room for (GGUF).")
@click.option("--strict", is_flag=True, help="Refuse when the target cannot hold everything.")
@click.option("--force", is_flag=True, help="Write over a source of the same name even if something is lost by it.")
@click.option("-n", "--no-clobber", is_flag=True, help="Refuse to replace a file.")
@click.option("--no-fsync", is_flag=True, help="Do not wait for the disk.")
@click.option("--dry-run", is_flag=True, help="Write nothing; say what would be written, and its exact size.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@checking
@trusting
def convert(
    sources: tuple[str, ...],
    target: str,
    format: str | None,
    rename_file: str | None,
    cast: tuple[str, ...],
    split: int | None,
    meta: tuple[str, ...],
    options: tuple[str, ...],
    max_shard_size: int | None,
    no_clobber: bool,
    check: bool,
    no_fsync: bool,
    dry_run: bool,
    as_json: bool,
    trust: Trust,
    **changes: Any,
) -> None:
    """Convert SOURCES (several are merged) into TARGET.

    TARGET is what a tool of its format would write. A tensor that it cannot hold stops the conversion; metadata and
    other files without a place are left out and listed. SOURCES and TARGET may be -, for standard input and output.
    """
    from holdall.operations.convert.convert import convert as run

    if not sources:
        raise click.UsageError(f"what is {target!r} to be made from, or turned into? Give a source and a target.")
    given = list(options) + ([f"max_shard_size={max_shard_size}"] if max_shard_size else [])
    _check_usage(target, format, changes["rename"], cast, given)
    into = target_format(target, format)
    with (
        standard_streams(sources, target, into) as (paths, path),
        about(target),
        progress(f"converting to {clean(target)}") as on_progress,
    ):
        report = run(
            paths,
            path,
            format=into.name,
            names=_names(rename_file),
            split=split,
            metadata=name_values(meta, "--meta"),
            clobber=not no_clobber,
            check=check,
            fsync=not no_fsync,
            dry_run=dry_run,
            progress=on_progress,
            limits=trust.limits,
            allowed=trust.allowed,
            cast=cast or None,
            options=writer_options(given),
            **changes,
        )
    report.target, report.source = target, [*sources]
    with print_aside(target == STREAM):
        if as_json:
            emit_json(report_facts(report, dry_run))
        else:
            emit(report_lines(report, dry_run))


def _check_usage(
    target: str, format: str | None, rename: tuple[str, ...], cast: tuple[str, ...], options: list[str]
) -> None:
    """What is wrong with the words of the command is wrong usage, before any file is opened."""
    from holdall.errors import UnsupportedError
    from holdall.operations.convert.changes import parse_cast, parse_rename

    try:
        target_format(target, format).settings(writer_options(options))
        parse_rename(rename)
        parse_cast(cast)
    except UnsupportedError as error:
        raise click.UsageError(str(error)) from None


def report_lines(report: ConversionReport, dry_run: bool) -> list[str]:
    """What was done, or would be, for people."""
    size = "a size that only writing can tell" if report.size is None else size_text(report.size)
    verb = ("would replace" if dry_run else "replaced") if report.replaces else "would write" if dry_run else "wrote"
    speed = "" if dry_run or not report.seconds else f", {size_text(int(report.nbytes / report.seconds))}/s"
    lines = [
        f"{verb} {clean(report.target)}: {report.target_format}, {plural(report.tensors, 'tensor')}, {size}{speed}"
    ]
    lines += [f"  {clean(text)}" for text in report.changes]
    lines += [f"  lost: {clean(text)}" for text in report.dropped if text not in report.changes]
    lines += [f"  {clean(text)}" for text in _loss_lines(report)]
    if report.skeleton_bytes:
        size = size_text(report.skeleton_bytes)
        lines.append(f"  carries the {report.carried} original ({size} without its tensors): holdall restore makes it")
    return lines


def _loss_lines(report: ConversionReport) -> list[str]:
    """One line for all that is left out, and one for each kind of thing that is stored otherwise."""
    titles = {
        "left out": f"left out, {report.target_format} has no place for it",
        "text": "stored as text",
        "changed": "written otherwise",
        "carried": "in the carried original alone",
        "opaque": "travels as opaque bytes",
        "renamed": "travels under another name",
        "reshaped": "travels in another shape",
    }
    lines = []
    for fate, title in titles.items():
        found = [loss for loss in report.losses if loss.fate == fate]
        if found:
            names = ", ".join(f"{loss.part} {loss.name!r}" for loss in found[:_SHOWN])
            more = f" and {len(found) - _SHOWN:,} more (--json lists all)" if len(found) > _SHOWN else ""
            lines.append(f"{title}: {names}{more}")
    return lines


def report_facts(report: ConversionReport, dry_run: bool) -> dict[str, Any]:
    """The same for JSON."""
    return {
        "source": report.source,
        "source_format": report.source_format,
        "target": report.target,
        "target_format": report.target_format,
        "tensors": report.tensors,
        "nbytes": report.nbytes,
        "size": report.size,
        "dry_run": dry_run,
        "replaces": report.replaces,
        "lossless": report.lossless,
        "losses": [{"part": x.part, "name": x.name, "reason": x.reason, "fate": x.fate} for x in report.losses],
        "dropped": report.dropped,
        "changes": report.changes,
        "skeleton_bytes": report.skeleton_bytes,
        "carried": report.carried,
        "restored": report.restored,
        "checked": report.checked,
        "seconds": round(report.seconds, 3),
    }


def writer_options(given: list[str]) -> dict[str, Any]:
    """``NAME=VALUE`` texts as keyword arguments: true, false and whole numbers become what they say."""
    words = {"true": True, "false": False, "yes": True, "no": False}
    options: dict[str, Any] = {}
    for name, value in name_values(given, "-o").items():
        digits = value.removeprefix("-").isdecimal()
        options[name.replace("-", "_")] = int(value) if digits else words.get(value.lower(), value)
    return options


def name_values(texts: tuple[str, ...] | list[str], option: str) -> dict[str, str]:
    """``NAME=VALUE`` texts as a mapping."""
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{option} takes NAME=VALUE, not {text!r}")
        pairs[key] = value
    return pairs


def _names(path: str | None) -> dict[str, str]:
    """Exact renames from a file."""
    if path is None:
        return {}
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{path}: is not UTF-8 text: byte {error.start}") from None
    if text.lstrip().startswith("{"):
        import json

        try:
            names: dict[str, str] = json.loads(text)
        except ValueError as error:
            raise click.BadParameter(f"{path}: {error}") from None
    else:
        lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
        if any(len(words) != 2 for words in lines):
            raise click.BadParameter(f"{path}: each line is OLD NEW")
        names = dict(lines)
    if not all(isinstance(new, str) for new in names.values()):
        raise click.BadParameter(f"{path}: new names are text")
    return names
