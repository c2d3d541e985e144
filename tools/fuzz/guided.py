"""Runs the fuzz function under atheris, guided by coverage of holdall, with the mutator that knows the format.

``python -m tools.fuzz.guided FORMAT FINDINGS CORPUS SEEDS [libFuzzer options]``; a campaign does so turn by turn.
"""

from __future__ import annotations

import gc
import random
import sys
from importlib.util import find_spec
from pathlib import Path

import atheris

_PLAIN = 0.1  # the share of inputs that libFuzzer mutates alone


def _testing_modules() -> list[str]:
    """List the modules of holdall.testing without importing them: their coverage says nothing of readers."""
    spec = find_spec("holdall")
    assert spec is not None and spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0]) / "testing"
    return ["holdall.testing", *(f"holdall.testing.{file.stem}" for file in folder.glob("*.py"))]


def main() -> None:
    """Fuzz until libFuzzer has had its number of runs."""
    from tools.fuzz.findings import Watch
    from tools.fuzz.mutate import mutate
    from tools.fuzz.seeds import seeds
    from tools.fuzz.subjects import SUBJECTS

    name, findings, *options = sys.argv[1:]
    subject = SUBJECTS[name]
    watch = Watch(subject.probe, Path(findings))

    def mutate_here(data: bytes, max_size: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < _PLAIN:
            return bytes(atheris.Mutate(data, max_size))
        made = mutate(data, subject, chance, lambda part: bytes(atheris.Mutate(part, max(len(part) + 16, 64))))
        return made if 0 < len(made) <= max_size else bytes(atheris.Mutate(data, max_size))

    # Formats are imported when they are first used: do so before libFuzzer measures time.
    for data in seeds(name).values():
        subject.probe(data)
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    atheris.Setup([sys.argv[0], *options], watch, custom_mutator=mutate_here)
    atheris.Fuzz()


if __name__ == "__main__":
    # Formats are imported when they are first used, so everything runs inside.
    with atheris.instrument_imports(include=["holdall"], exclude=_testing_modules()):
        main()
