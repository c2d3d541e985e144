"""The figures of a run and the machine that it ran on, as one JSON document: all that the page is made from."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import msgspec

from bench.case import Bar, Case
from bench.work import Sample

__all__ = ["Line", "Record", "Result", "describe_machine", "read", "result_of", "write"]

LIBRARIES = ("numpy", "ml_dtypes", "blake3", "isal", "safetensors", "gguf", "torch", "onnx", "openinfer-oinf",
             "obstore", "sentence-transformers")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """What was measured of one contender. Peak and faults are the largest and the medians over its turns."""

    name: str
    seconds: list[float]
    peak_mb: float
    minor: int
    major: int
    size: int | None = None
    kept: dict[str, float | str] = field(default_factory=dict)
    bars: list[Bar] = field(default_factory=list)
    series: str = ""
    x: float | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured of one case. ``apart`` says when and where, if that was not in the run of the record."""

    topic: str
    title: str
    says: str
    beside: str
    limit: str
    unit: str
    plots: list[str]
    lines: list[Line]
    apart: str = ""

    def line(self, name: str) -> Line | None:
        """The line of one contender."""
        return next((line for line in self.lines if line.name == name), None)


@dataclass(frozen=True, slots=True)
class Record:
    """A whole run."""

    date: str
    quick: bool
    machine: dict[str, str]
    libraries: dict[str, str]
    minutes: float
    results: list[Result]
    skipped: list[str]


def result_of(topic: str, case: Case, samples: dict[str, list[Sample]]) -> Result:
    """What is kept of the samples of a case."""
    lines = [
        Line(
            name=one.name,
            seconds=[_round(sample.seconds) for sample in found],
            peak_mb=round(max(sample.peak_mb for sample in found), 1),
            minor=_middle([sample.minor for sample in found]),
            major=_middle([sample.major for sample in found]),
            size=one.size if one.size is not None else case.size,
            kept={key: value for key, value in found[-1].kept.items() if key != "same"},
            bars=list(one.bars),
            series=one.series,
            x=one.x,
        )
        for one in case.contenders
        if (found := samples[one.name])
    ]
    return Result(topic, case.title, case.says, case.beside, case.limit, case.unit, list(case.plots), lines)


def _round(seconds: float) -> float:
    return float(f"{seconds:.4g}")  # more would be noise


def _middle(counts: Sequence[int]) -> int:
    return sorted(counts)[len(counts) // 2]


def describe_machine(scratch: Path) -> dict[str, str]:
    """What the figures depend on, without naming the machine."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "CPU": _cpu_model(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory / 1e9:.0f} GB",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "file system": _file_system(scratch),
        "Python": platform.python_version(),
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def _file_system(path: Path) -> str:
    if shutil.which("findmnt") is None:
        return "unknown"
    asked = subprocess.run(["findmnt", "-n", "-o", "FSTYPE", "-T", str(path)], capture_output=True, text=True)
    return asked.stdout.strip() or "unknown"


def library_versions() -> dict[str, str]:
    """The versions of what is measured and of its alternatives."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def today() -> str:
    """The date, as the record has it."""
    return time.strftime("%Y-%m-%d", time.gmtime())


def write(record: Record, path: Path) -> None:
    """Keep ``record``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")


def read(path: Path) -> Record:
    """A record that was kept."""
    return msgspec.json.decode(path.read_bytes(), type=Record)
