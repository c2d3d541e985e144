"""Failing system calls: each file call of a write fails once, in every way it can, and the folder is judged afterwards.

The calls are those that the process really makes, be it from Python, numpy or C: ``faults.c`` stands between them and
the C library (``LD_PRELOAD``), lists them, and lets one fail. :func:`run` does all cases of one write in a process
of its own.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from holdall.errors import HoldallError
from holdall.sink.part import SUFFIX
from holdall.testing.writes import Files, Write, fill, is_part, snapshot, writes

__all__ = ["FAULTS", "Outcome", "build", "run"]

SIZE = 260 << 10  # of a tensor: beyond what is gathered, so that each way of moving bytes is met

FAIL, SHORT, KILL, INTERRUPT = range(1, 5)  # as faults.c has them

_DISK = (errno.EIO, errno.ENOSPC, errno.EDQUOT)
_NAMES = (errno.EACCES, errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_FAR = (errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)  # the kernel cannot copy between these files

# What may go wrong with each call, beside kills and interrupts, which may come at any.
FAULTS: dict[str, tuple[int, ...]] = {
    "open": (errno.EINTR, errno.EACCES, errno.EIO, errno.EMFILE),
    "create": (errno.EINTR, errno.EMFILE, *_NAMES),
    "opendir": (errno.EACCES, errno.EIO),
    "mkdir": _NAMES,
    "rmdir": (),
    "unlink": (),
    "rename": (errno.EINTR, errno.EXDEV, errno.EBUSY, errno.EPERM, *_NAMES),
    "link": _NAMES,
    "symlink": _NAMES,
    "stat": (errno.EACCES, errno.EIO),
    "lstat": (errno.EACCES, errno.EIO),
    "fstat": (errno.EIO,),
    "statvfs": (errno.EIO, errno.EACCES),
    "chmod": (errno.EPERM, errno.EIO),
    "fchmod": (errno.EPERM, errno.EIO),
    "flock": (errno.EINTR, errno.ENOLCK, errno.EOPNOTSUPP),
    "truncate": _DISK,
    "ftruncate": (errno.EINTR, *_DISK),
    "fallocate": (errno.EINTR, errno.EOPNOTSUPP, *_DISK),
    "fsync": (errno.EINTR, *_DISK),
    "fdatasync": (errno.EINTR, *_DISK),
    "close": (errno.EINTR, *_DISK),
    "dup": (errno.EMFILE,),
    "write": (errno.EINTR, *_DISK),
    "read": (errno.EINTR, errno.EIO),
    "copy_file_range": (errno.EINTR, *_FAR, *_DISK),
    "sendfile": (errno.EINTR, *_FAR, *_DISK),
}
_MOVING = ("write", "read", "copy_file_range", "sendfile")

# After these the write goes on as if nothing had been, where the call is one that can be tried again or done without.
_HARMLESS = {
    **dict.fromkeys(("open", "create", "fsync", "fdatasync", "write", "read", "flock", "ftruncate"), (errno.EINTR,)),
    "copy_file_range": (errno.EINTR, *_FAR),
    "sendfile": (errno.EINTR, *_FAR),
}
_HARMLESS["flock"] = FAULTS["flock"]


@dataclass(slots=True)
class Outcome:
    """All cases of one write: its calls in order, how many cases there were and how they ended, what was wrong."""

    name: str
    calls: list[str] = field(default_factory=list)
    cases: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


def build(folder: Path) -> Path:
    """Compile ``faults.c``; FileNotFoundError where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise FileNotFoundError("no C compiler")
    library = folder / "faults.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl", "-pthread"], check=True)
    return library


def run(name: str, library: Path, folder: Path) -> Outcome:
    """Every case of the write called ``name``, in a process that has ``library`` before the C library."""
    command = [sys.executable, "-m", "holdall.testing.faults", name, str(library), str(folder)]
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{name}: {done.stderr}")
    return Outcome(**json.loads(done.stdout))


