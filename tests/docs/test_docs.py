"""The documentation keeps its word: docstring examples run, README code runs, links lead somewhere."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import re
from pathlib import Path

import pytest

import holdall

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "tests" / "README.md"]
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(holdall.__path__, "holdall.")
    if not module.name.endswith(("_native", "__main__", "platform.macos", "platform.windows"))  # of other systems
)


@pytest.mark.parametrize("name", ["holdall", *MODULES])
def test_docstring_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and not error.name.startswith("holdall"):
            pytest.skip(f"needs the extra {error.name}")
        raise
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", ["README.md", "docs/converting.md", "docs/tokenizers.md"])
def test_code_on_pages_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), {})


def test_pages_do_not_name_a_machine() -> None:
    home = os.fspath(ROOT.parent) + "/"
    for page in PAGES:
        assert home not in page.read_text(), page


def test_the_readme_and_the_page_of_platforms_agree_on_what_was_run() -> None:
    section = (ROOT / "README.md").read_text().partition("## Where it was run")[2].partition("\n## ")[0]
    said = dict(re.findall(r"^- \*\*(.+?)\*\*: ((?:.|\n  )+)", section, re.MULTILINE))
    table = (ROOT / "docs" / "platforms.md").read_text().partition("## What was run")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    systems: dict[str, str] = {}
    for system, *cells in rows:
        name, _, python = system.strip().partition(", ")
        systems[name] = systems.get(name, "") + " ".join([python, *cells])
    assert list(said) == list(systems)
    for name, text in said.items():
        for word in ("simulated", "emulator"):
            assert (word in text) == (word in systems[name]), f"{name}: {word}"
        for version in re.findall(r"3\.\d+", text):
            assert version in systems[name], f"{name}: {version}"
