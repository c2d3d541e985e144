"""``holdall repair``: what is damaged in a file, and nothing else, from a good copy."""

from __future__ import annotations

import click

from holdall.cli.options import FILE, Trust, about, trusting
from holdall.cli.output import emit, emit_json, progress
from holdall.cli.text import brief, clean, plural

__all__ = ["repair"]


@click.command(epilog="Example: holdall repair model.aero --from backup.aero")
@click.argument("file", type=FILE)
@click.option("--from", "copy", type=FILE, required=True, metavar="OTHER", help="The good copy.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@trusting
def repair(file: str, copy: str, as_json: bool, trust: Trust) -> None:
    """Replace the damaged pages of FILE, and verify it again before it takes its old place.

    Only ranges that a hash in FILE itself calls damaged are replaced, and only by bytes that have that hash.
    """
    from holdall.repair import repair as run

    with about(file), progress(f"repairing {clean(file)}") as told:
        report = run(file, copy, limits=trust.limits, allowed=trust.allowed, progress=told)
    if as_json:
        patches = [{"offset": p.start, "bytes": p.payload.size, "message": p.message} for p in report.patches]
        emit_json({"path": file, "copy": report.copy, "bytes": report.nbytes, "patches": patches})
        return
    if not report.patches:
        click.echo(f"{clean(file)}: nothing is damaged")
        return
    emit(f"  at byte {patch.start:#x}: {brief(patch.message)}" for patch in report.patches)
    click.echo(f"{clean(file)}: {plural(len(report.patches), 'range')} replaced, {report.nbytes} bytes; verified again")
