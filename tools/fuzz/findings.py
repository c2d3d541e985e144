"""Keeps what fuzzing finds: one input for each cause, with what happened."""

from __future__ import annotations

import hashlib
import json
import resource
import time
import traceback
from collections.abc import Callable
from pathlib import Path

__all__ = ["SLOW", "SPENT", "Watch"]

SLOW = 2.0  # seconds of processor time that no input may take
SPENT = 200 << 20  # bytes of memory that no input may add


class Watch:
    """Runs a fuzz function, and keeps inputs that raise, take long or take much memory.

    Each cause is a file in ``folder``: the input, and beside it a text that says what happened.
    """

    def __init__(self, probe: Callable[[bytes], bool], folder: Path) -> None:
        self.probe = probe
        self.folder = folder
        self.inputs = 0
        self.whole = 0  # inputs that could be read to the end
        self.slowest = 0.0
        self.causes: dict[str, str] = {}  # file by cause

    def __call__(self, data: bytes) -> None:
        """Run one input."""
        before, began = _peak(), time.process_time()
        try:
            self.whole += self.probe(data)
        except Exception as error:
            lines = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-3:]]
            self._keep(f"{type(error).__name__} {lines}", traceback.format_exc(limit=-8), data)
        took = time.process_time() - began
        grown = _peak() - before
        if took > SLOW:
            self._keep("slow", f"took {took:.1f} s", data)
        if grown > SPENT:
            self._keep("memory", f"took {grown >> 20} MB", data)
        self.slowest = max(self.slowest, took)
        self.inputs += 1

    def _keep(self, cause: str, text: str, data: bytes) -> None:
        if cause in self.causes:
            return
        name = hashlib.sha256(cause.encode()).hexdigest()[:12]
        self.causes[cause] = name
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_bytes(data)
        (self.folder / f"{name}.json").write_text(
            json.dumps({"cause": cause, "text": text, "bytes": len(data)}, indent=1)
        )


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
