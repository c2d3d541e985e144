"""tests/README.md names every folder of tests, and no other."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_the_page_names_every_folder() -> None:
    page = (TESTS / "README.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|", page, re.M)
    folders = {path.parent.name for path in TESTS.glob("*/__init__.py")}
    assert sorted(rows) == sorted(folders), "each folder has one row"


def test_every_test_lies_in_a_folder() -> None:
    assert [path.name for path in TESTS.glob("test_*.py")] == ["test_public_names.py"]  # the whole package, not a room
    without = {path.parent for path in TESTS.rglob("*.py") if not (path.parent / "__init__.py").exists()}
    assert without == set(), "two files of one name are told apart by their packages"
