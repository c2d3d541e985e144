"""The process in which a library reads: it may crash, hang or ask for all memory.

``python -m tools.differential.child FORMAT``: reads batches from standard input, writes one answer an input to standard
output. Batches and answers are pickled by this module alone; bytes of an input are never unpickled here.
"""

from __future__ import annotations

import os
import pickle
import resource
import select
import signal
import struct
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from tools.differential.normal import Content

__all__ = ["Died", "Library", "serve"]

_MEMORY = 2 << 30  # bytes of address space beyond what the imports took
_LITTLE = 1 << 28  # the same for a library that takes what a file says before it looks, and would be slow
_SECONDS = 1  # of processor time for one input
_WAIT = 300  # seconds until an answer comes, on a busy machine and with the imports
_SIZE = struct.Struct("<I")


class Died(Exception):
    """The library crashed or hung; the process has been ended."""


class Library:
    """The library of a format in a process of its own, which is started again when it dies.

    >>> from tools.differential.child import Library
    >>> with Library("safetensors") as library:
    ...     list(library.read([b"no file"]))
    [None]
    """

    def __init__(self, format: str, command: Sequence[str] | None = None) -> None:
        self._command = command or [sys.executable, "-m", "tools.differential.child", format]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def send(self, batch: list[bytes]) -> None:
        """Let the library begin with a batch; :meth:`receive` returns what it read."""
        data = pickle.dumps(batch)
        request = _SIZE.pack(len(data)) + data
        try:
            self._write(request)
        except BrokenPipeError:  # it ended after its last answer
            self._stop()
            self._write(request)

    def _write(self, request: bytes) -> None:
        process = self._start()
        assert process.stdin is not None
        process.stdin.write(request)
        process.stdin.flush()

    def receive(self, batch: list[bytes]) -> Iterator[Content | Died | None]:
        """What the library makes of each input: a content, None where it refuses, Died where it takes the process."""
        at = 0
        while at < len(batch):
            try:
                yield self._answer()
            except Died as died:
                self._stop()
                yield died
                if at + 1 < len(batch):
                    self.send(batch[at + 1 :])
            at += 1

    def read(self, batch: list[bytes]) -> Iterator[Content | Died | None]:
        """Read a batch."""
        self.send(batch)
        return self.receive(batch)

    def _answer(self) -> Content | None:
        process = self._start()
        assert process.stdout is not None
        data = _read_exactly(process.stdout, *_SIZE.unpack(_read_exactly(process.stdout, _SIZE.size)))
        answer: Content | None = pickle.loads(data)
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        return self._process

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _read_exactly(pipe: object, size: int) -> bytes:
    descriptor, found = pipe.fileno(), b""  # type: ignore[attr-defined]
    while len(found) < size:
        if not select.select([descriptor], [], [], _WAIT)[0]:
            raise Died(f"no answer within {_WAIT} s")
        piece = os.read(descriptor, size - len(found))
        if not piece:
            raise Died("the process ended")
        found += piece
    return found


def serve(read: Callable[[bytes], Content], memory: int = _MEMORY) -> None:
    """Answer batches until standard input ends. ``read`` may raise, crash, hang or take memory."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + memory, taken + memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    while head := requests.read(_SIZE.size):
        for data in _batch(requests, head):
            signal.setitimer(signal.ITIMER_PROF, _SECONDS)  # ends the process
            answer: Content | None = None
            with suppress(Exception):
                answer = read(data)
            signal.setitimer(signal.ITIMER_PROF, 0)
            answered = pickle.dumps(answer)
            answers.write(_SIZE.pack(len(answered)) + answered)
            answers.flush()


def _batch(requests: BinaryIO, head: bytes) -> Iterable[bytes]:
    batch: list[bytes] = pickle.loads(requests.read(*_SIZE.unpack(head)))
    return batch


if __name__ == "__main__":
    from tools.differential.theirs import prepare

    serve(prepare(sys.argv[1]), _LITTLE if sys.argv[1] == "oinf" else _MEMORY)
