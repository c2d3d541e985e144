"""Only base/platform knows the operating system, so that another platform is one module and not a search."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house.rooms import modules
from tests.platforms.names import WINDOWS_LACKS_MODULES, lacking_somewhere

HOME = "holdall.base.platform"
MODULES = {*WINDOWS_LACKS_MODULES, "msvcrt", "nt", "winreg", "_winapi", "ctypes"}
LACKING = lacking_somewhere()
# Names that every system has, with another meaning on each.
LACKING["os"] |= {"name", "open", "replace", "rename", "renames", "link", "fsync", "cpu_count", "process_cpu_count"}
LACKING["os"] |= {"O_RDONLY", "O_WRONLY", "O_RDWR", "O_CREAT", "O_EXCL", "O_TRUNC", "O_APPEND"}
LACKING["mmap"] |= {"ACCESS_READ", "ACCESS_WRITE", "ACCESS_COPY"}
LACKING["sys"] = {"platform", "getwindowsversion", "abiflags"}
# What only Windows has.
LACKING["os"] |= {"O_BINARY", "O_NOINHERIT", "O_TEMPORARY", "startfile", "add_dll_directory"}
LACKING["signal"] |= {"SIGBREAK", "CTRL_C_EVENT", "CTRL_BREAK_EVENT"}
ATTRIBUTES = {"st_reparse_tag", "st_file_attributes", "winerror"}
KEYWORDS = {"dir_fd", "src_dir_fd", "dst_dir_fd", "trackfd", "tagname"}


def system_names(tree: ast.AST) -> Iterator[str]:
    """What a module mentions that not every system has, or that means something else elsewhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module.split(".")[0] in MODULES:
                yield node.module
            yield from (f"{node.module}.{a.name}" for a in node.names if a.name in LACKING.get(node.module, ()))
        elif isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.attr in LACKING.get(node.value.id, ()):
                yield f"{node.value.id}.{node.attr}"
            if node.attr in ATTRIBUTES:
                yield node.attr
        elif isinstance(node, ast.keyword) and node.arg in KEYWORDS:
            yield node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "/proc/" in node.value:
            yield node.value


def test_only_one_package_knows_the_operating_system():
    for name, path in modules().items():
        found = sorted(set(system_names(ast.parse(path.read_text()))))
        parts = ("posix", "linux", "macos", "windows", "open_descriptor", "c_library")
        if name in (HOME, *(f"{HOME}.{part}" for part in parts)):
            assert found, f"{name} knows no system"
        else:
            assert not found, f"{name} mentions {', '.join(found)}"


@pytest.mark.parametrize(
    "code",
    [
        "import fcntl", "from msvcrt import locking", "import ctypes.wintypes", "os.name == 'nt'",
        "from os import fork",
        "sys.platform", "signal.SIGHUP", "signal.SIGALRM", "signal.SIGBREAK", "os.geteuid()", "os.preadv", "os.pwrite",
        "os.copy_file_range", "os.sched_getaffinity(0)", "os.O_CLOEXEC", "os.replace(a, b)", "os.fchmod", "os.mkfifo",
        "mmap.MAP_PRIVATE", "mmap.mmap(1, 2, trackfd=False)", "os.stat(p, dir_fd=3)", "open('/proc/self/maps')",
        "select.poll()", "status.st_reparse_tag", "socket.AF_PACKET",
    ],
)  # fmt: skip
def test_each_is_noticed(code):
    assert list(system_names(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    ["os.fspath(p)", "os.close(fd)", "os.environ", "signal.SIGINT", "mmap.mmap(1, 2)", "sys.maxsize", "os.fstat(1)"],
)
def test_what_every_system_has_is_allowed(code):
    assert not list(system_names(ast.parse(code)))
