"""Fills in which test shows each requirement that a format's document makes.

``python -m tools.requirements`` rewrites the tables at the end of docs/formats/*.md. The first two columns, id and
requirement, are written by hand and nowhere else. The third is made from the tests that are marked with
``@pytest.mark.shows("O01", "O02")``; where no test can show a requirement it begins with ``decision:``, by hand too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DECISION", "PAGES", "Row", "Shown", "fill_in", "find_shown", "rows_of"]

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "docs" / "formats" / f"{name}.md" for name in ("oinf", "embd", "gptrs", "mcf", "aero", "aeroset")]
DECISION = "decision: "
_TABLE = re.compile(r"(?<=<!-- made by python -m tools\.requirements: begin -->\n).*?(?=<!-- end -->)", re.DOTALL)
_HEAD = "| id | the document asks for | shown by |\n|---|---|---|\n"


@dataclass(frozen=True, slots=True)
class Row:
    """One requirement: its id, its text, and the third column as the page has it."""

    id: str
    text: str
    shown: str

    def __str__(self) -> str:
        return f"| {self.id} | {self.text} | {self.shown} |\n"


@dataclass(frozen=True, slots=True, order=True)
class Shown:
    """A test, and where it is."""

    path: str
    test: str

    def link(self) -> str:
        """The test as a link from a page of docs/formats."""
        return f"[{self.test.removeprefix('test_').replace('_', ' ')}](../../{self.path})"


def rows_of(page: str) -> list[Row]:
    """The requirements in the table of a page.

    >>> text = "<!-- made by python -m tools.requirements: begin -->\\n| O01 | one file | a test |\\n<!-- end -->"
    >>> rows_of(text)
    [Row(id='O01', text='one file', shown='a test')]
    """
    found = _TABLE.search(page)
    if found is None:
        return []
    cells = ([cell.strip() for cell in line.strip("|").split(" |")] for line in found[0].splitlines())
    return [Row(*row) for row in cells if re.fullmatch(r"[A-Z]\d\d", row[0])]


def find_shown(folder: Path) -> dict[str, list[Shown]]:
    """The tests below a folder by the requirements that they are marked with."""
    found: dict[str, list[Shown]] = {}
    for path in sorted(folder.rglob("test_*.py")):
        text = path.read_text()
        if "mark.shows(" not in text:
            continue
        place = path.relative_to(ROOT).as_posix()
        for test, key in _marks(ast.parse(text)):
            found.setdefault(key, []).append(Shown(place, test))
    return found


def _marks(module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.shows":
                    yield from ((node.name, str(ast.literal_eval(argument))) for argument in mark.args)


def fill_in(page: str, shown: dict[str, list[Shown]]) -> str:
    """The page with its third column made anew; a decision stays as long as no test shows the requirement."""
    rows = []
    for row in rows_of(page):
        links = ", ".join(test.link() for test in shown.get(row.id, ()))
        rows.append(Row(row.id, row.text, links or (row.shown if row.shown.startswith(DECISION) else "")))
    return _TABLE.sub(lambda _: _HEAD + "".join(map(str, rows)), page)


if __name__ == "__main__":
    tests = find_shown(ROOT / "tests")
    for path in PAGES:
        path.write_text(fill_in(path.read_text(), tests))
        print(path.name, sum(not row.shown for row in rows_of(path.read_text())), "open")
