"""Taking turns."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from bench.case import Case, Contender
from bench.work import Sample, Work, in_one_process, run

__all__ = ["PATIENCE", "drop", "files", "measure", "remove", "warm"]

PATIENCE = 20.0  # seconds that the turns of one contender may take together; the first is always had


def measure(case: Case, progress: Callable[[str], None]) -> dict[str, list[Sample]]:
    """The samples of every contender, by name, all of them in turn so that a slow spell meets all."""
    names = [one.name for one in case.contenders]
    assert len(set(names)) == len(names), f"{case.title}: two contenders of one name"
    found = _alone(case, progress) if case.alone else _together(case, progress)
    for x in {one.x for one in case.contenders}:  # what stands at another place of a plot is another work
        peers = [(one.name, sample.kept) for one in case.contenders if one.x == x for sample in found[one.name]]
        agreed = {name: kept["same"] for name, kept in peers if "same" in kept}
        if len(set(map(repr, agreed.values()))) > 1:
            raise RuntimeError(f"{case.title}: not the same work: {agreed}")
    return found


def _alone(case: Case, progress: Callable[[str], None]) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {one.name: [] for one in case.contenders}
    for number in range(case.rounds):
        for one in case.contenders:
            had = found[one.name]
            if had and sum(sample.seconds for sample in had) * (1 + 1 / len(had)) > PATIENCE:
                continue  # with one more as long as those it had
            progress(f"round {number + 1} of {case.rounds}: {one.name}")
            for path in case.cold:
                drop(path)
            found[one.name].append(run(one.job))
            _clear(one, case)
    return found


def _together(case: Case, progress: Callable[[str], None]) -> dict[str, list[Sample]]:
    progress(f"{case.rounds} rounds of {len(case.contenders)}")
    works = [one.job for one in case.contenders if isinstance(one.job, Work)]
    assert len(works) == len(case.contenders), "commands have processes of their own"
    samples = in_one_process(works, case.rounds)
    return {one.name: of_one for one, of_one in zip(case.contenders, samples, strict=True)}


def _clear(one: Contender, case: Case) -> None:
    """Remove what was written, which also forgets its unwritten pages; it has to be there and whole."""
    if one.leaves is None:
        return
    written = sum(path.stat().st_size for path in files(one.leaves))
    least = one.least or (one.size or case.size or 1) * 0.99
    if written < least:
        raise RuntimeError(f"{case.title}: {one.name} wrote {written} bytes, not {least:.0f}")
    remove(one.leaves)


def files(path: Path) -> list[Path]:
    """A file, or those of a folder."""
    return [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())


def remove(path: Path) -> None:
    """A file or a folder that may be there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def drop(path: Path) -> None:
    """Have no page of a file, or of those in a folder, in memory."""
    for one in files(path):
        fd = os.open(one, os.O_RDONLY)
        try:
            os.fsync(fd)  # only clean pages can be dropped
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def warm(paths: Iterable[Path]) -> None:
    """Have all pages of the files in memory, and written, so that no turn meets the disk."""
    piece = bytearray(4 << 20)
    for path in paths:
        for one in files(path):
            with one.open("rb", buffering=0) as file:
                os.fsync(file.fileno())
                while file.readinto(piece):
                    pass
