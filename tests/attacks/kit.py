"""The words of the collection: families of attacks, what each must come to, and how that is tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import holdall
from holdall.errors import UnsupportedError
from holdall.format import registry
from holdall.operations.examine import examine
from holdall.operations.truncated import find_truncation
from holdall.testing import corpus
from holdall.testing.corpus import STAGES, Stage
from holdall.testing.isolation import Cost, cost_of
from tests.attacks.files import aeroset, hf_folder

MIB = 1 << 20
SECONDS = 2.0
GROWTH = 50 * MIB  # of resident memory; an attack is a file of a few hundred bytes, but for the bombs

Input = bytes | Path


@dataclass(frozen=True, slots=True)
class Attack:
    """One hostile file. ``by`` is the stage at which something must be said against it, at the latest.

    "open", "read" (a tensor), "full" and "strict" (verify is not ok), "warning" (verify warns) or "never": the file
    is legal, and only must do no harm.
    """

    name: str
    what: Input
    by: Stage = "open"


Builder = Callable[[Path, str], Iterable[Attack]]

# Formats whose files are those of another, in a folder: their attacks are built there too, unless they have their own.
INSIDE = {"safetensors": "hf", "aero": "aeroset"}


@dataclass
class Family:
    """One class of attack, with what must happen; ``spared`` says for a format why the class cannot be made in it."""

    name: str
    must: str
    builders: dict[str, Builder] = field(default_factory=dict)
    spared: dict[str, str] = field(default_factory=dict)

    def on(self, *formats: str) -> Callable[[Builder], Builder]:
        """Registers a builder of attacks in these formats."""

        def register(build: Builder) -> Builder:
            for format in formats:
                assert format not in self.builders, f"{self.name}: {format} has a builder"
                self.builders[format] = build
            return build

        return register

    def spare(self, why: str, *formats: str) -> None:
        """Say why there is no such attack in these formats."""
        self.spared.update(dict.fromkeys(formats, why))

    def attacks(self, format: str, folder: Path) -> Iterator[Attack]:
        """All attacks of the family in one format; ``folder`` is for those that are more than bytes."""
        if format in self.builders:
            yield from self.builders[format](folder, format)
            return
        inner = next(inner for inner, outer in INSIDE.items() if outer == format)
        for number, attack in enumerate(self.builders[inner](folder, inner)):
            assert isinstance(attack.what, bytes), "only bytes can be put into a folder"
            wrap = hf_folder if format == "hf" else aeroset
            yield Attack(attack.name, wrap(folder / f"{format}{number}", attack.what), attack.by)

    def covers(self, format: str) -> bool:
        """Whether the class is tried in the format."""
        inner = next((inner for inner, outer in INSIDE.items() if outer == format), None)
        return format in self.builders or (inner in self.builders and format not in self.spared)


FAMILIES: dict[str, Family] = {}


def family(name: str, must: str) -> Family:
    """A new class of attack."""
    FAMILIES[name] = Family(name, must)
    return FAMILIES[name]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one attack: the stage at which something was said against it, and what that took."""

    stage: Stage
    cost: Cost


def tried(attack: Attack, format: str | None) -> Outcome:
    """Everything that reads, on one attack. What is raised but FormatError and UnsupportedError passes through."""
    stages: list[Stage] = []
    stage_of = _stage if _is_file(attack.what) else _stage_of_no_file
    cost = cost_of(lambda: stages.append(stage_of(attack.what, format)))
    return Outcome(stages[0], cost)


def _is_file(what: Input) -> bool:
    return isinstance(what, bytes) or what.is_file() or what.is_dir()


def _stage(what: Input, format: str | None) -> Stage:
    with examine(what, format=format) as seen:  # never raises, nor does looking for what is missing
        seen.audit()
        find_truncation(seen)
    return corpus.find_refusal(what, format)  # type: ignore[arg-type]


def _stage_of_no_file(what: Input, format: str | None) -> Stage:
    """What is not even a file is nothing to report on: opening and verifying both raise."""
    for verb in (holdall.open, holdall.verify):
        try:
            verb(what, format=format)
        except (OSError, UnsupportedError):
            continue
        return "never"
    return "open"


def trial(attacks: list[Attack], format: str) -> list[list[Outcome]]:
    """Each attack as a file of unknown kind, and as one that is said to be of the format."""
    holdall.verify(b"", level="strict", format=format)  # so that imports are not counted
    registry.find(format)
    return [[tried(attack, named) for named in (None, format)] for attack in attacks]


def late(attack: Attack, outcome: Outcome) -> str | None:
    """What is wrong with an outcome; None when it is as it must be."""
    if STAGES.index(outcome.stage) > STAGES.index(attack.by):
        return f"{attack.name}: must be refused at {attack.by}, was at {outcome.stage}"
    if outcome.cost.seconds > SECONDS or outcome.cost.peak_bytes > GROWTH:
        return f"{attack.name}: took {outcome.cost.seconds:.2f} s and {outcome.cost.peak_bytes >> 20} MiB"
    return None
