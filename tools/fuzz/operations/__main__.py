"""``python -m tools.fuzz.operations --count 10000 --seed 1 --jobs 2``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from tools.fuzz.operations.cases import run_case
from tools.fuzz.operations.guard import Guard
from tools.fuzz.operations.workers import run_cases


def main() -> int:
    """Run a campaign, or one case of it; exit 1 when something escaped."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz.operations", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="inputs to run")
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--folder", type=Path, default=Path(".fuzz/operations"), help="where escapes are kept")
    parser.add_argument("--case", type=int, help="run the input of this number alone, and show it")
    args = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    with suppress(ImportError):  # once, before processes are forked
        import torch  # noqa: F401
    if args.case is not None:
        return _show(args.seed, args.case)
    campaign = run_cases(args.seed, range(args.first, args.first + args.count), args.jobs, args.folder)
    print(json.dumps(campaign.summary()))
    return 1 if campaign.escapes else 0


def _show(seed: int, number: int) -> int:
    """Run one case in this process; its folder stays."""
    base = Path(tempfile.mkdtemp(prefix=f"holdall-case-{number}-"))
    outcome = run_case(seed, number, base / "desk", Guard())
    print(f"{base}: {outcome.subject}, {outcome.operation}: {outcome.words}\nends with {outcome.end}")
    for escape in outcome.escapes:
        print(f"\n{escape.kind} {escape.place}\n{escape.text}")
    return 1 if outcome.escapes else 0


if __name__ == "__main__":
    sys.exit(main())
