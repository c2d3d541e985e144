"""Runs pytest with a holdall that sees only what Python has on another system.

    python -m tests.platforms.reduced windows tests/sink -k folder

Modules of holdall that import os, signal, mmap and others get stand-ins without the names that the system lacks; Python
itself, pytest and the tests keep theirs. Paths stay those of Linux. For Windows, files that are open cannot be renamed,
replaced or removed, folders cannot be opened, and links carry reparse tags.
"""

from __future__ import annotations

import builtins
import errno
import mmap
import os
import pathlib
import shutil
import stat
import sys
import threading
from collections.abc import Callable, Iterable
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.platforms.names import WINDOWS_LACKS_MODULES, macos_lacks, windows_lacks

_plain_import = builtins.__import__


class StandIn(ModuleType):
    """A module without ``lacks`` and with ``has``; everything else is looked up in ``real`` at each use."""

    def __init__(self, real: ModuleType, lacks: Iterable[str] = (), has: dict[str, Any] | None = None) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(_real=real, _lacks=frozenset(lacks), _has=has or {})

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        inside = super().__getattribute__("__dict__")
        if name in inside["_has"]:
            return inside["_has"][name]
        if name in inside["_lacks"]:
            raise AttributeError(f"module {inside['_real'].__name__!r} has no attribute {name!r}")
        return getattr(inside["_real"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_real"], name, value)


# -- macOS ------------------------------------------------------------------------------------------------------------

FULL_SYNC = 51
full_syncs: list[int] = []  # descriptors that were synced in macOS's way


def make_macos() -> dict[str, ModuleType]:
    """The modules as they are on macOS."""
    import fcntl

    def control(fd: int, command: int, *more: Any) -> Any:
        if command != FULL_SYNC:
            return fcntl.fcntl(fd, command, *more)
        full_syncs.append(fd)
        return os.fsync(fd)

    has: dict[str, dict[str, Any]] = {"fcntl": {"F_FULLFSYNC": FULL_SYNC, "fcntl": control}}
    found: dict[str, ModuleType] = {
        module: StandIn(_plain_import(module), names, has.get(module)) for module, names in macos_lacks().items()
    }
    found["sys"] = StandIn(sys, (), {"platform": "darwin"})
    return found


# -- Windows ----------------------------------------------------------------------------------------------------------

SYMLINK_TAG = 0xA000000C
# Windows looks whether a file is open and removes it in one step, in which no other thread opens it.
_one_step = threading.RLock()


def is_open(path: Any) -> bool:
    """Whether this process has the file, or one in the folder, open or mapped."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    if stat.S_ISLNK(status.st_mode):
        return False
    inside = os.path.realpath(path) + "/" if stat.S_ISDIR(status.st_mode) else None
    for name in os.listdir("/proc/self/fd"):
        try:
            where = os.stat(f"/proc/self/fd/{name}")
            if os.path.samestat(where, status) and inside is None:
                return True
            if inside is not None and os.readlink(f"/proc/self/fd/{name}").startswith(inside):
                return True
        except OSError:  # closed since
            continue
    key = f" {status.st_ino} "
    with open("/proc/self/maps") as maps:
        return any(inside in line if inside is not None else key in line for line in maps)


def refuse_open(function: Callable[..., Any], *places: int) -> Callable[..., Any]:
    """``function`` with PermissionError where an argument at one of ``places`` is the name of an open file."""

    def refusing(*arguments: Any, **named: Any) -> Any:
        with _one_step:
            for place in places:
                if is_open(arguments[place]):
                    what = "The process cannot access the file because it is being used by another process"
                    raise PermissionError(errno.EACCES, what, os.fspath(arguments[place]))
            return function(*arguments, **named)

    return refusing


def open_file(path: Any, flags: int, mode: int = 0o777) -> int:
    """os.open, which takes no folders and no dir_fd."""
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
    with _one_step:
        fd = os.open(path, flags & 0xFFFF, mode)
    os.set_inheritable(fd, not flags & NO_INHERIT)
    return fd


BINARY, NO_INHERIT = 1 << 20, 1 << 21


def tagged(status: os.stat_result) -> Any:
    """What lstat gives, with the tag that Windows gives to links."""
    names = [name for name in dir(status) if name.startswith("st_")]
    tag = SYMLINK_TAG if stat.S_ISLNK(status.st_mode) else 0
    return SimpleNamespace(**{name: getattr(status, name) for name in names}, st_reparse_tag=tag)


def rename(path: Any, target: Any) -> None:
    """os.rename, which replaces nothing."""
    with _one_step:
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(target))
        refuse_open(os.rename, 0)(path, target)


def replace(path: Any, target: Any) -> None:
    """os.replace, which replaces no folders."""
    if os.path.isdir(target):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(target))
    refuse_open(os.replace, 0, 1)(path, target)


class Map(mmap.mmap):
    """A map with the arguments that Windows has."""

    def __new__(cls, fileno: int, length: int, tagname: None = None, access: int = 0, offset: int = 0) -> Map:
        return super().__new__(cls, fileno, length, access=access, offset=offset)


class Kernel:
    """kernel32, as far as the memory of a process goes."""

    class _Call(SimpleNamespace):
        def __call__(self, *arguments: Any) -> Any:
            return self.call(*arguments)

    def __init__(self, name: str, use_last_error: bool = False) -> None:
        assert name == "kernel32"
        self.GetCurrentProcess = self._Call(call=lambda: -1)
        self.K32GetProcessMemoryInfo = self._Call(call=self._fill)

    @staticmethod
    def _fill(process: int, counters: Any, size: int) -> int:
        with open("/proc/self/status") as lines:
            fields = dict(line.split(":", 1) for line in lines)
        counters._obj.words[0], counters._obj.words[1] = (
            int(fields[name].split()[0]) * 1024 for name in ("VmHWM", "VmRSS")
        )
        return 1


def make_windows() -> dict[str, ModuleType]:
    """The modules as they are on Windows."""
    import ctypes
    import signal

    changed = {
        "replace": replace,
        "rename": rename,
        "unlink": refuse_open(lambda path: os.unlink(path), 0),
        "remove": refuse_open(lambda path: os.remove(path), 0),
    }
    only = {
        "name": "nt",
        "O_BINARY": BINARY,
        "O_NOINHERIT": NO_INHERIT,
        "open": open_file,
        "lstat": lambda path: tagged(os.lstat(path)),
        **{name: frozenset() for name in ("supports_dir_fd", "supports_fd", "supports_follow_symlinks")},
    }
    has: dict[str, dict[str, Any]] = {
        "os": {**changed, **only},
        "signal": {"SIGBREAK": signal.SIGQUIT},
        "mmap": {"mmap": Map},
    }
    found: dict[str, ModuleType] = {
        module: StandIn(_plain_import(module), names, has.get(module)) for module, names in windows_lacks().items()
    }
    found["sys"] = StandIn(sys, (), {"platform": "win32"})
    found["ctypes"] = StandIn(ctypes, (), {"WinDLL": Kernel, "get_last_error": lambda: 0, "WinError": OSError})
    # Their removals and renames meet the same obstacles. Python 3.13 has the code of pathlib one module below.
    for module in (sys.modules[pathlib.Path.__module__], getattr(pathlib, "_local", pathlib), shutil):
        vars(module)["os"] = StandIn(os, (), changed)
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    if hasattr(shutil, "_rmtree_impl"):  # from Python 3.14 on it is chosen once
        shutil._rmtree_impl = shutil._rmtree_unsafe  # type: ignore[attr-defined]
    return found


def install(system: str) -> None:
    """Give all modules of holdall the stand-ins of ``system``, and print what it lacks."""
    assert not any(name.partition(".")[0] == "holdall" for name in sys.modules), "holdall is imported already"
    modules = make_macos() if system == "macos" else make_windows()
    missing = () if system == "macos" else WINDOWS_LACKS_MODULES

    def reduced(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if (globals or {}).get("__name__", "").partition(".")[0] == "holdall":
            if name in missing:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            if name in modules:
                return modules[name]
        return _plain_import(name, globals, locals, fromlist, level)

    builtins.__import__ = reduced
    print(f"without the modules {', '.join(missing) or 'none'}")
    for module, names in (macos_lacks() if system == "macos" else windows_lacks()).items():
        print(f"without {len(names)} names of {module}: {' '.join(names)}")


def main() -> int:
    """Run pytest with the arguments after the name of the system."""
    install(sys.argv[1])
    import pytest

    return int(pytest.main(sys.argv[2:]))


if __name__ == "__main__":
    # pytest and the tests import this module by its name: there must be one of it only.
    sys.modules["tests.platforms.reduced"] = sys.modules["__main__"]
    sys.exit(main())
