"""Lets each file call of a write fail once, in every way it can, and judges the folder: ``python -m tools.faults``.

The calls are those that the process really makes, from Python, numpy or C: ``faults.c`` stands between them and
the C library (``LD_PRELOAD``), lists them, and lets one fail. :func:`run` does all cases of one write in another
process.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from holdall.base.locks import was_interrupted
from holdall.errors import HoldallError
from holdall.sink.staging import SUFFIX
from tools.writes import Files, Write, fill, is_part, snapshot, writes

__all__ = ["FAULTS", "Outcome", "build", "run"]

SIZE = 260 << 10  # bytes of a tensor: too many to be gathered, so that every way of moving bytes is used

FAIL, SHORT, KILL, INTERRUPT = range(1, 5)  # the numbers of faults.c

_DISK = (errno.EIO, errno.ENOSPC, errno.EDQUOT)
_NAMES = (errno.EACCES, errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_UNSUPPORTED = (errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)  # the kernel cannot copy between these files

# The errors of each call. Kills and interrupts may come at any call.
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
    "copy_file_range": (errno.EINTR, *_UNSUPPORTED, *_DISK),
    "sendfile": (errno.EINTR, *_UNSUPPORTED, *_DISK),
}
_MOVING = ("write", "read", "copy_file_range", "sendfile")

# After these errors the write must go on: the call can be repeated or replaced.
_HARMLESS = {
    **dict.fromkeys(("open", "create", "fsync", "fdatasync", "write", "read", "flock", "ftruncate"), (errno.EINTR,)),
    "copy_file_range": (errno.EINTR, *_UNSUPPORTED),
    "sendfile": (errno.EINTR, *_UNSUPPORTED),
}
_HARMLESS["flock"] = FAULTS["flock"]
_HARMLESS["fchmod"] = (errno.EPERM,)  # file systems without permissions


@dataclass(slots=True)
class Outcome:
    """The result of all cases of one write: its calls in order, how the cases ended, and what was wrong."""

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
    """Run every case of the write called ``name`` in a process that loads ``library`` before the C library."""
    command = [sys.executable, "-m", "tools.faults", name, "--library", str(library), "--folder", str(folder)]
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{name}: {done.stderr}")
    return Outcome(**json.loads(done.stdout))


class _Shim:
    """The functions that steer ``faults.c``."""

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
        write.run(self.folder)  # does imports and other work that happens once
        self.new = snapshot(self.folder)
        assert write.whole(self.folder) and self.old != self.new
        self._start()
        write.run(self.folder)
        self.outcome.calls = shim.calls
        shim.watch(None)
        assert snapshot(self.folder) == self.new, "a write is not the same twice"

    def cases(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield (call, number of that call, action, errno) for every call and every fault."""
        seen: Counter[str] = Counter()
        for call in self.outcome.calls:
            nth, kind = seen[call], call.partition(" ")[0]
            seen[call] += 1
            for code in FAULTS[kind]:
                yield call, nth, FAIL, code
            for action in (*((SHORT,) if kind in _MOVING else ()), KILL, INTERRUPT):
                yield call, nth, action, 0

    def judge(self, call: str, nth: int, action: int, code: int) -> None:
        """Run one case, and record how it ended and what is wrong with that."""
        self._start()
        self.shim.arm(call, nth, action, code)
        killed = action == KILL
        error = self._run_until_killed() if killed else self._run()
        left = snapshot(self.folder)
        self.outcome.cases += 1
        found, wrong = self._verdict(call, action, code, error, left)
        error = None  # which holds what was open when it was raised
        wrong = wrong or self._find_left_open()
        ends = self.outcome.ends
        ends[found] = ends.get(found, 0) + 1
        if wrong:
            how = ("", errno.errorcode.get(code, ""), "short", "killed", "interrupted")[action]
            self.outcome.wrong.append(f"{call} #{nth} {how}: {wrong}")
        if killed and any(map(is_part, left)):
            self._check_next_write(call)

    def _verdict(self, call: str, action: int, code: int, error: BaseException | None, left: Files) -> tuple[str, str]:
        """Return how a case ended, and what is wrong with that."""
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
            fine = error is not None and was_interrupted(error)
            return f"interrupted, {state}", "" if fine else f"ctrl-C became {error!r}"
        if error is None:
            return "went on", "" if state == "new" else "no error, and the old file"
        if action == SHORT or code in _HARMLESS.get(call.partition(" ")[0], ()):
            return f"error, {state}", f"should have gone on: {error!r}"
        return f"error, {state}", self._unclear(error)

    def _unclear(self, error: BaseException) -> str:
        """Return what is wrong with an error: an OSError must name a file that the caller knows."""
        if isinstance(error, HoldallError):
            return ""
        if not isinstance(error, OSError) or not error.strerror:
            return f"an unclear error: {error!r}"
        named = os.fspath(error.filename or "")
        if not named.startswith(str(self.folder)) or SUFFIX in named:
            return f"an error that does not name the file: {error!r}"
        return ""

    def _find_left_open(self) -> str:
        """Return what is wrong if files of the folder are still open. An interrupted thread may need a moment."""
        for _ in range(20):
            links = [link for link in map(_read_link, os.listdir("/proc/self/fd")) if link.startswith(str(self.folder))]
            if not links:
                return ""
            gc.collect()
            time.sleep(0.02)
        return f"left open: {links}"

    def _start(self) -> None:
        self.shim.watch(None)
        fill(self.folder, self.old)
        self.shim.watch(self.folder)

    def _run(self) -> BaseException | None:
        """Run the write here, and return what it raised, or the interrupt that Python itself dropped."""
        error: BaseException | None = None
        dropped: list[BaseException | None] = []
        sys.unraisablehook = lambda unheard: dropped.append(unheard.exc_value)
        try:
            try:
                self.write.run(self.folder)
            except BaseException as raised:
                error = raised
            signal.sigpending()  # lets Python notice an interrupt that came with the last call
        except KeyboardInterrupt as raised:
            error = raised
        finally:
            sys.unraisablehook = sys.__unraisablehook__
        fired = self.shim.fired
        self.shim.watch(None)
        if not fired:
            return AssertionError("the fault did not come")
        # Python drops what is raised while it collects garbage: the write cannot know of such an interrupt.
        return error or next((lost for lost in dropped if isinstance(lost, KeyboardInterrupt)), None)

    def _run_until_killed(self) -> BaseException | None:
        """Run the write in a child that the fault kills."""
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                self.write.run(self.folder)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        self.shim.watch(None)
        return None if os.WIFSIGNALED(status) else AssertionError("the kill did not come")

    def _check_next_write(self, call: str) -> None:
        """Check that the next write removes what a killed one left."""
        self.write.run(self.folder)
        if snapshot(self.folder) != self.new:
            self.outcome.wrong.append(f"{call}: after a kill the next write left something lying about")


