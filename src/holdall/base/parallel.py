"""Work on all cores: one pool of threads for the process, and results in order.

A pass over a model is a list of jobs of some megabytes each. The kernels, hashes and reads that a job calls release the
interpreter lock, so threads are enough.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdall.base.platform import after_fork, core_count
from holdall.errors import UnsupportedError

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["Job", "count_ahead", "map_in_order", "map_spans", "stop_jobs", "thread_count", "use_threads"]

T = TypeVar("T")
R = TypeVar("R")

_VARIABLE = "HOLDALL_THREADS"
_MOST = 256  # threads: more would only take memory
_AHEAD = 2  # jobs for each thread that are begun before the first result is taken

_chosen: ContextVar[int | None] = ContextVar("holdall-threads", default=None)


def thread_count(threads: int | None = None) -> int:
    """How many threads a pass may use: ``threads``, or what :func:`use_threads` or HOLDALL_THREADS says.

    If nothing says a number, it is that of the processors that this process may run on. There are never more than 256.
    """
    wanted = threads if threads is not None else _chosen.get()
    if wanted is None:
        text = os.environ.get(_VARIABLE)
        wanted = core_count() if not text else _parse_count(text)
    return min(max(1, wanted), _MOST)


def _parse_count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 6 or int(text) < 1:
        raise UnsupportedError(f"{_VARIABLE} is a number of threads from 1 on, not {text!r}")
    return int(text)


@contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """A block whose passes use ``count`` threads; None changes nothing.

    >>> with use_threads(3):
    ...     thread_count()
    3
    """
    before = _chosen.set(_chosen.get() if count is None else count)
    try:
        yield
    finally:
        _chosen.reset(before)


def map_in_order(work: Callable[[T], R], items: Iterable[T], threads: int | None = None) -> Iterator[R]:
    """Yield ``work(item)`` for every item, in their order, computed on several threads.

    ``items`` is read as far ahead as the threads need it. An error is raised in its turn, after which no other job
    begins. Work may itself call this function: where all threads are busy, the caller computes.

    >>> list(map_in_order(len, ["a", "bcd", ""]))
    [1, 3, 0]
    """
    count = thread_count(threads)
    if count == 1 or (isinstance(items, Sized) and len(items) <= 1):
        yield from map(work, items)
        return
    begun: deque[Job[R]] = deque()
    try:
        for item in items:
            begun.append(Job(work, item, count))
            if len(begun) >= count_ahead(count):
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        stop_jobs(begun)


class Job(Generic[R]):
    """``work(item)`` on another thread of the pool, begun as soon as one is free.

    >>> Job(len, "abc").result()
    3
    """

    def __init__(self, work: Callable[[T], R], item: T, threads: int | None = None) -> None:
        self._work: Callable[[], R] = partial(work, item)
        self._future: Future[R] | None = _pool(thread_count(threads)).submit(copy_context().run, self._work)

    def result(self) -> R:
        """Return the result, once: the job does not keep it.

        It is computed here if no thread has begun with it, so that work inside work never waits for itself.
        """
        future, self._future = self._future, None
        assert future is not None, "the result of a job is taken once"
        return self._work() if future.cancel() else future.result()

    def cancel(self) -> Future[R] | None:
        """Keep the job from beginning; if it has begun, return what ends with it."""
        return None if self._future is None or self._future.cancel() else self._future


def stop_jobs(jobs: Iterable[Job[Any]]) -> None:
    """Keep jobs from beginning, and wait for those that have begun: memory that they use is not used again before."""
    running = [begun for job in jobs if (begun := job.cancel()) is not None]
    if running:
        from concurrent.futures import wait

        wait(running)


def count_ahead(threads: int | None = None) -> int:
    """How many jobs :func:`map_in_order` begins before their first result is taken."""
    count = thread_count(threads)
    return 1 if count == 1 else _AHEAD * count + 1


def map_spans(
    work: Callable[[int, int], R], count: int, step: int, threads: int | None = None, least: int = 0
) -> Iterator[R]:
    """Yield ``work(start, stop)`` for spans of ``step`` numbers from 0 to ``count`` and a rest, as by map_in_order.

    With ``least`` spans are shorter where some threads would have none: by multiples of it, of which ``step`` is one.

    >>> list(map_spans(lambda start, stop: (start, stop), 5, 2))
    [(0, 2), (2, 4), (4, 5)]
    >>> list(map_spans(lambda start, stop: (start, stop), 5, 4, threads=4, least=2))
    [(0, 2), (2, 4), (4, 5)]
    """
    if least:
        step = min(step, -(-count // (thread_count(threads) * least)) * least)
    if count <= step:  # another thread would cost more than it saves
        return iter([work(0, count)] if count else [])
    return map_in_order(lambda start: work(start, min(start + step, count)), range(0, count, step), threads)


@cache
def _pool(count: int) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(count, "holdall")


after_fork(_pool.cache_clear)  # threads do not survive a fork
