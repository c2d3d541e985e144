"""Read mutants with holdall and with the format's own library, and compare."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from tools.differential.campaign import FORMATS, run


def main() -> int:
    """``python -m tools.differential --format gguf --count 200000 --seed 1 --jobs 8``; exit 1 if something differs."""
    parser = argparse.ArgumentParser(prog="python -m tools.differential", description=__doc__)
    parser.add_argument("--format", choices=FORMATS, action="append", help="the formats; all if none is given")
    parser.add_argument("--count", type=int, default=200_000, help="inputs of each format")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same inputs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes, each with one of the library")
    parser.add_argument("--keep", type=Path, default=Path(".differential"), help="where differing inputs are kept")
    args = parser.parse_args()
    differ = 0
    for format in args.format or FORMATS:
        began = time.monotonic()
        result = run(format, args.count, args.seed, args.jobs, args.keep)
        seconds = round(time.monotonic() - began, 1)
        sys.stdout.write(
            json.dumps({"format": format, "seed": args.seed, **result.summary(), "seconds": seconds}) + "\n"
        )
        sys.stdout.flush()
        for _, texts in result.differences[:10]:
            sys.stderr.write(f"{format}: {'; '.join(texts)}\n")
        differ += result.counts["differences"]
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
