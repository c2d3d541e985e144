"""Every kernel of the extension has a fuzz case, and the cases reach what is behind the checks."""

from __future__ import annotations

import pytest

from tests.native.arguments import CASES
from tests.native.campaign import Campaign, exported, run_turn

native = pytest.importorskip("holdall.binary.kernels._native", reason="the C kernels are not compiled")


def test_every_kernel_has_a_case_and_every_case_a_kernel() -> None:
    assert exported(native) == set(CASES)


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_case_is_mostly_taken_or_refused_with_a_sentence(name: str) -> None:
    campaign = Campaign()
    for turn in range(4):
        run_turn(native, name, turn, 0, campaign)
    assert campaign.findings == []
    assert campaign.inputs[name] / 3 < campaign.taken[name] <= campaign.inputs[name]


def test_the_same_seed_gives_the_same_inputs() -> None:
    one, other = Campaign(), Campaign()
    for campaign in (one, other):
        run_turn(native, "scan", 7, 3, campaign)
    assert one == other
