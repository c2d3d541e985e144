"""Every format into every other and back: the zoo, the golden files, and the page of the results."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import matrix

from holdall.operations.round_trip import round_trip
from tests.golden import golden_files

# The folders of the golden corpus by format, and the suffixes of their files.
GOLDEN = {"oinf": "*.oinf", "embd": "*.weights", "gptrs": "*.bin", "mcf": "*.mcf", "aero": "*.aero"}

# Files that do not come back byte for byte, with the reason. There are none: a skeleton restores also what a
# canonical writer would not write.
EXCEPTIONS: dict[tuple[str, str], str] = {}


HUBS = ("safetensors", "aero", "gguf", "oinf")


@pytest.mark.parametrize(("folder", "hub"), [(folder, hub) for folder in GOLDEN for hub in HUBS if hub != folder])
def test_golden_files_come_back_byte_for_byte(folder: str, hub: str, tmp_path: Path) -> None:
    files = golden_files(folder, GOLDEN[folder])
    assert len(files) > 10
    changed = []
    for number, path in enumerate(files):
        scratch = tmp_path / str(number)
        scratch.mkdir()
        trip = round_trip(path, hub, scratch)
        if not trip.exact and (folder, path.name) not in EXCEPTIONS:
            changed.append(path.name)
    assert changed == []


@pytest.mark.long
def test_the_zoo_comes_back_and_the_page_says_so() -> None:
    page = matrix.page()
    assert "inexact" not in page
    written = Path(__file__).resolve().parent.parent.parent / "docs" / "conversions.md"
    assert written.read_text() == page, "make it again: python -m tools.matrix > docs/conversions.md"
