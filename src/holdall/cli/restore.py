"""``holdall restore``: write the original that a file carries, and prove it."""

from __future__ import annotations

import click

from holdall.base.text import file_text
from holdall.cli.convert import format_report, report_to_json
from holdall.cli.options import FILE, Trust, add_check_option, add_threads_option, add_trust_options, naming_file
from holdall.cli.output import emit, emit_json, show_progress

__all__ = ["restore"]


@click.command(
    epilog="Example: holdall restore carrier.safetensors model.oinf, where carrier.safetensors was made by holdall "
    "convert model.oinf carrier.safetensors --carry"
)
@click.argument("file", type=FILE)
@click.argument("original", type=FILE)
@click.option("--with-changes", is_flag=True, help="Write the original's structure around values changed since.")
@click.option("-n", "--no-clobber", is_flag=True, help="Refuse to replace a file.")
@click.option("--no-fsync", is_flag=True, help="Do not wait for the disk.")
@click.option("--dry-run", is_flag=True, help="Write nothing; say what would be written.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@add_threads_option
@add_check_option
@add_trust_options
def restore(
    file: str,
    original: str,
    with_changes: bool,
    no_clobber: bool,
    check: bool,
    no_fsync: bool,
    dry_run: bool,
    as_json: bool,
    trust: Trust,
) -> None:
    """Restore the original that FILE carries (holdall convert --carry) to ORIGINAL.

    The bytes of every tensor are compared with the hashes that were taken when FILE was written. If some were
    changed since, this stops and names them.
    """
    from holdall.operations.convert.restore import restore as run

    with naming_file(file), show_progress(f"restoring {file_text(original)}") as on_progress:
        report = run(
            file,
            original,
            with_changes=with_changes,
            clobber=not no_clobber,
            check=check,
            dry_run=dry_run,
            fsync=not no_fsync,
            limits=trust.limits,
            allowed=trust.allowed,
            follow=trust.follow,
            progress=on_progress,
        )
    if as_json:
        emit_json(report_to_json(report, dry_run))
        return
    lines = format_report(report, dry_run)
    if report.restored == "content":
        lines.append("  the original's metadata and structure, around the changed tensors")
    elif report.written:
        beside = "; files beside the model are no part of it" if report.folder else ""
        lines.append(f"  byte for byte the original: the hashes of all its tensors agree{beside}")
    emit(lines)
