"""Threads for requests: those of the process they are used in; a fork makes its own."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor, wait

__all__ = ["LANES", "lanes", "members", "settled"]

LANES = 8  # requests under way at once

_pools: dict[tuple[int, str], ThreadPoolExecutor] = {}


def _pool(name: str, threads: int) -> ThreadPoolExecutor:
    key = (os.getpid(), name)
    if key not in _pools:
        _pools[key] = ThreadPoolExecutor(threads, f"holdall-{name}")
    return _pools[key]


def lanes() -> ThreadPoolExecutor:
    """For single requests, which wait for nothing but the server."""
    return _pool("fetch", LANES)


def members() -> ThreadPoolExecutor:
    """For opening members of sets, which may wait for single requests."""
    return _pool("member", LANES)


def settled(futures: list[Future[None]]) -> None:
    """Wait for all; the first failure is raised when none is under way any more."""
    try:
        for future in futures:
            future.result()
    except BaseException:
        for future in futures:
            future.cancel()
        wait(futures)
        raise
