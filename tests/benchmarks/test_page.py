"""The page and the README say what the record says; what people wrote on them stays."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import pytest
from bench import notes, page, plots, record
from bench.cases import TOPICS
from bench.content import FORMATS, HASHES
from bench.work import ROOT

from tests.benchmarks.examples import RECORD


def test_a_record_is_read_as_it_was_written(tmp_path):
    record.write(RECORD, tmp_path / "record.json")
    assert record.read(tmp_path / "record.json") == RECORD


def test_the_page_has_figures_bars_and_reasons(monkeypatch):
    assert "Why has not been found out yet." in page.generate(RECORD)
    monkeypatch.setitem(notes.NOTES, ("read", "1 GB", "oinf"), "The other half is spent waiting.")
    made = page.generate(RECORD)
    assert "3 of 4 bars hold." in made
    assert "| holdall: oinf | 2 × the speed of other | ≥ 3 |\n\nThe other half is spent waiting." in made
    assert made.index("2 × the speed of other") < made.index("plots/read-size.svg") < made.index("## All bars")
    assert "| holdall: oinf | 2 × the speed of other | ≥ 3 | **0 of 1** |" in made
    assert "| holdall: oinf | 50 MB resident | < 60 MB | 1 of 1 |" in made
    assert "Read 1 GB \\| all" in made  # a bar of the table is not one of a name
    assert "- this" in made
    assert "plots/read-size.svg" in made


def test_the_readme_has_the_bars_nearest_to_failing(monkeypatch):
    monkeypatch.setattr(page, "README_ROWS", (("read", "1 GB", "oinf", "other"), ("read", "1 GB", "oinf", "")))
    made = page.readme(RECORD)
    assert "| Read 1 GB \\| all | holdall: oinf (the worst of 2) | 2 × the speed of other | ≥ 3 |" in made
    assert "| Read 1 GB \\| all | holdall: oinf | 1 s | < 2 s |" in made
    assert "3 of 4 bars hold in the run of 2025-01-02 on Some CPU, 2 cores, 16 GB of memory, Python 3.11.0" in made


def test_the_page_names_the_topics_that_were_measured_apart():
    (result,) = RECORD.results
    other = replace(result, topic="save", apart="on 2025-03-04, on another machine")
    mixed = replace(RECORD, results=[result, other, replace(other, title="more")])
    assert "Measured apart from that run, on 2025-03-04, on another machine: “Saving”.\n" in page.generate(mixed)
    assert "with what was measured apart" in page.readme(mixed)
    assert "apart" not in page.generate(RECORD) + page.readme(RECORD)


def test_the_readme_has_no_figures_of_a_quick_run():
    assert page.readme(replace(RECORD, quick=True)) == page.UNMEASURED
    assert "say little" in page.generate(replace(RECORD, quick=True))


def test_only_what_is_between_the_marks_changes():
    text = f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n"
    assert page.fill(text, "new") == f"before\n{page.BEGIN}\n\nnew\n\n{page.END}\nafter\n"
    with pytest.raises(ValueError, match="no <!--"):
        page.fill("nothing", "new")


def test_a_page_elsewhere_leaves_the_project_alone(tmp_path):
    page.write(RECORD, tmp_path)
    assert "3 of 4 bars hold." in (tmp_path / "docs/benchmarks.md").read_text()
    assert (tmp_path / "docs/plots/read-size.svg").read_text() == plots.draw_all(RECORD)["read-size"]
    assert not (tmp_path / "README.md").exists()


def test_every_topic_has_cases():
    modules = {path.stem for path in (ROOT / "bench" / "cases").glob("*.py")} - {"__init__"}
    assert modules == set(TOPICS)
    for topic in TOPICS:
        assert hasattr(import_module(f"bench.cases.{topic}"), "cases")


def test_every_format_is_measured():
    from holdall.format import registry

    assert set(FORMATS) == {row.name for row in registry.BUILT_IN}
    assert set(HASHES) < set(FORMATS)


# -- what is kept in the project --------------------------------------------------------------------------------------


def kept() -> record.Record:
    return record.read(page.RECORD)


def test_the_record_is_of_all_topics_and_says_what_it_ran_on():
    assert {result.topic for result in kept().results} <= set(TOPICS)
    assert {"CPU", "cores", "memory", "system", "file system", "Python"} == set(kept().machine)


def test_the_page_is_made_from_the_record():
    text = page.PAGE.read_text()
    assert page.fill(text, page.generate(kept())) == text


def test_the_plots_are_made_from_the_record():
    folder = ROOT / "docs" / "plots"
    drawn = plots.draw_all(kept())
    assert {path.stem for path in folder.glob("*.svg")} == set(drawn)
    for name, text in drawn.items():
        assert (folder / f"{name}.svg").read_text() == text, name


def test_the_readme_is_made_from_the_record():
    text = (ROOT / "README.md").read_text()
    assert page.fill(text, page.readme(kept())) == text
