"""The plan of the house as data: rooms from the ground up, and what the modules of the package import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[2] / "src" / "holdall"

# From the ground up: a room imports from itself and from rooms before it.
ROOMS = (
    *("base", "binary", "source", "model", "sink", "quant", "format", "packed", "recipes"),
    *("operations", "profiles", "params", "runtime", "report", "viewer", "fronts", "cli", "testing"),
)

# The modules that users import lie in the root; each counts as part of a room.
ROOT_MODULES = {
    "__init__": "fronts",
    "__main__": "cli",
    "errors": "base",
    "limits": "base",
    "plugin": "format",
    "numpy": "fronts",
    "torch": "fronts",
    "transformers": "fronts",
    "jax": "fronts",
    "oinf": "fronts",
}

# The one way up: a tensor becomes a torch tensor by its own method.
SHORTCUT = ("holdall.model.tensor", "holdall.torch")

# Formats whose members are files of another format.
MADE_OF = {"aeroset": "aero", "hf": "safetensors"}


class Import(NamedTuple):
    """One import, wherever in the module it stands: at its head, inside a function, or for type checkers alone."""

    importer: str
    imported: str
    line: int


@cache
def modules() -> dict[str, Path]:
    """The file of every module, by dotted name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


@cache
def imports() -> list[Import]:
    """Every import of one holdall module by another."""
    # The package itself only lists names, which it imports when they are asked for.
    return [found for name, path in sorted(modules().items()) if name != "holdall" for found in _imports_of(name, path)]


def _imports_of(name: str, path: Path) -> Iterator[Import]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "holdall":
                    yield Import(name, alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: imports are absolute"
            if node.module and node.module.split(".")[0] == "holdall":
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    yield Import(name, inner if inner in modules() else node.module, node.lineno)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_late":
            module, function = (ast.literal_eval(argument) for argument in node.args)
            assert hasattr(import_module(module), function), f"{name}:{node.lineno}: {module} has no {function}"
            yield Import(name, module, node.lineno)


def room_of(module: str) -> str:
    """The room that a module is part of."""
    parts = module.split(".")
    if len(parts) == 1:
        return ROOT_MODULES["__init__"]
    return ROOT_MODULES.get(parts[1], parts[1])
