"""Opening and listing 100,000 tensors, and the memory of writing and verifying 1 GB.

    python -m bench.open_many [--tensors N] [--gb X] [--dir SCRATCH]

Each measurement runs in a fresh process. Times are the best of several, beside safetensors on the same tensors; memory
is the peak of resident memory (VmHWM) of the process that did the work. Half of the large file is BOOL, whose bytes
the strict level reads; the format has no hashes, so that the full level reads the index only.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measure import in_fresh_process, record

PIECE = 4 << 20
RATIO = {"open and list, native": 0.5, "open and list, twin": 2.0}
MEMORY_MB = 150


# -- what runs in its own process -------------------------------------------------------------------------------------


def make(folder: str, tensors: int) -> dict[str, Any]:
    import numpy as np
    from safetensors.numpy import save_file

    import holdall

    content = {f"model.layers.{i // 10}.block.{i % 10}.weight": np.full(4, i, np.float32) for i in range(tensors)}
    return {
        "seconds": best(lambda: holdall.save(f"{folder}/many.oinf", content, fsync=False), 3),
        "safetensors": best(lambda: save_file(content, f"{folder}/many.safetensors"), 3),
    }


def open_and_list(folder: str, native: bool) -> dict[str, Any]:
    from safetensors import safe_open

    import holdall
    from holdall import kernels

    assert native == kernels.NATIVE

    def ours() -> None:
        with holdall.open(f"{folder}/many.oinf") as model:
            list(model)

    def theirs() -> None:
        with safe_open(f"{folder}/many.safetensors", "np") as file:
            list(file.keys())

    return {"seconds": best(ours, 7), "safetensors": best(theirs, 7)}


def write(folder: str, size: int) -> dict[str, Any]:
    import numpy as np

    import holdall
    from holdall.dtypes import named
    from holdall.payload import Made

    count = 16
    each = -(-size // (count * PIECE)) * PIECE

    def floats(number: int) -> Made:
        return Made(each, lambda: (np.full(PIECE // 4, number + at, np.float32) for at in range(each // PIECE)))

    def bools() -> Made:
        return Made(each, lambda: (np.ones(PIECE, np.bool_).view(np.uint8) for _ in range(each // PIECE)))

    content = [holdall.Tensor(f"w.{i}", named("f32"), (each // 4,), floats(i)) for i in range(0, count, 2)]
    content += [holdall.Tensor(f"w.{i}", named("bool"), (each,), bools()) for i in range(1, count, 2)]
    seconds = best(lambda: holdall.save(f"{folder}/large.oinf", content, fsync=False), 1)
    return {"seconds": seconds, "gb": count * each / 1e9}


def verify(folder: str, level: Any) -> dict[str, Any]:
    import holdall

    began = time.perf_counter()
    report = holdall.verify(f"{folder}/large.oinf", level=level)
    assert report.ok, report.findings
    return {"seconds": time.perf_counter() - began}


def statistics(folder: str) -> dict[str, Any]:
    """The floats of the file as one tensor after the other."""
    import holdall
    from holdall.stats import tensor_stats

    with holdall.open(f"{folder}/large.oinf") as model:
        floats = [tensor for tensor in model.tensors if str(tensor.dtype) == "f32"]
        seconds = best(lambda: [tensor_stats(tensor) for tensor in floats], 1)
    return {"seconds": seconds, "gb": sum(tensor.nbytes for tensor in floats) / 1e9}


def best(work: Callable[[], object], times: int) -> float:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found)


# -- the run ----------------------------------------------------------------------------------------------------------


def part(call: str, *, native: bool = True) -> dict[str, Any]:
    code = f"import os; os.environ['HOLDALL_NATIVE'] = '{int(native)}'\nfrom bench import open_many\n"
    return in_fresh_process(f"{code}result = open_many.{call}")


def row(case: str, found: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {"case": case, "seconds": round(found["seconds"], 4)}
    if "safetensors" in found:
        shown["safetensors"] = round(found["safetensors"], 4)
        shown["ratio"] = round(found["seconds"] / found["safetensors"], 2)
    if "gb" in found:
        shown["GB/s"] = round(found["gb"] / found["seconds"], 2)
    shown["peak MB"] = round(found["peak_mb"])
    if case in RATIO:
        shown["bar"] = f"ratio <= {RATIO[case]}: {'met' if shown['ratio'] <= RATIO[case] else 'MISSED'}"
    elif "safetensors" not in found:
        shown["bar"] = f"< {MEMORY_MB} MB: {'met' if shown['peak MB'] < MEMORY_MB else 'MISSED'}"
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tensors", type=int, default=100_000)
    parser.add_argument("--gb", type=float, default=1.0)
    parser.add_argument("--dir", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        cases = {
            f"save {given.tensors:,} tensors": part(f"make({folder!r}, {given.tensors})"),
            "open and list, native": part(f"open_and_list({folder!r}, True)"),
            "open and list, twin": part(f"open_and_list({folder!r}, False)", native=False),
            f"write {given.gb:g} GB, made lazily": part(f"write({folder!r}, {int(given.gb * 1e9)})"),
            "verify, full": part(f"verify({folder!r}, 'full')"),
            "verify, strict": part(f"verify({folder!r}, 'strict')"),
            "statistics of the floats": part(f"statistics({folder!r})"),
        }
        record("open_many", [row(case, found) for case, found in cases.items()])


if __name__ == "__main__":
    main()