def _read_link(fd: str) -> str:
    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    except FileNotFoundError:  # it was that of the listing
        return ""


def _run_here(name: str, library: str, folder: str | None) -> Outcome:
    """Run every case of a write in this process, which has ``library`` before the C library."""
    write = next(write for write in writes(SIZE) if write.name == name)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        trial = _Trial(write, _Shim(library), Path(scratch).resolve())
        for case in trial.cases():
            trial.judge(*case)
    return trial.outcome


def main() -> int:
    """Run all cases of the writes that are named, by default of all; return 1 if something was wrong."""
    parser = argparse.ArgumentParser(description="Let each file call of a write fail once, and judge what it leaves.")
    parser.add_argument("names", nargs="*", metavar="WRITE", help='such as "save oinf"; all by default')
    parser.add_argument("--library", help="the compiled faults.c: run one write here, and print its outcome as JSON")
    parser.add_argument("--folder", help="where to write")
    asked = parser.parse_args()
    if asked.library is not None:
        json.dump(asdict(_run_here(asked.names[0], asked.library, asked.folder)), sys.stdout)
        return 0
    wrong = 0
    with tempfile.TemporaryDirectory(dir=asked.folder) as scratch:
        library = build(Path(scratch))
        for name in asked.names or [write.name for write in writes(SIZE)]:
            outcome = run(name, library, Path(scratch))
            ends = ", ".join(f"{end}: {count}" for end, count in sorted(outcome.ends.items()))
            sys.stdout.write(f"{name}: {outcome.cases} cases ({ends}), {len(outcome.wrong)} wrong\n")
            sys.stdout.writelines(f"  {text}\n" for text in outcome.wrong)
            sys.stdout.flush()
            wrong += len(outcome.wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
