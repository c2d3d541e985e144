"""The fuzz function under atheris: guided by coverage of holdall's own code, with the mutator that knows the format.

Run as a script, so that nothing of holdall is imported before it can be instrumented:
``python -P guided.py FORMAT FINDINGS CORPUS SEEDS [libFuzzer options]``; a campaign does so turn by turn.
"""

from __future__ import annotations

import gc
import random
import sys
from pathlib import Path

import atheris

_PLAIN = 0.1  # how often libFuzzer's own mutation is all there is


def _own_modules() -> list[str]:
    """The modules that test: their coverage says nothing of readers."""
    here = Path(__file__).parent
    inside = {"holdall.testing.": here.parent, "holdall.testing.fuzz.": here}
    return ["holdall.testing", "holdall.testing.fuzz"] + [
        prefix + file.stem for prefix, folder in inside.items() for file in folder.glob("*.py")
    ]


def main() -> None:
    """Fuzz until libFuzzer has had its number of runs."""
    from holdall.testing.fuzz.findings import Watch
    from holdall.testing.fuzz.mutate import mutated
    from holdall.testing.fuzz.seeds import seeds
    from holdall.testing.fuzz.subjects import SUBJECTS

    name, findings, *options = sys.argv[1:]
    subject = SUBJECTS[name]
    watch = Watch(subject.probe, Path(findings))

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < _PLAIN:
            return bytes(atheris.Mutate(data, max_size))
        made = mutated(data, subject, chance, lambda part: bytes(atheris.Mutate(part, max(len(part) + 16, 64))))
        return made if 0 < len(made) <= max_size else bytes(atheris.Mutate(data, max_size))

    for data in seeds(name).values():  # readers are imported when they are first used: before the clock runs
        subject.probe(data)
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    atheris.Setup([sys.argv[0], *options], watch, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    # Readers are imported when they are first used, so all of it runs in here.
    with atheris.instrument_imports(include=["holdall"], exclude=_own_modules()):
        main()
