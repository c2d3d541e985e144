"""Rows spread over threads: the kernels release the interpreter lock."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from holdall.sizes import tuned

__all__ = ["rows_at_a_time", "spread", "threads_of"]

T = TypeVar("T")

_PIECE = tuned(1 << 18)  # values one call of a kernel takes: 1 MiB of float32, so that a piece stays in the cache


def threads_of(threads: int | None) -> int:
    """How many threads to use: as asked, or one for every processor this process may run on."""
    return max(1, threads if threads is not None else len(os.sched_getaffinity(0)))


def rows_at_a_time(cols: int, piece: int = _PIECE) -> int:
    """Rows of ``cols`` columns that make one piece of work."""
    return max(1, piece // max(1, cols))


def spread(work: Callable[[int, int], T], rows: int, cols: int, threads: int | None = None) -> list[T]:
    """The results of ``work(start, stop)`` for every piece of the rows, in order; the first error in order counts."""
    step = rows_at_a_time(cols)
    starts = range(0, rows, step)
    count = min(threads_of(threads), len(starts))
    if count <= 1:
        return [work(start, min(start + step, rows)) for start in starts]
    with ThreadPoolExecutor(count, "holdall-quant") as pool:
        return list(pool.map(work, starts, [min(start + step, rows) for start in starts]))
