"""Something to be timed, and the process that does it.

A *work* is a plain function that prepares (imports, arrays, warm-up) and returns the action to be timed. It is named
by module and name and run in a fresh interpreter (``python -m bench.work``), so that memory, page faults and caches of
one contender are not those of another:

    def load(path: str) -> Action:
        from safetensors.numpy import load_file          # not timed
        return lambda: {"same": checksum(load_file(path))}  # timed

A dict that an action returns is kept; under the key ``same`` all contenders of a case must return the same, which is
how a case shows that they did the same work. Under ``seconds`` and ``peak_mb`` an action says what it measured itself:
the slowest of several steps, the memory of another process.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias

__all__ = ["ROOT", "Action", "Command", "Job", "Sample", "Work", "in_one_process", "run", "work"]

ROOT = Path(__file__).resolve().parent.parent

Action: TypeAlias = Callable[[], object]
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Sample:
    """One turn: seconds, the peak of resident memory while they passed, page faults, and what the action returned."""

    seconds: float
    peak_mb: float = 0
    minor: int = 0
    major: int = 0
    kept: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Work:
    """A work by name, with its arguments. Made by :func:`work`."""

    module: str
    name: str
    args: tuple[Any, ...]
    env: Mapping[str, str] = field(default_factory=dict)

    def prepare(self) -> Action:
        """The action, in this process."""
        made: Action = getattr(importlib.import_module(self.module), self.name)(*self.args)
        return made


@dataclass(frozen=True, slots=True)
class Command:
    """A program, timed from its start to its end."""

    words: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


Job: TypeAlias = Work | Command


def work(function: Callable[P, Action], *args: P.args, **kwargs: P.kwargs) -> Work:
    """``function`` with its arguments, to be called in another process."""
    assert not kwargs, "arguments travel by position"
    return Work(function.__module__, function.__name__, args)


def run(job: Job) -> Sample:
    """One turn in a fresh process."""
    return _command(job) if isinstance(job, Command) else in_one_process([job], 1, warm=False)[0][0]


def in_one_process(works: Sequence[Work], rounds: int, *, warm: bool = True) -> list[list[Sample]]:
    """Turns of several works in one fresh process: for short works whose memory is not measured.

    ``warm``: every work has a first turn that does not count.
    """
    asked = {"works": [[one.module, one.name, one.args] for one in works], "rounds": rounds, "warm": warm}
    env = {**os.environ, **works[0].env}
    words = [sys.executable, "-m", "bench.work"]
    done = subprocess.run(words, input=json.dumps(asked), capture_output=True, text=True, env=env, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{', '.join(one.name for one in works)}:\n{done.stderr}")
    found = json.loads(done.stdout.splitlines()[-1])
    return [[Sample(**sample) for sample in samples] for samples in found]


def _command(command: Command) -> Sample:
    env = {**os.environ, **command.env}
    began = time.perf_counter()
    child = subprocess.Popen(command.words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    with child:
        if child.returncode:
            said = child.stderr.read().decode(errors="replace") if child.stderr else ""
            raise RuntimeError(f"{' '.join(command.words)}:\n{said}")
    return Sample(seconds, usage.ru_maxrss / 1024, usage.ru_minflt, usage.ru_majflt)


# -- in the process that works ----------------------------------------------------------------------------------------


def _sample(action: Action) -> Sample:
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
    before = _faults()
    began = time.perf_counter()
    kept = action()
    seconds = time.perf_counter() - began
    minor, major = (now - then for now, then in zip(_faults(), before, strict=True))
    found = kept if isinstance(kept, dict) else {}
    return Sample(found.pop("seconds", seconds), found.pop("peak_mb", None) or _peak_mb(), minor, major, found)


def _faults() -> tuple[int, int]:
    """Minor and major ones so far, with those of processes that were started here and have ended."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_minflt + children.ru_minflt, own.ru_majflt + children.ru_majflt


def _peak_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def _main() -> None:
    asked = json.load(sys.stdin)
    actions = [Work(module, name, tuple(args)).prepare() for module, name, args in asked["works"]]
    if asked["warm"]:
        for action in actions:
            action()
    samples: list[list[dict[str, Any]]] = [[] for _ in actions]
    for _ in range(asked["rounds"]):
        for action, found in zip(actions, samples, strict=True):
            found.append(asdict(_sample(action)))
    sys.stdout.write("\n" + json.dumps(samples) + "\n")


if __name__ == "__main__":
    _main()
