"""Fuzzing without a fuzzer: the same inputs for the same seed, not guided by coverage; what ``make test`` runs."""

from __future__ import annotations

import random
import time
from itertools import count
from pathlib import Path

from holdall.testing.fuzz.findings import Watch
from holdall.testing.fuzz.mutate import mutated
from holdall.testing.fuzz.seeds import seeds
from holdall.testing.fuzz.subjects import SUBJECTS

__all__ = ["smoke"]


def smoke(name: str, folder: Path, *, seconds: float, seed: int = 0) -> Watch:
    """Try inputs made from the seeds of a subject for so long; findings are kept in ``folder``.

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
        data = pool[number] if number < len(pool) else mutated(chance.choice(pool), subject, chance)
        watch(data)
        if chance.random() < 0.01:  # now and then a change on top of others
            pool.append(data)
    return watch
