"""Fuzzing without a fuzzer, for the tests: the same seed gives the same inputs, not guided by coverage."""

from __future__ import annotations

import random
import time
from itertools import count
from pathlib import Path

from tools.fuzz.findings import Watch
from tools.fuzz.mutate import mutate
from tools.fuzz.seeds import seeds
from tools.fuzz.subjects import SUBJECTS

__all__ = ["smoke"]


def smoke(name: str, folder: Path, *, seconds: float, seed: int = 0) -> Watch:
    """Run inputs made from the seeds of a subject for ``seconds``; findings are kept in ``folder``.

    >>> from pathlib import Path
    >>> smoke("oinf", Path("findings"), seconds=0.2).causes
    {}
    """
    subject = SUBJECTS[name]
    watch = Watch(subject.probe, folder)
    chance = random.Random(seed)
    pool = list(seeds(name).values())
    end = time.monotonic() + seconds
    for number in count():
        if time.monotonic() >= end:
            break
        data = pool[number] if number < len(pool) else mutate(chance.choice(pool), subject, chance)
        watch(data)
        if chance.random() < 0.01:  # lets changes add up
            pool.append(data)
    return watch
