"""Decoding ggml blocks beside the gguf package; opening GGUF files of many tensors and of a large vocabulary.

    python -m bench.ggml [--values N] [--rounds N]

Both decode the same blocks from memory to float32; the best of several interleaved rounds counts. A tensor is decoded
as ``Tensor.numpy()`` does it, by as many threads as there are processors; the column "one thread" is the kernel alone.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import record
from holdall import kernels
from holdall.ggml import BLOCKS

RATIO = 5.0
TYPES = (2, 3, 6, 7, 8, 10, 11, 12, 13, 14)


def best(rounds: int, *works: Callable[[], Any]) -> list[float]:
    """The best time of each, taken in turns."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, found in zip(works, times, strict=True):
            began = time.perf_counter()
            work()
            found.append(time.perf_counter() - began)
    return [min(found) for found in times]


def decoding(count: int, rounds: int) -> list[dict[str, Any]]:
    import gguf

    rows = []
    for id in TYPES:
        blocks = BLOCKS[id]
        stored = np.random.default_rng(id).integers(0, 256, (count // 256, 256 // blocks.elements * blocks.block_bytes),
                                                    np.uint8)  # fmt: skip
        tame = stored.reshape(-1, blocks.block_bytes)
        for place in {10: (80, 82), 11: (108,), 14: (208,)}.get(id, (0, 2)):  # scales such as files have
            if id in (2, 6, 8) and place:
                continue
            tame[:, place : place + 2] = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
        data, shape, kind = memoryview(stored).cast("B"), (count // 256, 256), gguf.GGMLQuantizationType(id)
        out = np.empty(count, np.float32)
        ours, kernel, theirs = best(
            rounds,
            lambda blocks=blocks, data=data, shape=shape: blocks.decode(data, shape),
            lambda id=id, stored=stored, out=out: kernels.ggml_decode(id, stored, out),
            lambda stored=stored, kind=kind: gguf.dequantize(stored, kind),
        )
        assert blocks.decode(data, shape).tobytes() == gguf.dequantize(stored, kind).tobytes()
        rows.append(
            {
                "case": blocks.title,
                "values/s": f"{count / ours:.3g}",
                "one thread": f"{count / kernel:.3g}",
                "gguf-py": f"{count / theirs:.3g}",
                "ratio": round(theirs / ours, 1),
                "one-thread ratio": round(theirs / kernel, 1),
                "ok": theirs / ours >= RATIO,
            }
        )
    return rows


def opening(folder: Path, rounds: int) -> list[dict[str, Any]]:
    from safetensors import safe_open
    from safetensors.numpy import save_file

    import holdall

    content = {f"model.layers.{i // 10}.block.{i % 10}.weight": np.full(4, i, np.float32) for i in range(100_000)}
    holdall.save(folder / "many.gguf", content, fsync=False)
    save_file(content, folder / "many.safetensors")
    tokens = [f"token{n}" for n in range(256_000)]
    metadata = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": np.zeros(256_000, np.float32)}
    holdall.save(folder / "vocab.gguf", {"w": np.ones(8, np.float32)}, metadata=metadata, fsync=False)

    def ours() -> None:
        with holdall.open(folder / "many.gguf") as model:
            list(model)

    def theirs() -> None:
        with safe_open(folder / "many.safetensors", "np") as file:
            list(file.keys())

    def vocabulary() -> None:
        with holdall.open(folder / "vocab.gguf") as model:
            list(model)

    mine, other, vocab = best(rounds, ours, theirs, vocabulary)
    return [
        {"case": "open and list 100,000 tensors", "ms": round(mine * 1e3, 1), "safetensors ms": round(other * 1e3, 1),
         "ratio": round(mine / other, 2), "ok": mine / other <= 0.5},
        {"case": "open with 256,000 tokens", "ms": round(vocab * 1e3, 1), "ok": vocab < 0.1},
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, default=1 << 24)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = opening(Path(folder), given.rounds)
    record("gguf-open", rows)
    record("ggml", decoding(given.values // 256 * 256, given.rounds))


if __name__ == "__main__":
    main()
