"""AERO against its bars: writing, verifying, opening, repairing. Run with the project on PYTHONPATH.

    python bench/aero.py [FOLDER] [--quick]

Medians of several rounds, the contenders taking turns; GB is 1e9 bytes. FOLDER should have 5 GB free.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from blake3 import blake3
from safetensors import safe_open
from safetensors.numpy import save_file

import holdall
from bench.measure import record

CHUNK = 4 << 20


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def turns(rounds: int, **actions: Callable[[], object]) -> dict[str, float]:
    """Median seconds of each action, all of them in turn; the first turn, which meets cold memory, does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds + 1):
        for name, action in actions.items():
            seconds[name].append(timed(action))
    for name, found in seconds.items():
        del found[0]
        print(f"    {name:34} {statistics.median(found):7.3f} s  ({min(found):.3f} to {max(found):.3f})")
    return {name: statistics.median(found) for name, found in seconds.items()}


ROWS: list[dict[str, object]] = []


def bar(what: str, ratio: float, least: float) -> None:
    print(f"  {'ok  ' if ratio >= least else 'MISS'} {what}: {ratio:.2f} (bar {least})")
    ROWS.append({"case": what, "ratio": round(ratio, 2), "bar": least, "met": ratio >= least})


def hash_arrays(arrays: dict[str, np.ndarray], layers: int) -> None:
    for _ in range(layers):
        running = blake3(max_threads=blake3.AUTO)
        for array in arrays.values():
            running.update(array.reshape(-1).view(np.uint8).data)
        running.digest()


def save_and_hash(path: Path, arrays: dict[str, np.ndarray], layers: int) -> None:
    """safetensors.save_file with the same hashes taken at the same time, by another thread."""
    worker = threading.Thread(target=hash_arrays, args=(arrays, layers))
    worker.start()
    save_file(arrays, path)
    worker.join()


def hash_file(path: Path, layers: int) -> None:
    """BLAKE3 over positioned reads, once for each layer."""
    buffer = memoryview(bytearray(CHUNK))
    fd = os.open(path, os.O_RDONLY)
    for _ in range(layers):
        running, at = blake3(max_threads=blake3.AUTO), 0
        while got := os.preadv(fd, [buffer], at):
            running.update(buffer[:got])
            at += got
        running.digest()
    os.close(fd)


def child(code: str, *arguments: object) -> str:
    """Run code in a fresh process, so that its memory is its own."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


# VmHWM, not ru_maxrss: that one still knows the parent from before exec.
RESIDENT = """
import sys, holdall
report = holdall.verify(sys.argv[1])
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
print(report.ok, int(peak) // 1024)
"""


def writing(folder: Path, arrays: dict[str, np.ndarray], rounds: int) -> None:
    print("write, 1 GB, no fsync on either side")
    for label, layers, options in (
        ("shard hashes", 1, {}),
        ("shard, page and tensor hashes", 3, {"page_hash": True, "tensor_hash": True}),
    ):
        target, rival = folder / "w.aero", folder / "w.safetensors"

        def ours(options: dict[str, object] = options, target: Path = target) -> None:
            target.unlink(missing_ok=True)
            holdall.save(target, arrays, fsync=False, **options)

        def theirs(layers: int = layers, rival: Path = rival) -> None:
            rival.unlink(missing_ok=True)
            save_and_hash(rival, arrays, layers)

        print(f"  {label}")
        found = turns(rounds, holdall=ours, safetensors_and_hashes=theirs)
        bar(f"write, {label} / (save_file with hashes beside)", found["safetensors_and_hashes"] / found["holdall"], 0.9)
        target.unlink()
        rival.unlink()


def verifying(folder: Path, arrays: dict[str, np.ndarray], rounds: int) -> None:
    print("full verify, 1 GB")
    for label, layers, options in (
        ("shard hashes", 1, {}),
        ("shard and page hashes", 2, {"page_hash": True}),
        ("shard, page and tensor hashes", 3, {"page_hash": True, "tensor_hash": True, "control_hash": True}),
    ):
        target = folder / "v.aero"
        holdall.save(target, arrays, fsync=False, **options)
        print(f"  {label}")
        found = turns(
            rounds,
            holdall=lambda target=target: holdall.verify(target),
            blake3_over_reads=lambda target=target, layers=layers: hash_file(target, layers),
        )
        bar(f"verify, {label} / (BLAKE3 over reads x layers)", found["blake3_over_reads"] / found["holdall"], 0.8)
        print(f"    ok, resident MB: {child(RESIDENT, target)} (bar 200)")
        target.unlink()


def opening(folder: Path, rounds: int) -> None:
    print("open and list 100,000 tensors")
    tiny = {f"model.layers.{n // 10}.block.{n % 10}.weight": np.zeros(2, np.float32) for n in range(100_000)}
    holdall.save(folder / "o.aero", tiny, fsync=False)
    save_file(tiny, folder / "o.safetensors")

    def ours() -> None:
        with holdall.open(folder / "o.aero") as model:
            assert len(list(model)) == 100_000

    def theirs() -> None:
        with safe_open(folder / "o.safetensors", "np") as file:
            assert len(list(file.keys())) == 100_000

    found = turns(2 * rounds + 1, holdall=ours, safe_open=theirs)
    bar("open and list 100,000 tensors: safe_open / (2 x open)", found["safe_open"] / found["holdall"] / 2, 1.0)


def repairing(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    from holdall.repair import repair

    print("repair, 1 GB, 20 flipped bytes, 4 MiB pages")
    good, bad = folder / "good.aero", folder / "bad.aero"
    holdall.save(good, arrays, fsync=False, page_hash=True)
    bad.write_bytes(good.read_bytes())
    with holdall.open(good) as model:
        starts = [tensor.offset or 0 for tensor in model.tensors]
    rng = np.random.default_rng(7)
    with bad.open("r+b") as file:
        for row in rng.choice(len(starts), 20, replace=False).tolist():
            at = starts[row] + int(rng.integers(0, 1 << 20))
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1]))
    pages = [f for f in holdall.verify(bad).findings if f.rule == "aero.page.blake3"]
    print(f"    verify names {len(pages)} pages, such as: {pages[0].message}")
    start = time.perf_counter()
    report = repair(bad, good, fsync=False)
    seconds = time.perf_counter() - start
    same = hash_of(good) == hash_of(bad)
    replaced = f"{len(report.patches)} pages, {report.nbytes / 1e6:.1f} MB"
    print(f"    repair: {replaced}, {seconds:.2f} s; equal again: {same}")


def hash_of(path: Path) -> bytes:
    running = blake3(max_threads=blake3.AUTO)
    running.update_mmap(path)
    return running.digest()


def main() -> None:
    quick = "--quick" in sys.argv
    where = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), None)
    rng = np.random.default_rng(0)
    rows = 87 if quick else 873
    arrays = {f"layer.{n}.weight": rng.random((rows, 1024), np.float32) for n in range(300)}
    rounds = 3 if quick else 5
    with tempfile.TemporaryDirectory(dir=where) as folder:
        opening(Path(folder), rounds)
        writing(Path(folder), arrays, rounds)
        verifying(Path(folder), arrays, rounds)
        repairing(Path(folder), arrays)
    record("aero", ROWS)
    print(f"peak of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")


if __name__ == "__main__":
    main()
