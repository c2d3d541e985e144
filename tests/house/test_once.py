"""What is computed once takes no lock: nothing frees that of functools.cached_property after a fork."""

from __future__ import annotations

import ast

from tests.house.rooms import modules


def decorators(tree: ast.AST) -> set[str]:
    """The last name of every decorator of a module."""
    found = set()
    for node in ast.walk(tree):
        for decorator in getattr(node, "decorator_list", ()):
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            found.add(called.attr if isinstance(called, ast.Attribute) else ast.unparse(called))
    return found


def test_nothing_is_a_cached_property():
    seen = {name: decorators(ast.parse(path.read_text())) for name, path in modules().items()}
    assert [name for name, found in seen.items() if "cached_property" in found] == []
    assert sum("computed_once" in found for found in seen.values()) > 5


def test_every_spelling_is_found():
    tree = ast.parse("class A:\n @functools.cached_property\n def f(self): 0\n @cached_property\n def g(self): 0")
    assert decorators(tree) == {"cached_property"}
    assert decorators(ast.parse("@functools.lru_cache(maxsize=1)\ndef f(): 0")) == {"lru_cache"}
