"""Cases in forked processes with limits. A process that dies or hangs is a finding, and another goes on after it."""

from __future__ import annotations

import json
import mmap
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tools.fuzz.operations.cases import Outcome, run_case
from tools.fuzz.operations.guard import LARGEST_FILE, Escape, Guard
from tools.fuzz.operations.material import carriers, encoders, matrices, plain_seeds
from tools.fuzz.operations.recipe_files import known_models
from tools.fuzz.subjects import SUBJECTS

__all__ = ["Campaign", "run_cases"]

_BATCH = 250  # cases of one process
_HANG = 120.0  # seconds after which a case is ended
_MEMORY = 6 << 30  # address space of a process, torch's libraries included


@dataclass(slots=True)
class Campaign:
    """What a number of cases did: how operations ended, and the escapes by cause."""

    seed: int
    cases: int = 0
    seconds: float = 0.0
    processor: float = 0.0
    ends: Counter[str] = field(default_factory=Counter)  # by operation and end
    subjects: Counter[str] = field(default_factory=Counter)
    escapes: dict[str, list[int]] = field(default_factory=dict)  # numbers of cases by cause

    def summary(self) -> dict[str, Any]:
        """Return the line to print and to keep."""
        operations: dict[str, dict[str, int]] = {}
        for key, count in sorted(self.ends.items()):
            operation, _, end = key.rpartition("|")
            operations.setdefault(operation, {})[end] = count
        causes = {cause: {"cases": len(numbers), "first": numbers[:5]} for cause, numbers in self.escapes.items()}
        return {
            "seed": self.seed, "inputs": self.cases, "escapes": sum(map(len, self.escapes.values())), "causes": causes,
            "seconds": round(self.seconds, 1),
            "inputs_per_processor_second": round(self.cases / max(self.processor, 0.01), 1),
            "formats": dict(sorted(self.subjects.items())), "operations": operations,
        }  # fmt: skip


def run_cases(seed: int, numbers: range, jobs: int, kept: Path) -> Campaign:
    """Run the cases of these numbers; one case of each cause is kept in ``kept``."""
    for subject in SUBJECTS:  # made once: the processes are forks
        _ = plain_seeds(subject), carriers(subject), encoders(subject), matrices(subject), known_models(subject)
    campaign, began = Campaign(seed), time.monotonic()
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    base = Path(tempfile.mkdtemp(prefix="holdall-operations-", dir=place))
    waiting = [numbers[at : at + _BATCH] for at in range(0, len(numbers), _BATCH)]
    running: list[_Worker] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_Worker(seed, waiting.pop(0), base))
            time.sleep(0.01)
            for worker in [worker for worker in running if worker.is_over()]:
                running.remove(worker)
                for outcome in worker.outcomes():
                    _count(campaign, outcome, kept)
                campaign.processor += worker.processor
                if len(worker.rest):
                    waiting.insert(0, worker.rest)
    finally:
        for worker in running:
            worker.end()
        shutil.rmtree(base, ignore_errors=True)
    campaign.seconds = time.monotonic() - began
    return campaign


def _count(campaign: Campaign, outcome: Outcome, kept: Path) -> None:
    campaign.cases += 1
    campaign.ends[f"{outcome.operation}|{outcome.end}"] += 1
    campaign.subjects[outcome.subject] += 1
    for escape in outcome.escapes:
        cause = f"{escape.kind} {escape.place}".strip() + ("" if escape.place else f" ({outcome.operation})")
        if cause not in campaign.escapes:
            kept.mkdir(parents=True, exist_ok=True)
            text = {"seed": campaign.seed, "cause": cause, **asdict(outcome)}
            (kept / f"{campaign.seed}-{outcome.number}.json").write_text(json.dumps(text, indent=1))
        campaign.escapes.setdefault(cause, []).append(outcome.number)


class _Worker:
    """A process that runs a batch. Where it is in the batch lies in memory that both share."""

    def __init__(self, seed: int, numbers: range, base: Path) -> None:
        self.numbers = numbers
        self.rest = range(0)
        self.processor = 0.0
        self._shared = mmap.mmap(-1, 8)
        self._log = base / f"{numbers.start}-{numbers.stop}.log"
        self._seen, self._since = -1, time.monotonic()
        self._status = 0
        self.pid = os.fork()
        if not self.pid:
            _work(seed, numbers, base / str(os.getpid()), self._log, self._shared)

    @property
    def _place(self) -> int:
        return int.from_bytes(self._shared[:8], "little")

    def is_over(self) -> bool:
        """Whether the process has ended; one that hangs is ended."""
        if self._place != self._seen:
            self._seen, self._since = self._place, time.monotonic()
        elif time.monotonic() - self._since > _HANG:
            self.end()
        pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        if pid:
            self._status, self.processor = status, usage.ru_utime + usage.ru_stime
        return bool(pid)

    def end(self) -> None:
        """End the process."""
        os.kill(self.pid, signal.SIGKILL)

    def outcomes(self) -> Iterator[Outcome]:
        """Yield the cases that were run; the last of a process that died is an escape."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        for line in lines:
            values = json.loads(line)
            yield Outcome(**{**values, "escapes": [Escape(**one) for one in values["escapes"]]})
        if self._status:
            number = self.numbers[self._place]
            text = f"the process ended with {self._status}: {'signal' if self._status < 128 else 'exit'}"
            yield Outcome(number, "?", "?", "", "died", [Escape("died", str(self._status), text)])
            self.rest = self.numbers[self._place + 1 :]


def _work(seed: int, numbers: range, base: Path, log: Path, shared: mmap.mmap) -> None:
    """Run a batch, and leave the process."""
    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        guard = Guard()
        with log.open("w") as out:
            for place, number in enumerate(numbers):
                shared[:8] = place.to_bytes(8, "little")
                out.write(json.dumps(asdict(run_case(seed, number, base, guard))) + "\n")
                out.flush()
        code = 0
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        import traceback

        traceback.print_exc()
    finally:
        shutil.rmtree(base, ignore_errors=True)
        os._exit(code)
