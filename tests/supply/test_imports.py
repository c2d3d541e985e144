"""Importing holdall does nothing: no process, no socket, no file written, no code from an environment variable."""

from __future__ import annotations

import pkgutil
import re

import pytest

import holdall
from tests.supply.watch import SRC, events

MODULES = [
    found.name
    for found in pkgutil.walk_packages(holdall.__path__, "holdall.")
    if not found.name.startswith("holdall.testing")  # needs packages of the development environment
    and found.name != "holdall.__main__"  # a program
    and not re.match(r"holdall\.base\.platform\.(macos|windows)", found.name)  # of other systems
]


def test_importing_holdall_does_nothing():
    assert events("import holdall") == []


def test_importing_every_module_does_nothing():
    """But for what urllib3 does: it looks for IPv6 by binding a port of the machine itself, and sends nothing."""
    assert len(MODULES) > 100
    probe = [["network", "socket.__new__"], ["network", "socket.bind"]]
    told = events(f"import importlib\nfor name in {MODULES!r}:\n    importlib.import_module(name)")
    assert told in ([], probe)


def test_no_variable_of_the_environment_is_code(tmp_path):
    """Whatever a variable of ours says, nothing that it names is imported, compiled or run."""
    (tmp_path / "evil.py").write_text("raise SystemExit('evil')\n")
    texts = (path.read_text(encoding="utf-8") for path in SRC.rglob("holdall/**/*.py"))
    names = {name for text in texts for name in re.findall(r'"(HOLDALL_[A-Z_]+)"', text)}
    assert "HOLDALL_NATIVE" in names
    for value in ("evil", "evil:main", "__import__('evil')"):
        code = f"import importlib, sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
        code += f"for name in {MODULES!r}:\n    importlib.import_module(name)\n"
        code += "import holdall\nholdall.formats()\nholdall.verify(b'OINF')\n"
        told = events(code, "imports", "code", **dict.fromkeys(names, value))
        assert len(told) > 100
        assert not [event for event in told if "evil" in str(event[1])]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("open('written', 'w')", "write"),
        ("import os; os.mkdir('made')", "write"),
        ("import socket; socket.socket()", "network"),
        ("import subprocess; subprocess.run(['true'])", "process"),
        ("import os\nif not os.fork(): os._exit(0)", "process"),
    ],
)
def test_the_watch_sees(tmp_path, code, kind):
    assert kind in [event[0] for event in events(f"import os; os.chdir({str(tmp_path)!r})\n{code}")]
