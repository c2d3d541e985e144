"""The page that draws the rooms is true: its tree has the folders, in their order, with their modules."""

from __future__ import annotations

import re
from pathlib import Path

from tests.house.rooms import PACKAGE, ROOMS, ROOT_MODULES

PAGE = PACKAGE.parents[1] / "docs" / "architecture.md"


def tree() -> str:
    """The tree of the page."""
    found = re.search(r"```text\n(.*?)```", PAGE.read_text(), re.S)
    assert found is not None
    return found[1]


def drawn() -> dict[str, set[str]]:
    """The rooms of the page from the top down, with the names that stand behind each."""
    found: dict[str, set[str]] = {}
    room = place = ""
    for line in tree().splitlines():
        if match := re.match(r"  (\w+)/ ", line):
            room = place = match[1]
            found[room] = set()
        elif match := re.match(r" {20}(\w+)/: (.*)", line):  # an inner folder with its modules
            place = f"{room}/{match[1]}"
            found[room].add(match[1])
            found[place] = set(match[2].split())
        elif line.startswith(" " * 20):
            found[place].update(line.replace("/", "").split())
    return found


def test_the_page_draws_the_rooms_in_their_order():
    assert [room for room in drawn() if "/" not in room] == [room for room in reversed(ROOMS) if room != "fronts"]


def test_the_page_names_what_each_room_holds():
    for room, names in drawn().items():
        folder = PACKAGE / room
        there = {path.stem for path in folder.glob("*.py")} - {"__init__"}
        there |= {path.name for path in folder.iterdir() if _is_package(path)}
        assert names == there, room


def test_the_page_names_the_modules_of_the_root_and_the_room_of_each():
    named: dict[str, set[str]] = {}
    room = ""
    for line in tree().splitlines()[1:]:
        room = match[1] if (match := re.match(r"  (\w+)/ ", line)) else room
        place = "fronts" if line.startswith("  __init__.py") else room
        named.setdefault(place, set()).update(re.findall(r"(\w+)\.py\b", line))
    rooms = {name: {module for module, at in ROOT_MODULES.items() if at == name} for name in ROOT_MODULES.values()}
    assert {name: modules for name, modules in named.items() if modules} == rooms


def _is_package(path: Path) -> bool:
    return path.is_dir() and (path / "__init__.py").exists()
