"""``holdall convert``: convert any container into any other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from holdall.base.text import clean, file_text, list_text, plural, size_text
from holdall.base.urls import hide_secrets
from holdall.cli.options import (
    FILE,
    FORMAT_NAME,
    LOCAL_FILE,
    Size,
    Trust,
    add_check_option,
    add_threads_option,
    add_trust_options,
    find_target_format,
    naming_file,
)
from holdall.cli.output import emit, emit_json, show_progress
from holdall.cli.recipes import applied_to_json, read_recipe, show_rows
from holdall.cli.secrets import hide, hide_all
from holdall.cli.side_files import parse_side_json, read_side_file, read_side_text
from holdall.cli.stdin_stdout import STREAM, print_aside, standard_streams
from holdall.errors import ContentError

if TYPE_CHECKING:
    from holdall.format.base import Format
    from holdall.limits import Limits
    from holdall.model.payload import Payload
    from holdall.operations.convert.report import ConversionReport

__all__ = ["convert", "format_report", "name_values", "parse_writer_options", "report_to_json"]

_WORDS = {"true": True, "false": False, "yes": True, "no": False}

_SHOWN = 5  # names in a line


@click.command(
    epilog="Examples: holdall convert model.safetensors model.oinf --cast bf16   |   "
    "holdall convert part-*.safetensors whole.safetensors   |   holdall convert hf-folder model.mcf --dry-run"
)
@click.argument("sources", nargs=-1, type=FILE)
@click.argument("target", type=LOCAL_FILE)
@click.option("--format", "format", type=FORMAT_NAME, help="The target's format, instead of its suffix.")
@click.option("--include", multiple=True, metavar="GLOB", help="Only tensors with such names.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="No tensors with such names.")
@click.option("--rename", multiple=True, metavar="s/OLD/NEW/", help="Rename by regular expression.")
@click.option("--rename-file", type=LOCAL_FILE, help="A file of lines OLD NEW, or a JSON object.")
@click.option("--cast", multiple=True, metavar="[GLOB=]DTYPE",
              help="Another dtype for the tensors of GLOB, or without it for tensors of floats only; the first "
              "matching rule counts.")  # fmt: skip
@click.option("--transpose", multiple=True, metavar="GLOB", help="Reverse the axes of these tensors.")
@click.option("--dequantize", is_flag=True,
              help="Quantized tensors become f32; packed weights the dtype of their configuration.")  # fmt: skip
@click.option("--dedup", is_flag=True, help="Store equal tensors once, if the target can.")
@click.option(
    "--split", type=Size(1), metavar="SIZE", help="Write a folder of files with at most this payload each, such as 2GB."
)
@click.option("--meta", multiple=True, metavar="KEY=VALUE", help="Add or replace a metadata entry.")
@click.option("-o", "--option", "options", multiple=True, metavar="NAME=VALUE",
              help="A writer option of the target, from a file as NAME=@FILE where it is a document: see holdall "
              "formats NAME.")  # fmt: skip
@click.option("--max-shard-size", type=Size(1), metavar="SIZE", help="The same as -o max_shard_size=SIZE.")
@click.option("--recipe", default="auto", show_default=True, metavar="NAME|FILE.toml|none|auto",
              help="Name and arrange everything as programs of the target want it: see holdall recipes. auto chooses "
              "by content, none moves everything as it is.")  # fmt: skip
@click.option("--carry", is_flag=True, help="Also store the original, for holdall restore; no change of content.")
@click.option("--shorten-names", is_flag=True, help="Shorten names that the target has no room for (GGUF).")
@click.option("--strict", is_flag=True, help="Refuse when the target cannot hold everything.")
@click.option("--force", is_flag=True, help="Write over a source of the same name even if something is lost by it.")
@click.option("-n", "--no-clobber", is_flag=True, help="Refuse to replace a file.")
@click.option("--no-fsync", is_flag=True, help="Do not wait for the disk.")
@click.option("--dry-run", is_flag=True, help="Write nothing; say what would be written, and its exact size.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@add_threads_option
@add_check_option
@add_trust_options
def convert(
    sources: tuple[str, ...],
    target: str,
    format: str | None,
    rename_file: str | None,
    cast: tuple[str, ...],
    split: int | None,
    recipe: str,
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
    other files without a place are left out and listed. A model of a known family is named and arranged as programs of
    TARGET want it: --recipe none moves it as it is. SOURCES and TARGET may be -, for standard input and output.
    """
    from holdall.operations.convert.convert import convert as run

    if not sources:
        what = f"what is {file_text(target)!r} to be made from, or turned into?"
        raise click.UsageError(f"{what} Give a source and a target.")
    given = list(options) + ([f"max_shard_size={max_shard_size}"] if max_shard_size else [])
    into = find_target_format(target, format)
    writer = parse_writer_options(given, into, trust.limits)
    _check_usage(into, changes["rename"], cast, writer)
    followed = read_recipe(recipe, trust.limits)
    with (
        standard_streams(sources, target, into) as (paths, path),
        naming_file(target),
        show_progress(f"converting to {file_text(target)}") as on_progress,
    ):
        report = run(
            paths,
            path,
            format=into.name,
            names=_read_names(rename_file, trust.limits),
            split=split,
            recipe=followed,
            metadata=name_values(meta, "--meta"),
            clobber=not no_clobber,
            check=check,
            fsync=not no_fsync,
            dry_run=dry_run,
            progress=on_progress,
            limits=trust.limits,
            allowed=trust.allowed,
            follow=trust.follow,
            cast=cast or None,
            options=writer,
            **changes,
        )
        if report.folder and target == STREAM:  # which depends on the content
            raise ContentError(f"{into.name} is a folder here, which standard output cannot be: name a target")
    report = replace(report, target=target, source=[*map(hide_secrets, sources)])
    with print_aside(target == STREAM):
        if as_json:
            emit_json(report_to_json(report, dry_run))
        else:
            emit(format_report(report, dry_run))
            if dry_run and report.recipe is not None:
                show_rows(report.recipe)


