"""Locks that survive a fork."""

from __future__ import annotations

import os
import threading
from weakref import WeakSet

__all__ = ["Lock"]


class Lock:
    """A lock that a forked process finds open: the thread that held it did not come along.

    >>> with Lock():
    ...     "alone"
    'alone'
    """

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _live.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


_live: WeakSet[Lock] = WeakSet()


def _open_all() -> None:
    for lock in _live:
        lock._lock = threading.Lock()


os.register_at_fork(after_in_child=_open_all)
