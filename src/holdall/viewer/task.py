"""Work in the background that ends when no page asks for it any more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Literal

from holdall.base.progress import Progress
from holdall.errors import HoldallError

__all__ = ["Task"]

_LEASE = 8.0  # seconds without a question of a page, after which the work ends: pages ask every second

State = Literal["idle", "running", "done", "stopped", "failed"]


class _Stopped(Exception):
    """Leaves the work."""


class Task:
    """Work on a thread of its own. Pages keep it going by :meth:`keep`; without them it stops, and can go on later.

    Work that ``waits`` begins when a user asks for it by :meth:`start`: it would fetch what no page shows.

    >>> task = Task(lambda progress: progress(1, 1))
    >>> task.keep(); task.wait(); task.state, task.done
    ('done', 1)
    """

    def __init__(self, work: Callable[[Progress], None], waits: bool = False) -> None:
        self._work = work
        self.waits = waits
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._asked = 0.0
        self._ended = False
        self.state: State = "idle"
        self.message = ""
        self.done = 0
        self.total: int | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether a user has yet to ask for it."""
        return self.waits and self.state == "idle"

    def keep(self) -> None:
        """Go on with the work, and let it run while a page asks. What is done stays done."""
        if not self.is_waiting:
            self.start()

    def start(self) -> None:
        """Begin the work or go on with it, as a user asks."""
        with self._lock:
            self._asked = monotonic()
            if self._ended or self.state in ("running", "done", "failed"):
                return
            self.state = "running"
            self._thread = threading.Thread(target=self._run, name="holdall-view", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Stop the work for good, and wait for it."""
        self._ended = True
        self.wait()

    def wait(self) -> None:
        """Wait until the work has ended or was stopped."""
        if self._thread is not None:
            self._thread.join()

    @property
    def share(self) -> float:
        """How much of the work is done, from 0 to 1."""
        if self.state == "done":
            return 1.0
        return min(1.0, self.done / self.total) if self.total else 0.0

    def _run(self) -> None:
        try:
            self._work(self._count)
        except _Stopped:
            self.state = "stopped"
        except (HoldallError, OSError, MemoryError) as error:
            self.message = str(error) or type(error).__name__
            self.state = "failed"
        else:
            self.state = "done"

    def _count(self, done: int, total: int | None) -> None:
        self.done, self.total = done, total
        if self._ended or monotonic() - self._asked > _LEASE:
            raise _Stopped
