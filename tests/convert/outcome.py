"""What became of random chains, one by one and added up."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from tests.convert.models import SUFFIX
from tests.convert.steps import Step

__all__ = ["Outcome", "Summary"]


@dataclass
class Outcome:
    """What became of a chain. ``failure`` says what is wrong; None when all is right."""

    seed: int
    start: str = ""
    steps: list[Step] = field(default_factory=list)
    failure: str | None = None

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.start}", *(f"  {step}" for step in self.steps)]
        return "\n".join([*lines, *([self.failure] if self.failure else [])])


@dataclass
class Summary:
    """Chains added up."""

    chains: int = 0
    done: Counter[str] = field(default_factory=Counter)
    stopped: Counter[str] = field(default_factory=Counter)
    targets: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)
    steps: int = 0
    succeeded: int = 0

    def add(self, outcome: Outcome) -> None:
        """Count one chain."""
        self.chains += 1
        if outcome.failure is not None:
            self.failures.append(outcome)
        for step in outcome.steps:
            self.steps += 1
            good = step.outcome == "ok"
            self.succeeded += good
            self.targets[f"{step.target} {'ok' if good else 'stop'}"] += 1
            for kind in set(step.kinds):
                (self.done if good else self.stopped)[kind] += 1
            if not good:
                self.reasons[re.sub(r"'[^']*'|\"[^\"]*\"|[0-9]+", "_", step.outcome)[:110]] += 1

    def __str__(self) -> str:
        share = 100 * self.succeeded / max(1, self.steps)
        lines = [f"{self.chains} chains, {self.steps} steps, {share:.0f} % succeeded, {len(self.failures)} failures"]
        kinds = sorted(self.done | self.stopped)
        lines += [f"  {kind:21} {self.done[kind]:6} succeeded {self.stopped[kind]:6} stopped" for kind in kinds]
        for target in sorted(SUFFIX):
            good, bad = self.targets[f"{target} ok"], self.targets[f"{target} stop"]
            lines.append(f"  into {target:16} {good:6} succeeded {bad:6} stopped")
        return "\n".join(lines)
