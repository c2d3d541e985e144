"""Calling every kernel with hostile arguments, the same ones for the same seed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from types import ModuleType

from tests.native import document_cases, number_cases
from tests.native.arguments import CASES, twisted

assert document_cases and number_cases  # importing them registers their cases

REFUSALS = (ValueError, TypeError, MemoryError, OverflowError, BufferError)
_TURN = 25  # inputs of one kernel before the next has its turn


def exported(native: ModuleType) -> set[str]:
    """The kernels of the extension."""
    return {name for name, value in vars(native).items() if callable(value) and not name.startswith("__")}


@dataclass(slots=True)
class Campaign:
    """What a campaign did: inputs of each kernel, how many of them it took, and what it raised that it must not."""

    inputs: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


def fuzz(native: ModuleType, seconds: float, seed: int, on_turn: Callable[[str], None] = lambda _: None) -> Campaign:
    """Call every kernel in turn until the time is over. ``on_turn`` receives the name of each turn before it starts."""
    campaign = Campaign()
    end = time.monotonic() + seconds
    turn = 0
    while time.monotonic() < end:
        for name in sorted(exported(native)):
            on_turn(f"{name}, turn {turn} of seed {seed}")
            run_turn(native, name, turn, seed, campaign)
        turn += 1
    return campaign


def run_turn(native: ModuleType, name: str, turn: int, seed: int, campaign: Campaign) -> None:
    """One turn of one kernel. A finding names its turn, so that it can be repeated alone."""
    chance = Random(f"{seed} {name} {turn}")
    kernel = getattr(native, name)
    for _ in range(_TURN):
        arguments = CASES[name](chance)
        if chance.random() < 0.4:
            arguments = twisted(arguments, chance)
        campaign.inputs[name] += 1
        try:
            kernel(*arguments)
            campaign.taken[name] += 1
        except REFUSALS:
            pass
        except Exception as error:
            campaign.findings.append(f"{name}, turn {turn} of seed {seed}: {type(error).__name__}: {error}")
