"""The page about packed checkpoints has the table that the tests make."""

from __future__ import annotations

from tools.packed_table import PAGE, fill_in, list_operations

from holdall.packed import SCHEMES
from tests.packed.golden import list_golden, read_golden


def test_the_table_of_the_page_is_current() -> None:
    text = PAGE.read_text()
    assert len(list_operations()) >= 10
    assert fill_in(text) == text, "run python -m tools.packed_table"


def test_there_are_two_models_of_each_scheme_that_is_decoded() -> None:
    models = [read_golden(name).scheme for name in list_golden()]
    assert {scheme.name: models.count(scheme.name) >= 2 for scheme in SCHEMES} == {
        scheme.name: scheme.name != "gguf" for scheme in SCHEMES
    }
