"""Locks that survive a fork."""

from __future__ import annotations

import threading
from weakref import WeakSet

from holdall.base import platform

__all__ = ["is_owned", "make_lock", "was_interrupted"]


def make_lock() -> threading.RLock:
    """Make a lock that is free in a forked child, where the thread that held it does not exist.

    It is one of Python's own, because ``with`` enters and leaves those in one step. An interrupt between taking a lock
    and having entered the block, which a Python method would allow, leaves the lock held for ever. The thread that has
    it may take it again: the garbage collector, and handlers of signals, run in any thread.

    >>> with make_lock():
    ...     "alone"
    'alone'
    """
    made = threading.RLock()
    _live.add(made)
    return made


_live: WeakSet[threading.RLock] = WeakSet()


def is_owned(lock: threading.RLock) -> bool:
    """Whether the thread that asks holds ``lock``.

    >>> lock = make_lock()
    >>> with lock:
    ...     is_owned(lock)
    True
    """
    owned: bool = lock._is_owned()  # type: ignore[attr-defined]
    return owned


def _free_all() -> None:
    for lock in _live:
        if not is_owned(lock):  # the thread that forked goes on, and lets go of its own
            lock._at_fork_reinit()  # type: ignore[attr-defined]


platform.after_fork(_free_all)


def was_interrupted(error: BaseException) -> bool:
    """Whether ``error`` is an interrupt, or what Python's locks made of one that came while they were changing hands.

    >>> was_interrupted(KeyboardInterrupt()), was_interrupted(RuntimeError("other"))
    (True, False)
    """
    while isinstance(error, RuntimeError) and error.__context__ is not None:
        error = error.__context__
    return isinstance(error, KeyboardInterrupt)
