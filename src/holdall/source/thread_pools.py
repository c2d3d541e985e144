"""Thread pools for requests; after a fork, requests raise."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache

from holdall.base.platform import after_fork
from holdall.errors import UnsupportedError

__all__ = ["PARALLEL_REQUESTS", "member_pool", "refuse_after_fork", "request_pool", "wait_all"]

PARALLEL_REQUESTS = 8

_started = _lost = False  # whether this process has sent requests, and whether a parent had when it forked


def refuse_after_fork() -> None:
    """Raise UnsupportedError in a forked process, since the threads that receive responses exist only in its parent.

    It is called before every request and every wait for one, which would never end.
    """
    global _started
    if _lost:
        message = "a process cannot read from URLs when it was forked from one that did"
        raise UnsupportedError(f"{message}: use the spawn start method of multiprocessing")
    _started = True


def _note_fork() -> None:
    global _lost
    _lost = _started


after_fork(_note_fork)


def request_pool() -> ThreadPoolExecutor:
    """Return the pool for single requests, which wait only for the server."""
    return _pool("fetch")


def member_pool() -> ThreadPoolExecutor:
    """Return the pool for opening members of sets, which may wait for threads of :func:`request_pool`."""
    return _pool("member")


def _pool(name: str) -> ThreadPoolExecutor:
    refuse_after_fork()
    return _make_pool(name)


@cache
def _make_pool(name: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(PARALLEL_REQUESTS, f"holdall-{name}")


def wait_all(futures: list[Future[None]]) -> None:
    """Wait for all. A failure is raised after the others have ended or were cancelled."""
    try:
        for future in futures:
            future.result()
    except BaseException:
        for future in futures:
            future.cancel()
        wait(futures)
        raise
