"""Comparing two files, beside ``cmp`` and beside reading both into memory.

    python -m bench.diff [--gb 5] [--rounds 3] [--dir SCRATCH]

Equal files: holdall compares bytes. Files in which every value differs: bytes are found different at once, and all
values of both are decoded and measured.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from bench.measure import in_fresh_process, interleaved, record, timed

MAKE = """
import sys, numpy as np, holdall
from holdall.tensor import Tensor
from holdall.dtypes import named
from holdall.payload import Made
gb, folder = float(sys.argv[1]), sys.argv[2]
block = np.random.default_rng(0).standard_normal(4 << 20).astype(np.float32)
for name, data in (("a", block), ("same", block), ("other", block + np.float32(0.01))):
    tensors = [
        Tensor(f"layers.{n}.weight", named("f32"), (2048, 2048), Made(16 << 20, lambda data=data: iter([data])))
        for n in range(max(1, int(gb * 1e9) // (16 << 20)))
    ]
    holdall.save(f"{folder}/{name}.safetensors", tensors, fsync=False)
result = {}
"""

DIFF = """
import sys, time, holdall
began = time.perf_counter()
found = holdall.diff(sys.argv[1], sys.argv[2])
assert bool(found) == (sys.argv[3] == "1")
result = {"seconds": time.perf_counter() - began}
"""

READ = """
import sys, time
began = time.perf_counter()
kept = [open(path, "rb").read() for path in sys.argv[1:3]]
result = {"seconds": time.perf_counter() - began}
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gb", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", default=None)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as scratch:
        in_fresh_process(MAKE, str(args.gb), scratch)
        a, same, other = (str(Path(scratch) / f"{name}.safetensors") for name in ("a", "same", "other"))
        size = Path(a).stat().st_size
        # Two groups: reading both files into memory takes so much of it that it would push the others' files out.
        rows = interleaved(
            {
                "cmp, equal": lambda: timed(["cmp", a, same]),
                "diff, equal": lambda: in_fresh_process(DIFF, a, same, "0"),
            },
            args.rounds,
        )
        rows |= interleaved(
            {
                "read both": lambda: in_fresh_process(READ, a, other),
                "diff, all different": lambda: in_fresh_process(DIFF, a, other, "1"),
            },
            args.rounds,
        )
        beside = {"diff, equal": "cmp, equal", "diff, all different": "read both"}
        record(
            "diff",
            [
                {
                    "case": row.case,
                    "GB/s of one file": round(size / row.median / 1e9, 2),
                    "speed ratio": round(rows[beside[row.case]].median / row.median, 2) if row.case in beside else "",
                    "seconds": row.spread,
                    "peak MB": round(row.peak_mb) if row.peak_mb else "",
                }
                for row in rows.values()
            ],
        )


if __name__ == "__main__":
    main()
