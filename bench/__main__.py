"""All benchmarks, one after the other: ``python -m bench [--quick] [NAME ...]``.

Each is a module of its own that prints a table and keeps its figures in ``bench/out/NAME.json``. ``--quick`` measures
less of everything, in a few minutes, to see that nothing has gone wrong; figures to be quoted come from a full run on
a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from bench import page

# Each with what makes it quick.
BENCHMARKS: dict[str, list[str]] = {
    "open_many": ["--tensors", "20000", "--gb", "0.2"],
    "open_safetensors": ["--tensors", "20000", "--rounds", "2"],
    "open_embd_gptrs": ["--tensors", "20000"],
    "convert": ["--gb", "0.5", "--rounds", "1"],
    "diff": ["--gb", "0.5", "--rounds", "1"],
    "aero": ["--quick"],
    "ggml": [],
    "quant": ["--rows", "1024", "--rounds", "2"],
    "remote": ["--quick"],
    "embed": ["--rounds", "1"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("names", nargs="*", choices=[[], *BENCHMARKS], metavar="NAME")
    args = parser.parse_args()
    failed = []
    for name in args.names or BENCHMARKS:
        print(f"\n== {name}", flush=True)
        began = time.monotonic()
        ran = subprocess.run([sys.executable, "-m", f"bench.{name}", *(BENCHMARKS[name] if args.quick else [])])
        print(f"   {time.monotonic() - began:.0f} s", flush=True)
        if ran.returncode:
            failed.append(name)
    if not args.quick and not args.names and not failed:
        page.write(list(BENCHMARKS))
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