def _check_usage(target: Format, rename: tuple[str, ...], cast: tuple[str, ...], options: dict[str, Any]) -> None:
    """Raise UsageError for a wrong option, rename rule or dtype, before any file is opened."""
    from holdall.errors import UnsupportedError
    from holdall.operations.convert.changes import parse_cast, parse_rename

    try:
        target.settings(options)
        parse_rename(rename)
        parse_cast(cast)
    except UnsupportedError as error:
        raise click.UsageError(str(error)) from None


def format_report(report: ConversionReport, dry_run: bool) -> list[str]:
    """Format the report as lines of text."""
    size = "a size known only after writing" if report.size is None else size_text(report.size)
    verb = ("would replace" if dry_run else "replaced") if report.replaces else "would write" if dry_run else "wrote"
    speed = "" if dry_run or not report.seconds else f", {size_text(int(report.nbytes / report.seconds))}/s"
    where = f"{'the folder ' if report.folder else ''}{file_text(report.target)}"
    lines = [f"{verb} {where}: {report.target_format}, {plural(report.tensors, 'tensor')}, {size}{speed}"]
    lines += [f"  {clean(hide(text))}" for text in report.changes]
    lines += [f"  lost: {clean(hide(text))}" for text in report.dropped if text not in report.changes]
    lines += [f"  {clean(hide(text))}" for text in _format_losses(report)]
    if report.skeleton_bytes:
        size = size_text(report.skeleton_bytes)
        lines.append(f"  carries the {report.carried} original ({size} without its tensors): holdall restore makes it")
    return lines


def _format_losses(report: ConversionReport) -> list[str]:
    """Format one line for each fate that a loss can have."""
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
            names = list_text([f"{loss.part} {loss.name!r}" for loss in found], most=_SHOWN)
            lines.append(f"{title}: {names}{' (--json lists all)' if len(found) > _SHOWN else ''}")
    return lines


