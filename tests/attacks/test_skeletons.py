"""Hostile skeletons on their way back: every carrier restored, and converted to what the skeleton says that it was."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

import holdall
from holdall.errors import HoldallError
from holdall.testing.isolation import run_isolated
from tests.attacks.files import TENSORS
from tests.attacks.kit import MIB, Attack, Outcome, cost_of
from tests.attacks.skeletons import SKELETONS

TARGETS = ("oinf", "hf", "safetensors")


def convert_all(attacks: list[Attack], folder: Path) -> list[tuple[str, Outcome]]:
    """Each carrier into each target; what is raised but an error of holdall passes through."""
    outcomes = []
    for number, attack in enumerate(attacks):
        for target in TARGETS:
            cost = cost_of(partial(convert, attack, folder / f"{target}{number}", target))
            outcomes.append((f"{attack.name} to {target}", Outcome("open", cost)))
    return outcomes


def convert(attack: Attack, path: Path, target: str) -> None:
    """The conversion and the way back, which may be refused."""
    with suppress(HoldallError):
        holdall.convert(attack.what, path, format=target)
    for with_changes in (False, True):
        with suppress(HoldallError):
            holdall.restore(attack.what, path.with_suffix(f".{with_changes}"), with_changes=with_changes)


@pytest.mark.parametrize("format", SKELETONS.builders)
def test_the_way_back_of_a_hostile_skeleton_does_no_harm(format: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    attacks = list(SKELETONS.attacks(format, tmp_path / "in"))
    assert len(attacks) > 5
    holdall.save(tmp_path / "plain", TENSORS, format=format)
    for target in TARGETS:  # so that imports are not counted
        holdall.convert(tmp_path / "plain", tmp_path / f"plain.{target}", format=target)
    before = {path for path in tmp_path.rglob("*") if (tmp_path / "out") not in path.parents}
    for what, outcome in run_isolated(convert_all, attacks, tmp_path / "out", memory=4096 * MIB):
        assert outcome.cost.seconds < 2, (what, outcome.cost)
        assert outcome.cost.peak_bytes < 100 * MIB, (what, outcome.cost.peak_bytes >> 20)
    assert {path for path in tmp_path.rglob("*") if (tmp_path / "out") not in path.parents} == before
