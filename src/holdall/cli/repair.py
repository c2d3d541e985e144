"""``holdall repair``: replace damaged ranges with those of a good copy."""

from __future__ import annotations

from functools import partial

import click

from holdall.base.text import brief, file_text, plural
from holdall.cli.options import FILE, Trust, add_threads_option, add_trust_options, naming_file
from holdall.cli.output import echo, emit, emit_json, show_progress

__all__ = ["repair"]


@click.command(epilog="Example: holdall repair model.aero --from backup.aero")
@click.argument("file", type=FILE)
@click.option("--from", "copy", type=FILE, required=True, metavar="OTHER", help="The good copy.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@add_threads_option
@add_trust_options
def repair(file: str, copy: str, as_json: bool, trust: Trust) -> None:
    """Replace the damaged pages of FILE. The new file is verified before it replaces the old one.

    Only ranges that a hash in FILE itself calls damaged are replaced, and only by bytes that have that hash.
    """
    from holdall.operations.repair import repair as run

    with naming_file(file), show_progress(f"repairing {file_text(file)}") as on_progress:
        trusted = partial(run, limits=trust.limits, allowed=trust.allowed, follow=trust.follow)
        report = trusted(file, copy, progress=on_progress)
    if as_json:
        patches = [{"offset": p.start, "bytes": p.payload.size, "message": p.message} for p in report.patches]
        emit_json({"path": file, "copy": report.copy, "bytes": report.nbytes, "patches": patches})
        return
    if not report.patches:
        echo(f"{file_text(file)}: nothing is damaged")
        return
    emit(f"  at byte {patch.start:#x}: {brief(patch.message)}" for patch in report.patches)
    echo(f"{file_text(file)}: {plural(len(report.patches), 'range')} replaced, {report.nbytes} bytes; verified again")
