"""A short campaign against every format; `make fuzz FORMAT=... TIME=...` runs longer ones."""

from __future__ import annotations

import pytest

import holdall
from holdall.testing.fuzz import fuzz, seeds


@pytest.mark.parametrize("name", [name for name, found in holdall.formats().items() if found.writes])
def test_a_short_campaign_finds_nothing(name: str) -> None:
    campaign = fuzz(name, seconds=3, seed=1)
    assert campaign.findings == []
    assert campaign.inputs > 20
    assert 0 < campaign.whole < campaign.inputs


def test_seeds_are_small_and_many() -> None:
    assert len(seeds("oinf")) > 10
