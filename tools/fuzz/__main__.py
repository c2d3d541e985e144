"""Fuzz one format for a while, or all of them in a campaign."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.fuzz import campaign
from tools.fuzz.table import table

_FOLDER = Path(".fuzz")


def main() -> int:
    """``python -m tools.fuzz run oinf --seconds 60``, ``campaign``, ``table``."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    parser.add_argument("--folder", type=Path, default=_FOLDER, help="where corpora, findings and records are kept")
    commands = parser.add_subparsers(dest="command", required=True)
    single = commands.add_parser("run", help="fuzz one format for some seconds")
    single.add_argument("format", choices=campaign.ORDER)
    single.add_argument("--seconds", type=int, default=60)
    whole = commands.add_parser("campaign", help="bring every format to a number of inputs; can be resumed")
    whole.add_argument("formats", nargs="*", default=campaign.ORDER)
    whole.add_argument("--inputs", type=int, default=1_000_000)
    commands.add_parser("table", help="the records of a campaign as a table in Markdown")
    args = parser.parse_args()
    if args.command == "campaign":
        campaign.run(args.folder, args.formats, args.inputs)
    elif args.command == "table":
        sys.stdout.write(table(args.folder) + "\n")
    else:
        return _run_single(args.folder, args.format, args.seconds)
    return 0


def _run_single(folder: Path, name: str, seconds: int) -> int:
    campaign.prepare(folder, name)
    mark = campaign.turn(folder, name, f"-max_total_time={seconds}")
    sys.stdout.write(f"{name}: {mark or f'died, see {folder / name}.log'}\n")
    found = campaign.findings(folder, name)
    for finding in found:
        sys.stdout.write(f"\n{folder}/findings/{name}/{finding['input']}: {finding.get('text', 'the process died')}\n")
    return 1 if found or mark is None else 0


if __name__ == "__main__":
    sys.exit(main())
