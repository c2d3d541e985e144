"""What runs in turns with what, and what is asked of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from bench.work import Job

__all__ = [
    "EACH", "Bar", "Case", "Contender", "Run", "at_least", "at_most", "bytes_each", "either", "megabytes", "scaling",
    "seconds",
]  # fmt: skip

IN_MEMORY = Path("/dev/shm")
EACH = "bytes a tensor"  # the column of a case about memory that grows with the number of tensors
SPARE = 4 * 10**9  # bytes of memory for the processes themselves

Kind = Literal["time", "speed", "scaling", "seconds", "memory", "each"]


@dataclass(frozen=True, slots=True)
class Bar:
    """What a contender has to reach, alone or compared with another of the same case. Made by the functions below."""

    kind: Kind
    limit: float
    of: str = ""
    bases: tuple[str, str] | None = None  # of a scaling: this contender and the other on one thread
    otherwise: Bar | None = None  # a bar that will do as well


def at_most(ratio: float, of: str) -> Bar:
    """No more than ``ratio`` times the time of ``of``."""
    return Bar("time", ratio, of)


def at_least(ratio: float, of: str) -> Bar:
    """No less than ``ratio`` times the speed of ``of``."""
    return Bar("speed", ratio, of)


def scaling(ratio: float, of: str, base: str, base_of: str) -> Bar:
    """No less than ``ratio`` times what ``of`` gained over ``base_of``, gained over ``base``."""
    return Bar("scaling", ratio, of, (base, base_of))


def either(one: Bar, other: Bar) -> Bar:
    """``one``, or else ``other``: the one that is nearer to holding is shown."""
    return replace(one, otherwise=other)


def seconds(below: float) -> Bar:
    """Less than so many seconds."""
    return Bar("seconds", below)


def megabytes(below: float) -> Bar:
    """A peak of resident memory below so many megabytes."""
    return Bar("memory", below)


def bytes_each(below: float) -> Bar:
    """No more than so many bytes of memory for each tensor, beyond what the caller holds."""
    return Bar("each", below)


@dataclass(frozen=True, slots=True)
class Contender:
    """One of those that take turns. ``leaves`` is what it writes, removed after every turn."""

    name: str
    job: Job
    bars: Sequence[Bar] = ()
    size: int | None = None  # bytes that a turn moves, where they are not those of the case
    leaves: Path | None = None
    least: int | None = None  # bytes of what it leaves, where they are fewer than the size
    series: str = ""  # the line of a plot, and where on it
    x: float | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """Contenders that do the same work in turns.

    ``beside`` is the alternative and ``limit`` the physical limit, by name: every contender's ratio to both is shown.
    ``alone`` gives every turn a fresh process; otherwise all turns are in one. ``cold`` files are dropped from the page
    cache before every turn.
    """

    title: str
    contenders: Sequence[Contender]
    rounds: int
    beside: str = ""
    limit: str = ""
    size: int | None = None
    unit: str = "bytes"  # what size counts: bytes, values, texts
    alone: bool = True
    cold: Sequence[Path] = ()
    plots: Sequence[str] = ()
    says: str = ""  # a sentence under the title


@dataclass(frozen=True, slots=True)
class Run:
    """How much is measured, and where there is room for it."""

    scratch: Path
    quick: bool = False
    skipped: list[str] = field(default_factory=list)  # what could not be measured, and why

    def pick(self, full: int, quick: int) -> int:
        """A size, or a number of rounds."""
        return quick if self.quick else full

    @contextmanager
    def memory(self, needs: int) -> Iterator[Path]:
        """The same in memory, where no turn meets the disk; on the disk if there is no room."""
        if IN_MEMORY.is_dir() and min(_available() - SPARE, shutil.disk_usage(IN_MEMORY).free) > needs:
            with TemporaryDirectory(prefix="holdall-bench-", dir=IN_MEMORY) as name:
                yield Path(name)
        else:
            with self.folder(needs) as folder:
                yield folder

    @contextmanager
    def folder(self, needs: int) -> Iterator[Path]:
        """A folder for files of so many bytes in all, removed at the end."""
        free = shutil.disk_usage(self.scratch).free
        if free < needs * 1.1:
            need = f"{needs * 1.1 / 1e9:.1f} GB are needed under {self.scratch} and {free / 1e9:.1f} are free"
            raise RuntimeError(f"{need}: set HOLDALL_BENCH_DIR to a folder on a larger disk")
        with TemporaryDirectory(dir=self.scratch) as name:
            yield Path(name)


def _available() -> int:
    """Bytes of memory that can be had, by giving up caches too."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024
