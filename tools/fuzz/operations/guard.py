"""Watches one call: what it raises, prints, takes, leaves open, writes, starts and connects to."""

from __future__ import annotations

import gc
import os
import re
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdall.sink.staging import SUFFIX
from tools.fuzz.findings import SLOW, SPENT
from tools.fuzz.operations.desk import BAIT, Desk, read_tree

__all__ = ["LARGEST_FILE", "Escape", "Guard", "where"]

LARGEST_FILE = 64 << 20  # bytes that a call on 8 KB may write into one file

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# Events of the interpreter with the places of their paths, and of the folders that these are relative to.
_NAMED: dict[str, tuple[tuple[int, int], ...]] = {
    "os.mkdir": ((0, 2),), "os.rmdir": ((0, 1),), "os.remove": ((0, 1),), "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),), "os.symlink": ((1, 2),), "os.truncate": ((0, -1),), "os.chmod": ((0, 2),),
}  # fmt: skip
_SECRET = "/etc/passwd"  # what hostile names lead to; see tools.fuzz.trees.TEXTS
_FORBIDDEN = frozenset((
    "socket.connect", "socket.getaddrinfo", "socket.bind", "subprocess.Popen", "os.system", "os.exec",
    "os.posix_spawn", "os.startfile", "pickle.find_class",
))  # fmt: skip
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Escape:
    """Something that must not happen: ``kind`` and ``place`` say of what class it is, ``text`` shows it."""

    kind: str
    place: str
    text: str


def where(error: BaseException) -> str:
    """Return the last lines of the package that an exception passed."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if f"{os.sep}holdall{os.sep}" in frame.filename] or list(frames)
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(own[-3:]))


class Guard:
    """One for a process: the interpreter's audit events cannot be left again."""

    def __init__(self) -> None:
        self._base = ""
        self.named = False  # the caller himself names the file
        self.allowed: tuple[str, ...] = ()  # events that the call is about
        self._events: list[str] = []
        sys.addaudithook(self._hear)

    def watch(self, desk: Desk, call: Callable[[], list[Escape]], slow: float = SLOW) -> list[Escape]:
        """Run ``call``, which judges what it returned or raised; add what the process and the folder show."""
        before = read_tree(desk.base)
        descriptors = _descriptors()
        _reset_peak()
        memory, began = _peak(), time.process_time()
        self._events, self._base = [], str(desk.base)
        try:
            found = call()
        finally:
            self._base = ""
        took, grown = time.process_time() - began, _peak() - memory
        if took > slow:
            found.append(Escape("slow", "", f"took {took:.1f} s of processor time"))
        if grown > SPENT:
            found.append(Escape("memory", "", f"took {grown >> 20} MB"))
        if _descriptors() > descriptors:
            gc.collect()
            if _descriptors() > descriptors:
                found.append(Escape("descriptors", "", f"{_descriptors() - descriptors} left open"))
        found += [Escape("event", text.split(" ")[0], text) for text in self._events]
        return found + _judge_files(desk, before, read_tree(desk.base))

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._base:
            return
        if event == "open":
            path, _, flags = args
            if isinstance(flags, int) and flags & _WRITING:
                self._judge_path(event, path, -1)
            elif isinstance(path, str) and (path.startswith(_SECRET) or f"/{BAIT}/" in path) and not self.named:
                self._events.append(f"read {path}")
        elif event in _NAMED:
            for path, folder in _NAMED[event]:
                self._judge_path(event, args[path], args[folder] if folder >= 0 else -1)
        elif event in _FORBIDDEN and event not in self.allowed:
            self._events.append(f"{event} {args!r:.200}")

    def _judge_path(self, event: str, path: Any, folder: Any) -> None:
        """Note a path that is written to outside of the case's folder."""
        if isinstance(path, int) or path is None:
            return
        full = os.path.normpath(os.path.join(self._base, "case", os.fsdecode(path)))  # noqa: PTH118
        if isinstance(folder, int) and folder >= 0 and ".." not in os.fsdecode(path).split("/"):
            return  # below a descriptor that was opened before
        if not full.startswith(f"{self._base}/case") and full != os.devnull and not full.startswith("/proc/self/"):
            self._events.append(f"{event} {full}")


def _judge_files(desk: Desk, before: dict[str, Any], after: dict[str, Any]) -> list[Escape]:
    found: list[Escape] = []
    for name in sorted(before.keys() | after.keys()):
        if before.get(name, _ABSENT) == after.get(name, _ABSENT):
            continue
        if name.startswith(BAIT):
            found.append(Escape("bait", "", f"{name} was written to"))
        elif name.endswith(SUFFIX):
            found.append(Escape("part", "", f"{name} was left"))
        elif not _may_change(desk, name.removeprefix("case/"), is_new=isinstance(before.get(name, ""), str)):
            found.append(Escape("file", "", f"{name} was {'made' if name not in before else 'changed'}"))
    return found


def _may_change(desk: Desk, name: str, *, is_new: bool) -> bool:
    """Whether a call may make or change a file; a link counts as new, since names out of a model replace links."""
    if name.startswith(("home/", "tmp/")) or name in ("home", "tmp"):
        return True
    if any(name == edited or name.startswith(edited + "/") for edited in desk.edits):
        return True
    for output in desk.outputs:
        if output == ".":
            if is_new and "/" not in name:
                return True
        elif name == output or name.startswith(output + "/") or output.startswith(name + "/"):
            return True
    return False


def judge_text(text: str) -> list[Escape]:
    """Judge what a command printed for people."""
    found = _CONTROL.search(text.replace("\r\n", "\n"))
    if found is None:
        return []
    return [
        Escape("control", "", f"printed {found.group()!r}: {text[max(0, found.start() - 60) : found.end() + 20]!r}")
    ]


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _reset_peak() -> None:
    with suppress(OSError), open("/proc/self/clear_refs", "w") as file:  # noqa: PTH123  # some containers refuse it
        file.write("5")


def _peak() -> int:
    """Return the most memory that the process has had since the peak was reset."""
    with open("/proc/self/status", "rb") as file:  # noqa: PTH123
        text = file.read()
    at = text.index(b"VmHWM:") + 6
    return int(text[at : text.index(b"kB", at)]) << 10
