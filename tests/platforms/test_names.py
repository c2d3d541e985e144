"""The lists of missing names agree with typeshed, which others keep: it comes with mypy."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.platforms.names import macos_lacks, windows_lacks

# Later versions have some: preadv and pwritev need macOS 11; on Windows get_blocking needs Python 3.12, fchmod 3.13;
# on macOS waitid needs 3.13. typeshed does not say of the others which systems have them, or imports them only for its
# own use. All count as missing, so that holdall does without them.
NOT_RELIED_ON = {
    "preadv", "pwritev", "sched_param", "F_GETLEASE", "F_SETLEASE", "F_OFD_GETLK", "F_OFD_SETLK", "F_OFD_SETLKW",
    "GenericAlias", "Mapping", "MutableMapping", "P_NOWAITO", "get_blocking", "set_blocking", "fchmod",
    "reload_environ", "process_cpu_count", "waitid", "waitid_result",
}  # fmt: skip
# Hundreds of protocols and options, none of which has to do with files: only some are taken away.
SAMPLED = {"socket"}


def read_stub(module: str) -> list[ast.stmt]:
    root = find_spec("mypy").submodule_search_locations[0]
    stdlib = Path(root, "typeshed", "stdlib")
    path = stdlib / f"{module}.pyi"
    return ast.parse((path if path.exists() else stdlib / module / "__init__.pyi").read_text()).body


def collect_names(body: list[ast.stmt], system: str) -> set[str]:
    """The names that a stub defines where ``sys.platform`` is ``system``, for the Python that runs."""
    names: set[str] = set()
    for node in body:
        match node:
            case ast.If(test=test):
                known = SimpleNamespace(platform=system, version_info=sys.version_info)
                holds = eval(compile(ast.Expression(test), "stub", "eval"), {"sys": known})
                names |= collect_names(node.body if holds else node.orelse, system)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.ImportFrom(module=module, names=[ast.alias(name="*")]):
                names |= collect_names(read_stub(module), system)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {alias.asname or alias.name for alias in aliases}
    return names


@pytest.mark.parametrize(("system", "lacks"), [("darwin", macos_lacks()), ("win32", windows_lacks())])
def test_the_lists_agree_with_typeshed(system: str, lacks: dict[str, list[str]]) -> None:
    for module, listed in lacks.items():
        here, there = (collect_names(read_stub(module), name) for name in ("linux", system))
        assert len(here) > 3, module
        missing = {*dir(import_module(module))} & here - there
        missing = {name for name in missing if name == "_exit" or not name.startswith("_")}
        assert module in SAMPLED or missing - {*listed} == set(), f"{module}: {system} has none of these"
        assert {*listed} & there - NOT_RELIED_ON == set(), f"{module}: {system} has these"
