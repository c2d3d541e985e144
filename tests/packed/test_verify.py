"""A verification names what is wrong with packed weights in files that are intact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from tests.packed.golden import list_golden, read_golden
from tests.packed.layouts import read_content, write_content


@pytest.mark.parametrize("name", list_golden())
def test_right_models_have_no_findings(name: str) -> None:
    found = holdall.verify(read_golden(name).path, level="strict")
    assert not [each for each in found.findings if each.rule.startswith("packed.")]


def test_a_missing_scale_is_a_warning(tmp_path: Path) -> None:
    content = read_content("fp8-blocks")
    name = content.find("_scale_inv")
    content.drop("_scale_inv")
    path = write_content(content, tmp_path / "m")
    assert not holdall.verify(path, level="structure").findings
    for level in ("full", "strict"):
        (finding,) = [each for each in holdall.verify(path, level=level).findings if "packed" in each.rule]
        assert (finding.rule, finding.severity) == ("packed.fp8.part", "warning")
        assert name in finding.message and finding.hint
    shown = CliRunner().invoke(main, ["verify", str(path)])
    assert shown.exit_code == 0 and "ok: 1 warning" in shown.output and name in shown.output
    facts = json.loads(CliRunner().invoke(main, ["verify", "--json", str(path)]).output)
    assert [each["rule"] for each in facts["findings"]] == ["packed.fp8.part"]


def test_what_may_be_a_layout_of_others_is_a_note(tmp_path: Path) -> None:
    content = read_content("fp8-blocks")
    content.change("_scale_inv", lambda values: values[:1])
    (finding,) = holdall.verify(write_content(content, tmp_path / "m")).findings
    assert (finding.rule, finding.severity) == ("packed.fp8.shape", "note")
