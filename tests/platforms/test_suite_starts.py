"""The suite itself can start on Windows: what its modules do when they are imported exists there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests import conftest
from tests.platforms.names import WINDOWS_LACKS_MODULES, windows_lacks

TESTS = Path(__file__).parents[1]
LACKS = {(module, name) for module, names in windows_lacks().items() for name in names}


def list_executed(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that are executed when a module is imported: without the bodies of functions."""
    yield node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        inner = [*node.decorator_list, *node.args.defaults]
    elif isinstance(node, ast.Lambda):
        inner = []
    else:
        inner = list(ast.iter_child_nodes(node))
    for child in inner:
        yield from list_executed(child)


def find_missing(path: Path) -> list[str]:
    """What a module of tests needs at once and Windows lacks."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = {name.value for name in ast.walk(tree) if isinstance(name, ast.Constant) and isinstance(name.value, str)}
    found = []
    for node in list_executed(tree):
        match node:
            case ast.Import(names=names):
                found += [each.name for each in names if each.name in WINDOWS_LACKS_MODULES]
            case ast.ImportFrom(module=module) if module in WINDOWS_LACKS_MODULES:
                found.append(module)
            case ast.Attribute(value=ast.Name(id=module), attr=name) if (module, name) in LACKS:
                found += [] if name in guarded else [f"{module}.{name}"]  # hasattr(module, "name") asks before
    return found


def test_every_module_can_be_imported_or_is_left_out_on_windows() -> None:
    missing = {path.relative_to(TESTS).as_posix(): find_missing(path) for path in sorted(TESTS.rglob("*.py"))}
    assert {name for name, found in missing.items() if found} == set(conftest.NEEDS_POSIX)
