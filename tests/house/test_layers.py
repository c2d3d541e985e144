"""Folders are layers: imports go down only, those inside functions and for type checkers included."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest

import holdall
from tests.house.rooms import MADE_OF, PACKAGE, ROOMS, ROOT_MODULES, SHORTCUT, imports, modules, room_of


def test_every_folder_is_a_room_and_every_room_a_folder():
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders | {"fronts"} == set(ROOMS)


def test_the_root_holds_only_what_users_import():
    found = {path.stem for path in PACKAGE.glob("*.py")}
    assert found == set(ROOT_MODULES)
    assert len(found) <= 10


def test_imports_go_down_only():
    upward = [
        f"{each.importer}:{each.line} imports {each.imported}"
        for each in imports()
        if ROOMS.index(room_of(each.imported)) > ROOMS.index(room_of(each.importer))
        and (each.importer, each.imported) != SHORTCUT
    ]
    assert not upward, "\n".join(upward)


def test_only_the_rooms_above_import_the_package_itself():
    above = ROOMS.index("fronts")
    found = [each for each in imports() if each.imported == "holdall" and ROOMS.index(room_of(each.importer)) < above]
    assert not found


def test_what_the_package_names_lies_below_it():
    homes = {name: home.partition(":")[0] for name, home in holdall._HOMES.items()}
    top = ROOMS.index("fronts")
    assert not [name for name, module in homes.items() if ROOMS.index(room_of(module)) > top]


def test_formats_do_not_import_each_other():
    formats = {path.name for path in (PACKAGE / "format").iterdir() if path.is_dir()} - {"zip", "__pycache__"}
    sideways = []
    for each in imports():
        importer, imported = _format_of(each.importer), _format_of(each.imported)
        if {importer, imported} <= formats and importer != imported and MADE_OF.get(importer) != imported:
            sideways.append(each)
    assert not sideways


def _format_of(module: str) -> str:
    parts = module.split(".")
    return parts[2] if parts[:2] == ["holdall", "format"] and len(parts) > 2 else ""


def test_no_module_imports_itself_over_others():
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for each in imports():
        if (each.importer, each.imported) != SHORTCUT and not _for_types_alone(each.importer, each.line):
            graph[each.importer].add(each.imported)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def _for_types_alone(module: str, line: int) -> bool:
    return any(first <= line <= last for first, last in _blocks_for_types(module))


@cache
def _blocks_for_types(module: str) -> list[tuple[int, int]]:
    tree = ast.parse(modules()[module].read_text())
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return [(node.lineno, node.end_lineno or 0) for node in blocks]


def test_no_module_is_longer_than_400_lines():
    sizes = {name: len(path.read_text().splitlines()) for name, path in modules().items()}
    assert not {name: size for name, size in sizes.items() if size > 400}
