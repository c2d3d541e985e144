"""Runs inputs through both readers, in batches, and counts where they agree."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tools.differential import ours
from tools.differential.child import Died, Library
from tools.differential.exceptions import explain
from tools.differential.normal import Content, compare
from tools.fuzz.framing import MAIN, unframe
from tools.fuzz.mutate import mutate
from tools.fuzz.seeds import seeds
from tools.fuzz.subjects import SUBJECTS

__all__ = ["FORMATS", "Result", "run"]

FORMATS = ("safetensors", "gguf", "npz", "onnx", "torch", "oinf")

_BATCH = 128
_PIECE = 2048  # inputs that a process takes at a time; what they are depends on seed and number alone
_KEPT = 40  # differences that are described and kept


@dataclass(slots=True)
class Result:
    """The counts of a run, and the differences that no exception covers."""

    counts: Counter[str] = field(default_factory=Counter)
    standing: Counter[str] = field(default_factory=Counter)
    differences: list[tuple[bytes, list[str]]] = field(default_factory=list)

    def add(self, other: Result) -> None:
        """Add the counts of another piece of the run."""
        self.counts += other.counts
        self.standing += other.standing
        self.differences = (self.differences + other.differences)[:_KEPT]

    def summary(self) -> dict[str, Any]:
        """The line that a run prints."""
        names = ("inputs", "both", "only_ours", "only_theirs", "neither", "died", "differences")
        return {**{name: self.counts[name] for name in names}, "exceptions": dict(sorted(self.standing.items()))}


def run(format: str, count: int, seed: int, jobs: int = 1, keep: Path | None = None) -> Result:
    """Run ``count`` inputs of a format. Inputs on which the readers differ are kept in the folder ``keep``.

    >>> run("safetensors", 200, seed=1).summary()["differences"]
    0
    """
    pieces = [(format, seed, at, min(at + _PIECE, count)) for at in range(0, count, _PIECE)]
    result = Result()
    if jobs == 1:
        with Library(format) as library:
            for piece in pieces:
                result.add(_run_piece(piece, library))
    else:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            for found in pool.map(_run_in_worker, pieces):
                result.add(found)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        for number, (data, texts) in enumerate(result.differences):
            (keep / f"{format}-{seed}-{number}").write_bytes(data)
            (keep / f"{format}-{seed}-{number}.txt").write_text("\n".join(texts) + "\n")
    return result


@cache
def _pool(format: str) -> list[bytes]:
    found = [data for name, data in seeds(format).items() if not name.startswith("refused")]
    found = [data for data in found if list(unframe(data)) == [MAIN]]
    # The verifier of OINF knows version 1.
    return [data for data in found if format != "oinf" or data[5:9] == (1).to_bytes(4, "little")]


def make_input(format: str, seed: int, number: int) -> bytes:
    """Make an input from its number: a seed, changed once or a few times."""
    pool = _pool(format)
    if number < len(pool):
        return pool[number]
    chance = random.Random(f"{seed} {number}")
    data = chance.choice(pool)
    for _ in range(chance.choice((0, 1, 1, 1, 1, 2))):
        data = mutate(data, SUBJECTS[format], chance)
    return data if chance.random() < 0.7 or not data else _change_bytes(data, chance)


def _change_bytes(data: bytes, chance: random.Random) -> bytes:
    """Change a few bytes, of values more often than of structure: both readers take most of these."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = int(len(changed) * chance.random() ** 0.5)
        changed[at] = chance.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    return bytes(changed)


@cache
def _library(format: str) -> Library:
    return Library(format)  # it ends when its pipe does, with the worker


def _run_in_worker(piece: tuple[str, int, int, int]) -> Result:
    return _run_piece(piece, _library(piece[0]))


def _run_piece(piece: tuple[str, int, int, int], library: Library) -> Result:
    format, seed, start, stop = piece
    result = Result()
    for at in range(start, stop, _BATCH):
        batch = [make_input(format, seed, number) for number in range(at, min(at + _BATCH, stop))]
        library.send(batch)
        mine = [ours.read(format, data) for data in batch]  # while the library reads them too
        for data, own, other in zip(batch, mine, library.receive(batch), strict=True):
            _count(format, data, own, other, result)
    return result


def _count(format: str, data: bytes, own: Content | None, other: Content | Died | None, result: Result) -> None:
    result.counts["inputs"] += 1
    if isinstance(other, Died):
        result.counts["died"] += 1
    elif own is None or other is None:
        result.counts["only_ours" if own else "only_theirs" if other else "neither"] += 1
    else:
        result.counts["both"] += 1
        texts = compare(own, other)
        name = explain(format, data, own, other) if texts else None
        if name is not None:
            result.standing[name] += 1
        elif texts:
            result.counts["differences"] += 1
            result.differences.append((data, texts))
