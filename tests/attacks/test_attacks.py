"""Every family of attacks in every format that it can be made in."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

import holdall
from holdall.format import registry
from holdall.testing.isolation import run_isolated
from tests.attacks.files import aeroset, good, hf_folder
from tests.attacks.kit import FAMILIES, MIB, late, trial

for _module in ("numbers", "claims", "layouts", "documents", "pickles", "records", "paths", "names", "skeletons"):
    import_module(f"tests.attacks.{_module}")

MANY = {("records", "torch")}  # a hundred files of a megabyte
PAIRS = [
    pytest.param(name, format, marks=pytest.mark.long if (name, format) in MANY else ())
    for name, each in FAMILIES.items()
    for format in registry.names()
    if each.covers(format)
]


@pytest.mark.parametrize(("name", "format"), PAIRS)
def test_an_attack_comes_to_what_it_must(name: str, format: str, tmp_path: Path) -> None:
    attacks = list(FAMILIES[name].attacks(format, tmp_path))
    assert attacks, "a builder that builds nothing"
    outcomes = run_isolated(trial, attacks, format, memory=400 * MIB, seconds=120)
    wrong = [late(attack, each) for attack, pair in zip(attacks, outcomes, strict=True) for each in pair]
    assert not any(wrong), "\n".join(filter(None, wrong))
    assert not (tmp_path / "canary").exists(), "code of a file was run"


@pytest.mark.parametrize("name", FAMILIES)
def test_every_format_is_tried_or_spared_for_a_reason(name: str) -> None:
    found = FAMILIES[name]
    for format in registry.names():
        assert found.covers(format) != (format in found.spared), (
            f"{name}: {format} is neither tried nor spared, or both"
        )


@pytest.mark.parametrize("format", registry.names())
def test_the_files_that_attacks_are_made_of_are_good(format: str, tmp_path: Path) -> None:
    what = {"hf": lambda: hf_folder(tmp_path, good("safetensors")), "aeroset": lambda: aeroset(tmp_path, good("aero"))}
    report = holdall.verify(what.get(format, lambda: good(format))(), level="full")
    assert (report.ok, report.format) == (True, format), report.findings
