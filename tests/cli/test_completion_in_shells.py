"""Completion of names out of a model, in real shells behind a terminal: what is completed arrives, and nothing runs."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import holdall
from holdall.cli.completion import SHELLS

# Each begins with letters of its own, which are typed before the tab.
HOSTILE = {
    "aa": "aa b", "ab": "ab$(touch ran)", "ac": "ac`touch ran`", "ad": "ad;touch ran", "ae": "ae'q", "af": 'af"q',
    "ag": "ag\ntouch ran", "ah": "ah|touch ran", "ai": "ai&touch ran&", "aj": "aj>ran", "ak": "ak*", "al": "al{x,y}",
    "am": "am%d%s", "an": "an!!", "ao": "ao\\", "ap": "ap\ttouch ran", "aq": "aq~", "ar": "ar(touch ran)", "as": "as#x",
    "at": "at$HOME", "au": "au\x1b[31m", "av": "av\u202ex", "aw": "aw,plain,x", "ax": "ax=x", "ay": "ay:x",
    "az": "az[x]",
    "ba": "ba\r", "bb": "bb\x03", "bc": "bc^x", "bd": "bd<x", "be": "be?", "bf": "bf\u00a0x", "bg": "bg\u3000x",
}  # fmt: skip
PLAIN = {
    "x": "x.layers.0.attn-q/weight_1",
    "y": "y2",
    "größ": "größe.模型",
    "/ab": "/abs/w",
}
SAMPLE = ("aa", "ab", "ac", "ad", "ag", "ak")  # tried in every shell; a tab takes a second
LEADING = [
    "-rf",
    "--all",
    "-o",
    "$(touch ran)",
    "`touch ran`",
    ";touch ran",
    "~root",
    "'",
    '"',
    "\n",
    "!1",
    "=ls",
    "%1",
]

STUB = """#!{python}
import json, os, subprocess, sys
if "_HOLDALL_COMPLETE" in os.environ:
    code = subprocess.run([sys.executable, "-m", "holdall"]).returncode
    with open({log!r}, "a") as log:
        log.write('"completed"\\n')
    sys.exit(code)
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
"""
START = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], ". {script}\n"),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D; . {script}\n"),
    "fish": (["fish", "-i"], ". {script}\n"),
}


class Shell:
    """An interactive shell behind a terminal."""

    def __init__(self, name, folder):
        self.name = name
        self._log = folder / "log"
        self._log.touch()
        script = folder / f"script.{name}"
        made = subprocess.run(
            [sys.executable, "-m", "holdall", "completion", name], capture_output=True, check=True, env=environment()
        )
        script.write_bytes(made.stdout)
        bin = folder / "bin"
        bin.mkdir()
        (bin / "holdall").write_text(STUB.format(python=sys.executable, log=str(self._log)))
        (bin / "holdall").chmod(0o755)
        command, start = START[name]
        work = folder / "work"
        self.child, self._fd = pty.fork()
        if self.child == 0:
            os.chdir(work)
            more = {"PATH": f"{bin}:{os.environ['PATH']}", "HOME": str(folder), "TERM": "xterm", "PS1": "$ "}
            os.execvpe(command[0], command, {**environment(), **more, "LC_ALL": "C.UTF-8"})
        self.shown = b""
        self._settle(1.0)
        self.type(start.format(script=script))
        self._settle(1.0)

    def type(self, text):
        os.write(self._fd, text.encode())

    def tab(self):
        """Press the key, and wait until the shell has the answer."""
        asked = self._lines().count("completed")
        self.type("\t")
        self._wait(lambda: self._lines().count("completed") > asked)
        self._settle(0.4)

    def run(self):
        """Press return, and wait for the arguments that arrive."""
        before = len(self._calls())
        self.type("\n")
        self._wait(lambda: len(self._calls()) > before)
        return self._calls()[-1]

    def cancel(self):
        """Leave the line, as ctrl-C does."""
        self.type("\x03")
        self._settle(0.4)

    def close(self):
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)
        os.close(self._fd)

    def _lines(self):
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def _calls(self):
        return [line for line in self._lines() if line != "completed"]

    def _wait(self, done):
        end = time.monotonic() + 120  # on a busy machine
        while not done():
            self._read(0.05)
            assert time.monotonic() < end, self.shown[-2000:]

    def _settle(self, seconds):
        while self._read(seconds):
            pass

    def _read(self, seconds):
        if not select.select([self._fd], [], [], seconds)[0]:
            return False
        self.shown += os.read(self._fd, 1 << 16)
        return True


def environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def save_names(path):
    names = [*HOSTILE.values(), *PLAIN.values(), *LEADING]
    holdall.save(path, {name: np.zeros(1, np.float32) for name in names})


def test_only_plain_names_are_offered(tmp_path):
    save_names(tmp_path / "m.safetensors")
    found = subprocess.run(
        [sys.executable, "-m", "holdall"], capture_output=True, text=True, check=True,
        env={**environment(), "_HOLDALL_COMPLETE": "bash_complete", "COMP_CWORD": "3",
             "COMP_WORDS": f"holdall extract {tmp_path}/m.safetensors "},
    )  # fmt: skip
    assert sorted(found.stdout.splitlines()) == sorted(f"plain,{name}" for name in PLAIN.values())


@pytest.fixture(params=[SHELLS[0], *(pytest.param(name, marks=pytest.mark.long) for name in SHELLS[1:])])
def shell(request, tmp_path):
    if shutil.which(request.param) is None:
        pytest.skip(f"there is no {request.param} here")
    (tmp_path / "work").mkdir()
    save_names(tmp_path / "work" / "m.safetensors")
    (tmp_path / "work" / "akin").touch()  # a pattern would be this file
    made = Shell(request.param, tmp_path)
    yield made
    made.close()


def test_names_arrive_as_one_argument_and_nothing_runs(shell, tmp_path):
    work = tmp_path / "work"
    for typed, name in PLAIN.items():
        shell.type(f"holdall extract m.safetensors {typed}")
        shell.tab()
        assert shell.run() == ["extract", "m.safetensors", name]
    for typed in SAMPLE:
        shell.type(f"holdall extract m.safetensors {typed}")
        shell.tab()
        assert shell.run() == ["extract", "m.safetensors", typed], "not offered: the name means something in a shell"
    before = len(shell.shown)
    shell.type("holdall extract m.safetensors ")
    shell.tab()
    if shell.name == "bash":  # it lists at the second
        shell.tab()
    shell.cancel()
    listed = shell.shown[before:].decode()
    assert "y2" in listed and "touch" not in listed and "--all" not in listed
    assert sorted(path.name for path in work.iterdir()) == ["akin", "m.safetensors"]