def report_to_json(report: ConversionReport, dry_run: bool) -> dict[str, Any]:
    """Return the report as a JSON object."""
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
        "folder": report.folder,
        "lossless": report.lossless,
        "losses": [{"part": x.part, "name": x.name, "reason": hide(x.reason), "fate": x.fate} for x in report.losses],
        "dropped": hide_all(report.dropped),
        "changes": hide_all(report.changes),
        "recipe": None if report.recipe is None else applied_to_json(report.recipe),
        "skeleton_bytes": report.skeleton_bytes,
        "carried": report.carried,
        "restored": report.restored,
        "checked": report.checked,
        "seconds": round(report.seconds, 3),
    }


def parse_writer_options(given: list[str], target: Format, limits: Limits | None) -> dict[str, Any]:
    """Parse ``NAME=VALUE`` texts as keyword arguments. Integers, true, false, yes and no get their type.

    The value of an option that is a document stays text; ``@FILE`` is the bytes of the file. Options that are files may
    come several times, as ``NAME=LABEL@FILE``.
    """
    declared = {option.name: option for option in target.options}
    options: dict[str, Any] = {}
    from holdall.format.sharding import DIGITS

    for text in given:
        ((key, value),) = name_values([text], "-o").items()
        name = key.replace("-", "_")
        option = declared.get(name)
        if option is not None and option.files:
            _add_file(options.setdefault(name, {}), name, value)
        elif option is not None and option.document:
            options[name] = _read_document(name, value[1:], limits) if value.startswith("@") else value
        else:
            is_number = value.removeprefix("-").isdecimal() and len(value) < DIGITS
            options[name] = int(value) if is_number else _WORDS.get(value.lower(), value)
    return options


def _add_file(contents: dict[str, Payload], name: str, value: str) -> None:
    """Add the file of one ``LABEL@FILE``; it is read when it is written."""
    from holdall.errors import HoldallError
    from holdall.model.payload import SourceRange
    from holdall.source import source_of

    label, _, path = value.partition("@")
    if not label or not path:
        raise click.BadParameter(f"-o {name} takes LABEL@FILE, not {value!r}")
    if label in contents:
        raise click.BadParameter(f"-o {name}: {label!r} is given twice")
    try:
        source = source_of(path, map=False)
    except (OSError, HoldallError) as error:
        raise click.BadParameter(f"-o {name}: {file_text(path)}: {getattr(error, 'strerror', None) or error}") from None
    contents[label] = SourceRange(source, 0, source.size)


def _read_document(name: str, path: str, limits: Limits | None) -> bytes:
    try:
        return read_side_file(path, limits)
    except OSError as error:
        raise click.BadParameter(f"-o {name}=@{file_text(path)}: {error.strerror}") from None


def name_values(texts: tuple[str, ...] | list[str], option: str) -> dict[str, str]:
    """Parse ``NAME=VALUE`` texts as a mapping."""
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{option} takes NAME=VALUE, not {text!r}")
        pairs[key] = value
    return pairs


def _read_names(path: str | None, limits: Limits | None) -> dict[str, str]:
    """Read exact renames from a file of lines OLD NEW, or from a JSON object."""
    if path is None:
        return {}
    try:
        text = read_side_text(path, limits)
        is_object = text.lstrip().startswith("{")
        names: dict[str, str] = parse_side_json(text.encode(), path, limits) if is_object else _split_names(text, path)
    except ContentError as error:
        raise click.BadParameter(str(error)) from None
    if not all(isinstance(new, str) for new in names.values()):
        raise click.BadParameter(f"{file_text(path)}: new names are text")
    return names


def _split_names(text: str, path: str) -> dict[str, str]:
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if any(len(words) != 2 for words in lines):
        raise ContentError(f"{file_text(path)}: each line is OLD NEW")
    return dict(lines)
