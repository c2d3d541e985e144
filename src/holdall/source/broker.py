"""Requests of a forked process, sent by a fresh one: questions come in through a pipe, answers go out through one.

A broker is started when it is needed, serves one thread at a time, and ends when the pipe is closed.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from queue import Empty, LifoQueue
from typing import IO, Any

from holdall.errors import HoldallError
from holdall.source.requests import Trouble, get, head, listed
from holdall.source.stores import Place

__all__ = ["ask", "serve"]

_START = "import sys; sys.path[:] = {path!r}; from holdall.source.broker import serve; serve()"

_idle: dict[int, LifoQueue[subprocess.Popen[bytes]]] = {}  # of each process: a fork has none of its parent's


def ask(what: str, url: str, options: dict[str, Any]) -> Any:
    """The answer to one question; raises Trouble as the request itself would."""
    idle = _idle.setdefault(os.getpid(), LifoQueue())
    try:
        broker = idle.get_nowait()
    except Empty:
        command = [sys.executable, "-c", _START.format(path=sys.path)]
        broker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert broker.stdin is not None and broker.stdout is not None
    try:
        pickle.dump((what, url, options), broker.stdin)
        broker.stdin.flush()
        answer = pickle.load(broker.stdout)
    except BaseException as error:
        broker.kill()
        broker.wait()
        if isinstance(error, (OSError, EOFError, pickle.UnpicklingError)):
            raise Trouble("BrokerError", "the process that sends requests has ended") from None
        raise
    idle.put(broker)
    if isinstance(answer, Trouble):
        raise answer
    return answer


def serve(questions: IO[bytes] | None = None, answers: IO[bytes] | None = None) -> None:
    """Answer questions until there are no more."""
    questions, answers = questions or sys.stdin.buffer, answers or sys.stdout.buffer
    places: dict[str, Place] = {}
    while True:
        try:
            what, url, options = pickle.load(questions)
        except (EOFError, KeyboardInterrupt):
            return
        try:
            place = places.setdefault(url, Place(url))
            pickle.dump(_answer(what, place, options), answers)
        except Trouble as trouble:
            pickle.dump(trouble, answers)
        except HoldallError as error:
            pickle.dump(Trouble(type(error).__name__, str(error)), answers)
        answers.flush()


def _answer(what: str, place: Place, options: dict[str, Any]) -> Any:
    if what == "list":
        return listed(place)
    if what == "head":
        return head(place)
    found = get(place, options)
    return bytes(found.data), found.start, found.stop, found.tag, found.modified, found.size
