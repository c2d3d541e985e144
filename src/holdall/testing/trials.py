"""The single trials of the contract, some of which run in another process."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import holdall
from holdall.model.tensor import Tensor
from holdall.sink.plan import Constant, FolderPlan, Late, Plan
from holdall.testing import corpus
from holdall.testing.damage import Sample, probe
from holdall.testing.isolation import Cost, cost_of, resident_bytes

__all__ = ["BIG_SIZE", "assert_no_writable_window", "measure_large_file", "outline", "probe_all", "random_files"]
__all__ += ["measure_verification", "refuse_all"]

BIG_SIZE = 16 << 20  # of one tensor among those of the large file


def outline(plan: Plan | FolderPlan) -> object:
    """Return what can be compared of a plan: places, sizes, known bytes; not the functions."""
    if isinstance(plan, FolderPlan):
        return {name: outline(file) for name, file in plan.files.items()}
    pieces = [
        (type(piece).__name__, piece.offset, piece.size, piece.data if isinstance(piece, Constant) else None)
        for piece in plan.pieces
    ]
    lates = [(piece.name, piece.needs) for piece in plan.pieces if isinstance(piece, Late)]
    tails = [(tail.name, tail.needs, tail.align) for tail in plan.tails]
    return pieces, lates, tails, plan.taps, plan.cursor


def assert_no_writable_window(tensor: Tensor) -> None:
    """Assert that a writable array is a copy."""
    array = tensor.numpy()
    if array.flags.writeable:
        before = bytes(tensor.raw())
        array[...] = np.zeros((), array.dtype)
        assert bytes(tensor.raw()) == before, f"{tensor.name}: numpy() is a writable window"


def measure_large_file(path: Path, format: str) -> tuple[int, int]:
    """Measure the growth of resident memory for opening and listing, then for reading one tensor."""
    holdall.verify(path, level="structure", format=format)  # imports must not count
    before = resident_bytes()
    model = holdall.open(path, format=format)
    assert all(tensor.nbytes == BIG_SIZE for tensor in model.tensors)
    opened = resident_bytes()
    array = model["t01"].numpy()
    assert not array.view(np.uint8).any()
    return opened - before, resident_bytes() - opened


def measure_verification(path: Path, format: str) -> int:
    """Measure the peak of resident memory while verifying."""
    holdall.verify(path, level="structure", format=format)
    return cost_of(lambda: holdall.verify(path, format=format)).peak_bytes


def random_files(sample: Sample, cases: int) -> Iterator[tuple[str, Sample]]:
    """Yield the sample with random bytes after the first few of one file, so that the reader accepts them."""
    chance = random.Random(cases)
    for number in range(cases):
        name = chance.choice(sorted(sample.files))
        kept = chance.choice((0, 4, 8, 16, 64, 200))
        size = chance.choice((8, 100, 1000, 10_000, 1_000_000 if number % 10 == 0 else 100))
        noise = chance.choice((chance.randbytes, bytes, lambda size: b"\xff" * size, _small_numbers))(size)
        changed = sample.files[name][:kept] + noise
        yield f"{name} with {size} other bytes after {kept}, number {number}", sample.replace(name, changed)


def _small_numbers(size: int) -> bytes:
    """Return numbers of eight bytes that could be counts and sizes."""
    return b"".join(random.Random(size).choice((0, 1, 2, 8, 255)).to_bytes(8, "little") for _ in range(-(-size // 8)))


def probe_all(
    cases: Iterator[tuple[str, Sample]], scratch: Path, format: str, seconds: float = 2.0, growth: int = 200 << 20
) -> Cost:
    """Probe every damaged sample, and return the highest cost. Raises for the first bug or excessive cost."""
    worst = Cost(0, 0)
    for what, sample in cases:
        try:
            cost = cost_of(lambda sample=sample: probe(sample.openable(scratch), format))  # type: ignore[misc]
        except BaseException as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
        took = f"{what}: took {cost.seconds:.1f} s and {cost.peak_bytes >> 20} MiB"
        assert cost.seconds < seconds and cost.peak_bytes < growth, took
        worst = Cost(max(worst.seconds, cost.seconds), max(worst.peak_bytes, cost.peak_bytes))
    return worst


def refuse_all(files: list[tuple[Path, corpus.Stage]]) -> list[tuple[Path, corpus.Stage, corpus.Stage, Cost]]:
    """Return each bad file with the stage at which it was refused, the stage demanded, and the cost."""
    answers = []
    for path, demand in files:
        found: list[corpus.Stage] = []
        cost = cost_of(lambda path=path, found=found: found.append(corpus.find_refusal(path)))  # type: ignore[misc]
        answers.append((path, found[0], demand, cost))
    return answers
