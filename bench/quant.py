"""Quantizing and dequantizing beside a memory copy of the same matrix, and beside gguf-py where it is installed.

    python -m bench.quant [--rows 4096] [--cols 4096] [--rounds 5] [--memory GB]

One thread unless a row says two. Every case takes its turn in each round; ratios are of medians, but what two threads
gain is taken from the fastest run of each, as other work may hold the second processor. A ratio of 1 is the speed of
``numpy.copyto`` into memory that was touched before. ``--memory`` also quantizes a synthetic safetensors file
of so many GB into MCF in a fresh process and records its peak resident memory.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import Row, in_fresh_process, interleaved, record
from holdall.quant import METHODS, encoding_of, measure, quantize
from holdall.quant.encodings import BlockEncoding

BARS = {"reference q": 0.15, "reference k": 0.08, "best": 0.015, "dequantize": 0.3}

MAKE = """
import sys, holdall, numpy as np
from holdall.tensor import Tensor
from holdall.dtypes import named
from holdall.payload import Made
out, gb = sys.argv[1], float(sys.argv[2])
block = np.random.default_rng(0).normal(0, 0.02, 1 << 24).astype(np.float32)
def tensors():
    for n in range(max(1, int(gb * 1e9) // block.nbytes)):
        yield Tensor(f"layers.{n}.weight", named("f32"), (4096, 4096), Made(block.nbytes, lambda: iter([block.data])))
holdall.save(out, list(tensors()), fsync=False)
result = {}
"""

QUANTIZE = """
import sys, time
from functools import partial
import holdall
began = time.perf_counter()
holdall.convert(sys.argv[1], sys.argv[2], quantize=partial(holdall.quant.quantize_model, method="k4"), fsync=False)
result = {"seconds": time.perf_counter() - began}
"""


def clocked(action: Callable[[], object]) -> Callable[[], float]:
    def run() -> float:
        began = time.perf_counter()
        action()
        return time.perf_counter() - began

    return run


def decoder(values: np.ndarray, name: str, out: np.ndarray, threads: int) -> Callable[[], object]:
    """Decode into memory that is there, as the copy does."""
    q = quantize(values, name, mode="ieee")
    encoding = encoding_of(name)
    if not isinstance(encoding, BlockEncoding):
        return lambda: encoding.decode(q.payload, q.shape)
    return lambda: encoding.decode_into(q.payload, out, threads)


def cases(values: np.ndarray) -> dict[str, Callable[[], float]]:
    out = values.copy()
    found: dict[str, Callable[[], object]] = {"copy": lambda: np.copyto(out, values)}
    for name, method in METHODS.items():
        modes = ("ieee",) if method.family == "int" else ("reference", "ieee", "best")
        for mode in modes:
            found[f"{mode} {name}"] = lambda name=name, mode=mode: quantize(values, name, mode=mode, threads=1)
        found[f"dequantize {name}"] = decoder(values, name, out, 1)
    for mode in ("reference", "best"):
        found[f"{mode} k4 two threads"] = lambda mode=mode: quantize(values, "k4", mode=mode, threads=2)
    found["dequantize k4 two threads"] = decoder(values, "k4", out, 2)
    found.update(gguf_cases(values))
    return {name: clocked(action) for name, action in found.items()}


def gguf_cases(values: np.ndarray) -> dict[str, Callable[[], object]]:
    try:
        from gguf import GGMLQuantizationType as Kind
        from gguf import quants
    except ImportError:
        print("gguf-py is not installed: no comparison with it")
        return {}
    found: dict[str, Callable[[], object]] = {}
    for name, kind in (("q8", Kind.Q8_0), ("q4", Kind.Q4_0)):
        packed = quants.quantize(values, kind)
        found[f"gguf quantize {name}"] = lambda kind=kind: quants.quantize(values, kind)
        found[f"gguf dequantize {name}"] = lambda kind=kind, packed=packed: quants.dequantize(packed, kind)
    return found


def bar_of(case: str) -> float | None:
    if "two threads" in case or "int" in case:
        return BARS["dequantize"] if case.startswith("dequantize int") else None
    return next((bar for start, bar in BARS.items() if case.startswith(start)), None)


def gains(values: np.ndarray) -> dict[str, float]:
    """Decibels that mode best wins over mode reference at the same size."""
    found = {}
    for name, method in METHODS.items():
        if method.family != "int":
            plain, best = (measure(values, quantize(values, name, mode=mode)).snr_db for mode in ("reference", "best"))
            found[name] = best - plain
    return found


def rows_of(measured: dict[str, Row], size: int, won: dict[str, float]) -> list[dict[str, Any]]:
    copy = measured["copy"].median
    rows = []
    for case, row in measured.items():
        bar, ratio = bar_of(case), copy / row.median
        mode, _, name = case.partition(" ")
        peer = measured.get(f"gguf {'dequantize' if mode == 'dequantize' else 'quantize'} {name}")
        compared = peer is not None and mode in ("reference", "dequantize")
        one = measured.get(case.removesuffix(" two threads"))
        rows.append(
            {
                "case": case,
                "ms": round(row.median * 1e3, 2),
                "spread": row.spread,
                "GB/s": round(size / row.median / 1e9, 2),
                "of copy": round(ratio, 4),
                "bar": "" if bar is None else bar,
                "holds": "" if bar is None else "yes" if ratio >= bar else "NO",
                "times gguf-py": round(peer.median / row.median, 1) if compared and peer else "",
                "times one thread": round(min(one.seconds) / min(row.seconds), 2)
                if case.endswith("threads") and one
                else "",
                "gain dB": round(won[name], 3) if mode == "best" and name in won else "",
            }
        )
    return rows


def memory(gigabytes: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        source, target = Path(scratch) / "model.safetensors", Path(scratch) / "model.mcf"
        in_fresh_process(MAKE, str(source), str(gigabytes))
        size = source.stat().st_size
        found = in_fresh_process(QUANTIZE, str(source), str(target))
        return {
            "case": f"file of {size / 1e9:.2f} GB into MCF k4",
            "ms": round(found["seconds"] * 1e3),
            "GB/s": round(size / found["seconds"] / 1e9, 3),
            "peak MB": round(found["peak_mb"]),
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--cols", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", type=float, default=0, metavar="GB")
    args = parser.parse_args()
    values = np.random.default_rng(0).normal(0, 0.02, (args.rows, args.cols)).astype(np.float32)
    rows = rows_of(interleaved(cases(values), args.rounds), values.nbytes, gains(values))
    if args.memory:
        rows.append(memory(args.memory))
    record("quant", rows)


if __name__ == "__main__":
    main()