class _Shim:
    """The functions by which ``faults.c`` is told what to do."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        self._library.faults_list.restype = ctypes.c_char_p

    def watch(self, folder: Path | None) -> None:
        self._library.faults_watch(os.fsencode(folder or ""), 0)

    def arm(self, call: str, nth: int, action: int, code: int) -> None:
        self._library.faults_arm(os.fsencode(call), nth, action, code)

    @property
    def calls(self) -> list[str]:
        return os.fsdecode(self._library.faults_list()).splitlines()

    @property
    def fired(self) -> bool:
        return bool(self._library.faults_fired())


class _Trial:
    """One write, done again and again."""

    def __init__(self, write: Write, shim: _Shim, folder: Path) -> None:
        self.write, self.shim = write, shim
        self.folder = folder / "watched"
        self.outcome = Outcome(write.name)
        fill(self.folder, {})
        write.prepare(self.folder)
        self.old = snapshot(self.folder)
        write.run(self.folder)  # imports, and what else is done once
        self.new = snapshot(self.folder)
        assert write.whole(self.folder) and self.old != self.new
        self._start()
        write.run(self.folder)
        self.outcome.calls = shim.calls
        shim.watch(None)
        assert snapshot(self.folder) == self.new, "a write is not the same twice"

    def cases(self) -> Iterator[tuple[str, int, int, int]]:
        """(call, which of its kind, action, errno) for every call and every fault."""
        seen: Counter[str] = Counter()
        for call in self.outcome.calls:
            nth, kind = seen[call], call.partition(" ")[0]
            seen[call] += 1
            for code in FAULTS[kind]:
                yield call, nth, FAIL, code
            for action in (*((SHORT,) if kind in _MOVING else ()), KILL, INTERRUPT):
                yield call, nth, action, 0

    def judge(self, call: str, nth: int, action: int, code: int) -> None:
        """Run one case, and say what is wrong with how it ended."""
        self._start()
        self.shim.arm(call, nth, action, code)
        killed = action == KILL
        error = self._run_until_killed() if killed else self._run()
        left = snapshot(self.folder)
        self.outcome.cases += 1
        found, wrong = self._verdict(call, action, code, error, left)
        ends = self.outcome.ends
        ends[found] = ends.get(found, 0) + 1
        if wrong:
            how = ("", errno.errorcode.get(code, ""), "short", "killed", "interrupted")[action]
            self.outcome.wrong.append(f"{call} #{nth} {how}: {wrong}")
        if killed and any(map(is_part, left)):
            self._again(call)

    def _verdict(self, call: str, action: int, code: int, error: BaseException | None, left: Files) -> tuple[str, str]:
        """How it ended, in a word, and what is wrong with that."""
        if action == KILL:
            left = {name: data for name, data in left.items() if not is_part(name)}
        state = "old" if left == self.old else "new" if left == self.new else "damaged"
        if state == "damaged":
            names = sorted({*left, *self.new, *self.old})
            odd = [n for n in names if left.get(n, 0) not in (self.old.get(n, 0), self.new.get(n, 0))]
            return state, f"neither the old state nor the new one: {odd}; {error!r}"
        if action == KILL:
            return f"killed, {state}", "" if error is None else str(error)
        if action == INTERRUPT:
            fine = isinstance(error, KeyboardInterrupt)
            return f"interrupted, {state}", "" if fine else f"ctrl-C became {error!r}"
        if error is None:
            return "went on", "" if state == "new" else "no error, and the old file"
        if action == SHORT or code in _HARMLESS.get(call.partition(" ")[0], ()):
            return f"error, {state}", f"should have gone on: {error!r}"
        return f"error, {state}", self._unclear(error)

    def _unclear(self, error: BaseException) -> str:
        """What is wrong with an error: one of the system must name a file that the caller knows."""
        if isinstance(error, HoldallError):
            return ""
        if not isinstance(error, OSError) or not error.strerror:
            return f"an unclear error: {error!r}"
        named = os.fspath(error.filename or "")
        if not named.startswith(str(self.folder)) or SUFFIX in named:
            return f"an error that does not name the file: {error!r}"
        return ""

    def _start(self) -> None:
        self.shim.watch(None)
        fill(self.folder, self.old)
        self.shim.watch(self.folder)

    def _run(self) -> BaseException | None:
        """Run here; what it raised."""
        error: BaseException | None = None
        try:
            try:
                self.write.run(self.folder)
            except BaseException as raised:
                error = raised
            signal.sigpending()  # a call, so that an interrupt that came last is noticed here
        except KeyboardInterrupt as raised:
            error = raised
        self.shim.watch(None)
        return error

    def _run_until_killed(self) -> BaseException | None:
        """Run in a child that the fault ends."""
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                self.write.run(self.folder)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        self.shim.watch(None)
        return None if os.WIFSIGNALED(status) else AssertionError("the kill did not come")

    def _again(self, call: str) -> None:
        """The next write removes what a killed one left."""
        self.write.run(self.folder)
        if snapshot(self.folder) != self.new:
            self.outcome.wrong.append(f"{call}: after a kill the next write left something lying about")


def main() -> None:
    """All cases of one write, told as JSON."""
    name, library, folder = sys.argv[1:]
    write = next(write for write in writes(SIZE) if write.name == name)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        trial = _Trial(write, _Shim(library), Path(scratch).resolve())
        for case in trial.cases():
            trial.judge(*case)
    json.dump(asdict(trial.outcome), sys.stdout)


if __name__ == "__main__":
    main()
