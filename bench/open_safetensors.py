"""Opening and listing a safetensors file of 100,000 tensors, beside the format's own library.

    python -m bench.open_safetensors [--tensors N] [--rounds N] [--dir SCRATCH]

Every run is a fresh process that has opened a small file before, so that imports do not count; the contenders take
turns. The bars: half the library's time with the C kernels, twice it with their Python twins.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from bench.measure import in_fresh_process, interleaved, record

BARS = {"holdall": 0.5, "holdall, twins": 2.0}

MAKE = """
import sys
import numpy as np
from safetensors.numpy import save_file
path, count = sys.argv[1], int(sys.argv[2])
names = (f"model.layers.{i // 10}.block.{i % 10}.weight" for i in range(count))
save_file({name: np.zeros((2, 2), np.float16) for name in names}, path, {"format": "pt"})
save_file({"w": np.zeros(2, np.float16)}, path + ".small")
result = {}
"""

HOLDALL = """
import sys, time
import holdall
holdall.open(sys.argv[1] + ".small", format="safetensors").close()
best = []
for _ in range(3):
    began = time.perf_counter()
    with holdall.open(sys.argv[1]) as model:
        names = list(model)
    best.append(time.perf_counter() - began)
result = {"seconds": min(best), "count": len(names)}
"""

LIBRARY = """
import sys, time
from safetensors import safe_open
safe_open(sys.argv[1] + ".small", "np")
best = []
for _ in range(3):
    began = time.perf_counter()
    with safe_open(sys.argv[1], "np") as file:
        names = list(file.keys())
    best.append(time.perf_counter() - began)
result = {"seconds": min(best), "count": len(names)}
"""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensors", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", default=None)
    asked = parser.parse_args()

    def twins(path: str) -> dict[str, float]:
        os.environ["HOLDALL_NATIVE"] = "0"
        try:
            return in_fresh_process(HOLDALL, path)
        finally:
            del os.environ["HOLDALL_NATIVE"]

    with tempfile.TemporaryDirectory(dir=asked.dir) as folder:
        path = str(Path(folder) / "many.safetensors")
        in_fresh_process(MAKE, path, str(asked.tensors))
        rows = interleaved(
            {
                "safe_open": lambda: in_fresh_process(LIBRARY, path),
                "holdall": lambda: in_fresh_process(HOLDALL, path),
                "holdall, twins": lambda: twins(path),
            },
            asked.rounds,
        )
        header = int.from_bytes(Path(path).read_bytes()[:8], "little")
    base = rows["safe_open"].median
    table = [
        {
            "case": name,
            "tensors": asked.tensors,
            "header_bytes": header,
            "median_ms": round(row.median * 1e3, 1),
            "spread_s": row.spread,
            "ratio": round(row.median / base, 3),
            "bar": BARS.get(name, ""),
        }
        for name, row in rows.items()
    ]
    record("open_safetensors", table)
    return int(any(rows[name].median > bar * base for name, bar in BARS.items()))


if __name__ == "__main__":
    sys.exit(main())
