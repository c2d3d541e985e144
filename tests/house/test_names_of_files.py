"""Names of sources and targets are shown by one function: a URL may hold a password, a name a control character."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house.rooms import modules

ROOMS = (
    "holdall.cli",
    "holdall.report",
    "holdall.sink.destination",
    "holdall.format.registry",
    "holdall.source.remote",
)
ROOMS += ("holdall.operations.edit", "holdall.operations.repair", "holdall.operations.open_save")
ROOMS += (
    "holdall.operations.convert.overwrite",
    "holdall.operations.convert.report",
    "holdall.operations.convert.convert",
)

# What these rooms call the names that users give.
NAMES = {"path", "file", "target", "source", "src", "dst", "out", "output", "original", "filename", "destination"}
NAMES |= {"url", "folder", "address"}
WRAPPERS = {"str", "repr", "clean", "brief", "shorten", "os.fspath", "os.fsdecode", "hide_secrets"}

# An object of Python, not a file.
OTHERS = {"holdall.cli.from_dataclass: target", "holdall.cli.from_dataclass: path"}

# Who may take the secrets out of a URL without showing it: keys of caches, and the values of JSON, which are not cut.
HIDING = {
    "holdall.base.text",
    "holdall.base.urls",
    "holdall.source.remote.stores",
    "holdall.base.url_secrets",
    "holdall.cli.secrets",  # messages that hold what the user typed
    "holdall.model.model",  # names of tensors that the user typed, also where --debug shows the error itself
    "holdall.viewer.export",
    "holdall.cli.opened",  # values of documents
    "holdall.cli.convert",
    "holdall.cli.quantize",
}


def name_of(node: ast.expr) -> str | None:
    """The name that an expression shows, through functions that only change how it is written."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in WRAPPERS and node.args:
        return name_of(node.args[0])
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def shown_by_hand(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The names of files in f-strings that do not come from file_text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FormattedValue) and name_of(node.value) in NAMES:
            yield node.lineno, ast.unparse(node.value)


def test_every_name_of_a_file_comes_from_one_function():
    found, read = [], 0
    for name, path in modules().items():
        if name.startswith(ROOMS):
            read += 1
            found += [f"{name}:{line}: {text}" for line, text in shown_by_hand(ast.parse(path.read_text()))
                      if f"{name}: {text}" not in OTHERS]  # fmt: skip
    assert found == []
    assert read > 30


def test_only_that_function_hides_secrets_for_people():
    users = {name for name, path in modules().items() if "hide_secrets" in path.read_text()}
    assert users == HIDING


@pytest.mark.parametrize(
    "text", ["{path}", "{clean(path)}", "{os.fspath(dst)!r}", "{report.target}", "{str(error.filename)}"]
)
def test_names_by_hand_are_found(text):
    assert list(shown_by_hand(ast.parse(f'f"{text}: is not there"')))
    assert not list(shown_by_hand(ast.parse('f"{file_text(path)}: {name} {file_text(report.target)!r}"')))
