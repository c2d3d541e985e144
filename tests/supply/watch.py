"""Runs Python code in a fresh process and tells what it did to the world outside, by audit events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import holdall

SRC = Path(holdall.__file__).resolve().parents[1]
ROOT = SRC.parent

_HOOK = """
import sys, os
_reported = []
_quiet = []
_writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

def _hook(event, arguments):
    if _quiet:
        return
    kind, _, what = event.partition(".")
    if event == "open":
        path, mode, flags = arguments
        if isinstance(mode, str) and not set(mode) & set("wax+"):
            return
        if isinstance(flags, int) and not flags & _writing:
            return
        _reported.append(["write", str(path)])
    elif kind in ("socket", "ssl", "urllib", "http", "ftplib", "smtplib"):
        if event != "socket.gethostname":
            _reported.append(["network", event])
    elif event in ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "pty.spawn"):
        _reported.append(["process", event])
    elif kind == "os" and what in ("remove", "rename", "mkdir", "rmdir", "link", "symlink", "truncate", "chmod"):
        _reported.append(["write", f"{event} {arguments[0]}"])
    elif event == "import" and "imports" in sys.argv:
        _reported.append(["import", arguments[0]])
    elif event in ("exec", "compile") and "code" in sys.argv:
        name = arguments[0].co_filename if event == "exec" else arguments[1]
        _reported.append([event, str(name)])

sys.addaudithook(_hook)
"""
_END = """
_quiet.append(1)
import json
sys.__stderr__.write("AUDIT" + json.dumps(_reported) + "\\n")
"""


def events(code: str, *flags: str, arguments: tuple[str, ...] = (), **environment: str) -> list[list[Any]]:
    """What ``code`` did: lists of a kind (write, network, process, import, exec, compile) and what it was."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(_HOOK + "\ntry:\n" + "".join(f"    {line}\n" for line in code.splitlines()) + "finally:\n")
        script.write("".join(f"    {line}\n" for line in _END.splitlines()))
        script.flush()
        path = os.pathsep.join([str(SRC), str(ROOT)])
        outside = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environment}
        line = [sys.executable, script.name, *arguments, *flags]
        done = subprocess.run(line, env=outside, capture_output=True, text=True, timeout=120)
    assert "AUDIT" in done.stderr, done.stderr
    told = done.stderr.rpartition("AUDIT")[2].splitlines()[0]
    assert "Traceback" not in done.stderr, done.stderr
    found: list[list[Any]] = json.loads(told)
    return found
