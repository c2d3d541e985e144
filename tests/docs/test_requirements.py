"""The pages of the formats name a test, or a decision, for everything that the formats' documents ask for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.requirements import DECISION, PAGES, ROOT, fill_in, find_shown, rows_of

ROWS = [row for page in PAGES for row in rows_of(page.read_text())]
IDS = {row.id for row in ROWS}
LIST = Path(__file__).with_name("requirements.md")


@pytest.fixture(scope="module")
def shown():
    return find_shown(ROOT / "tests")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_table_of_a_page_is_current(page: Path, shown):
    text = page.read_text()
    assert rows_of(text)
    assert fill_in(text, shown) == text, "run python -m tools.requirements"


def test_a_test_or_a_decision_with_its_reason_answers_every_requirement(shown):
    assert [row.id for row in ROWS if not row.shown] == []
    decided = [row for row in ROWS if row.shown.startswith(DECISION)]
    assert all(len(row.shown.split()) > 5 for row in decided)
    assert {row.id for row in decided} & set(shown) == set()


def test_no_test_shows_a_requirement_that_no_page_has(shown):
    assert len(ROWS) == len(IDS)
    assert set(shown) <= IDS


def test_a_decision_stays_and_a_test_takes_its_place(shown):
    begin = "<!-- made by python -m tools.requirements: begin -->\n"
    page = f"{begin}| Z98 | a | decision: b |\n| Z99 | c | old |\n<!-- end -->"
    assert [row.shown for row in rows_of(fill_in(page, {}))] == ["decision: b", ""]
    (test, *_) = shown["O01"]
    assert [row.shown for row in rows_of(fill_in(page, {"Z98": [test], "Z99": [test]}))] == [test.link()] * 2


def test_the_rows_are_those_of_the_list():
    listed = dict(re.findall(r"^\| ([A-Z]\d\d) \| (.*) \|$", LIST.read_text(), re.MULTILINE))
    assert len(listed) > 250
    assert [row.id for row in ROWS if row.id not in listed] == [key for key in listed if key not in IDS] == []
    assert [row.id for row in ROWS if not is_shortened(row.text, listed[row.id])] == []


def is_shortened(text: str, listed: str) -> bool:
    """Whether a row has the words of the list in their order; it may leave some out, and adds none."""
    words = iter(re.findall(r"\w+", listed))
    return all(word in words for word in re.findall(r"\w+", text))
