"""A sharded folder into one file, beside ``cp`` of the same bytes: throughput and peak memory.

    python -m bench.convert [--gb 5] [--rounds 3] [--dir SCRATCH]

Both sides run under the same fsync policy: neither waits for the disk, or both do (``cp`` and then ``sync`` of its
file). Every conversion runs in a fresh process, whose peak resident memory (VmHWM) is recorded.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from bench.measure import in_fresh_process, interleaved, record, timed

MAKE = """
import sys, numpy as np, holdall
from holdall.tensor import Tensor
from holdall.dtypes import named
from holdall.payload import Made
out, gb = sys.argv[1], float(sys.argv[2])
block = np.random.default_rng(0).integers(0, 255, 16 << 20, np.uint8).data
def tensors():
    for n in range(int(gb * 1e9) // (16 << 20)):
        yield Tensor(f"model.layers.{n}.weight", named("bf16"), (2048, 4096), Made(16 << 20, lambda: iter([block])))
holdall.save(out, list(tensors()), format="hf", max_shard_size=1_000_000_000, fsync=False)
result = {}
"""

CONVERT = """
import sys, time, holdall
began = time.perf_counter()
holdall.convert(sys.argv[1], sys.argv[2], fsync=sys.argv[3] == "1")
result = {"seconds": time.perf_counter() - began}
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gb", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", default=None)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as scratch:
        folder = Path(scratch) / "sharded"
        in_fresh_process(MAKE, str(folder), str(args.gb))
        shards = sorted(str(path) for path in folder.glob("*.safetensors"))
        size = sum(Path(path).stat().st_size for path in shards)
        rows = []
        for fsync in (False, True):

            def convert(name: str, fsync: bool = fsync) -> dict[str, float]:
                target = Path(scratch) / name
                found = in_fresh_process(CONVERT, str(folder), str(target), "1" if fsync else "0")
                target.unlink()
                return found

            def copy(fsync: bool = fsync) -> float:
                target = Path(scratch) / "copy"
                target.mkdir()
                began = time.perf_counter()
                timed(["cp", "--reflink=never", *shards, str(target)])
                if fsync:
                    timed(["sync", *(str(path) for path in target.iterdir()), str(target)])
                seconds = time.perf_counter() - began
                shutil.rmtree(target)
                return seconds

            found = interleaved(
                {
                    "cp": copy,
                    "to safetensors": lambda: convert("out.safetensors"),
                    "to oinf": lambda: convert("out.oinf"),
                },
                args.rounds,
            )
            rows += [
                {
                    "case": row.case,
                    "fsync": fsync,
                    "GB/s": round(size / row.median / 1e9, 2),
                    "x cp": round(found["cp"].median / row.median, 2),
                    "seconds": row.spread,
                    "peak MB": round(row.peak_mb) if row.peak_mb else "",
                }
                for row in found.values()
            ]
        record("convert", rows)


if __name__ == "__main__":
    main()
