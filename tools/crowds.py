"""Every command on files of very many small tensors, in every format: seconds of the processor, and memory.

``python -m tools.crowds [--count 200000] [--format NAME ...] [--command NAME ...] [--folder DIR]`` writes a file a
format and runs each command on it in a process of its own. Lines that miss a bar (5 seconds, 400 MB) are marked.
Time is that of the processor, user and system together, so that a busy machine says the same.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.content import FORMATS

SECONDS, MEGABYTES = 5.0, 400.0
TARGETS = ("safetensors", "oinf", "gguf", "npz", "torch", "aero", "mcf", "onnx")
REPAIRED = ("aero",)  # the formats with hashes of small ranges
EXITS = {"diff changed": 1}  # of commands that are to find a difference
ONE = "model.layers.0.experts.1.w.weight"


def name_of(number: int) -> str:
    """Names as models with experts have them."""
    return f"model.layers.{number // 1000}.experts.{number % 1000}.w.weight"


def write(path: Path, format: str, count: int) -> None:
    """``count`` tensors of 4 to 64 values: vectors and matrices, f32 and f16."""
    import numpy as np

    import holdall

    values = np.random.default_rng(0).standard_normal(count + 64, np.float32)
    halves = values.astype(np.float16)
    gc.disable()  # it would look at all arrays again and again
    content = {}
    for number in range(count):
        size = 4 * (1 + number % 16)
        array = (halves if number % 5 == 0 else values)[number : number + size]
        content[name_of(number)] = array.reshape(4, -1) if number % 2 else array
    if format == "gptrs-checkpoint":
        holdall.save(path, content, format=format, fsync=False, config={"kind": "crowd"})
    else:
        holdall.save(path, content, format=format, fsync=False)


def commands(path: Path, format: str, out: Path) -> Iterator[tuple[str, list[str]]]:
    """What is run on a file, by name. Whatever a command writes goes to ``out``."""
    file = str(path)
    yield "info", ["info", file]
    yield "info --json", ["info", file, "--json"]
    yield "info --duplicates", ["info", file, "--duplicates"]
    yield "ls", ["ls", file]
    yield "ls --long", ["ls", file, "--long"]
    yield "ls --json", ["ls", file, "--json"]
    yield "ls --tree", ["ls", file, "--tree"]
    yield "ls --sort", ["ls", file, "--sort", "size"]
    yield "ls glob", ["ls", file, "*.experts.7.*"]
    for level in ("structure", "full", "strict"):
        yield f"verify {level}", ["verify", file, "--level", level]
    yield "verify --stats", ["verify", file, "--stats"]
    yield "ls --stats", ["ls", file, "--stats"]
    if not path.is_dir():  # of a folder, one of its files is explained
        yield "explain", ["explain", file]
        yield "explain --json", ["explain", file, "--json"]
        yield "explain --at", ["explain", file, "--at", "0x1000"]
    yield "assets", ["assets", file]
    yield "extract", ["extract", file, ONE, "-o", str(out / "one.npy")]
    for target in TARGETS:
        yield f"convert {target}", _convert(file, out, target)
    yield "convert --dry-run", [*_convert(file, out, "safetensors"), "--dry-run"]
    yield "convert --rename", [*_convert(file, out, "safetensors"), "--rename", "s/experts/expert/"]
    yield "convert --cast", [*_convert(file, out, "safetensors"), "--cast", "bf16"]
    yield "convert --include", [*_convert(file, out, "safetensors"), "--include", "*.experts.7*"]
    yield "convert --dedup", [*_convert(file, out, "mcf"), "--dedup"]
    yield (
        "convert --split",
        ["convert", file, str(out / "parts"), "--format", "safetensors", "--split", "5MB", "--no-fsync"],
    )
    other = "safetensors" if format == "oinf" else "oinf"
    yield "convert --carry", [*_convert(file, out, other), "--carry"]
    yield "restore", ["restore", str(out / f"to{FORMATS[other]}"), str(out / "back")]
    yield "quantize", ["quantize", file, str(out / "q.mcf"), "--min-size", "4", "--no-fsync"]
    yield "diff", ["diff", file, file]
    yield "diff --quick", ["diff", file, file, "--quick"]
    yield "diff --json", ["diff", file, file, "--json"]
    yield "diff --trace", ["diff", file, file, "--trace"]
    changed = str(out / "changed.oinf")
    yield "convert --exclude", ["convert", file, changed, "--exclude", "*.7.*", "--cast", "*.8.*=bf16", "--no-fsync"]
    yield "diff changed", ["diff", file, changed]
    if path.is_dir():  # folders are not edited in their place
        return
    copy = out / path.name
    yield "edit --rename", ["edit", str(copy), "--rename", f"{ONE}=another"]
    yield "edit --rename s", ["edit", str(copy), "--rename", "s/experts/expert/"]
    yield "edit --set", ["edit", str(copy), "--set", "mode=slow"]
    if format in REPAIRED:
        yield "repair", ["repair", str(copy), "--from", file]


def _convert(file: str, out: Path, target: str) -> list[str]:
    more = ["-o", 'config={"kind": "crowd"}'] if target == "gptrs-checkpoint" else []
    return ["convert", file, str(out / f"to{FORMATS[target]}"), "--format", target, "--no-fsync", *more]


def measure(words: list[str]) -> tuple[int, float, float, float, str]:
    """Exit code, seconds on the clock, seconds of the processor, peak in MB, and the end of what it complained."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen([sys.executable, "-m", "holdall", *words], stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        last = said.read().decode(errors="replace").strip().splitlines()[-1:]
    return child.returncode, seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, "".join(last)


def prepare(name: str, path: Path, out: Path) -> None:
    """Edit and repair change a file: a fresh copy."""
    if name.startswith("edit") or name == "repair":
        copy = out / path.name
        if copy.is_dir():
            shutil.rmtree(copy)
        (shutil.copytree if path.is_dir() else shutil.copyfile)(path, copy)


def main() -> int:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--format", action="append", choices=list(FORMATS))
    parser.add_argument("--command", action="append", help="the beginning of a command's name, such as 'verify'")
    parser.add_argument("--folder", type=Path, help="keep the files here, and use those that are there")
    asked = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory(prefix="holdall-crowds-", dir=asked.folder) as scratch:
        for format in asked.format or FORMATS:
            path = (asked.folder or Path(scratch)) / f"crowd-{asked.count}{FORMATS[format]}"
            if not path.exists():
                write(path, format, asked.count)
            out = Path(scratch) / format
            out.mkdir()
            for name, words in commands(path, format, out):
                if asked.command and not name.startswith(tuple(asked.command)):
                    continue
                prepare(name, path, out)
                code, clock, seconds, megabytes, said = measure(words)
                over = seconds > SECONDS or megabytes > MEGABYTES
                missed += over
                mark = "MISSED" if over else "ok" if code == EXITS.get(name, 0) else f"exit {code}: {said[:100]}"
                print(f"{format:17}{name:20}{clock:7.2f} s{seconds:7.2f} s cpu{megabytes:6.0f} MB  {mark}", flush=True)
            shutil.rmtree(out)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
