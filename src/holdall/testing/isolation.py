"""Runs a call in a limited process, and measures what it costs. Exact on Linux; see docs/platforms.md for others."""

from __future__ import annotations

import os
import pickle
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from holdall.base import platform

__all__ = ["Cost", "cost_of", "resident_bytes", "run_isolated", "sparse_writes"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a call: seconds of processor time, and the peak growth of resident memory."""

    seconds: float
    peak_bytes: int


def run_isolated(function: Callable[..., T], *arguments: Any, memory: int = 1 << 30, seconds: int = 120) -> T:
    """Call ``function`` in a forked process that may take ``memory`` more bytes and ``seconds`` of processor time.

    Its result comes back pickled. What it raises becomes an AssertionError here, with the traceback as text. A process
    that hangs is killed. On Windows, which does not fork, the call runs in this process and without limits.
    """

    def answer() -> bytes:
        try:
            return pickle.dumps((True, function(*arguments)))
        except BaseException:
            return pickle.dumps((False, traceback.format_exc()))

    try:
        fine, result = pickle.loads(platform.run_limited(answer, memory, seconds))
    except ChildProcessError as error:
        raise AssertionError(str(error)) from None
    if not fine:
        raise AssertionError(result)
    value: T = result
    return value


def resident_bytes() -> int:
    """Resident memory of this process now."""
    return platform.resident_memory()


def cost_of(function: Callable[[], object]) -> Cost:
    """What ``function()`` takes. The peak is exact in a process of its own: call it through :func:`run_isolated`."""
    with suppress(OSError):  # without it the peak includes what came before: never less than the truth
        platform.reset_peak_memory()
    before, began = resident_bytes(), time.process_time()
    function()
    return Cost(time.process_time() - began, max(0, platform.peak_memory() - before))


@contextmanager
def sparse_writes() -> Iterator[None]:
    """Make sinks leave holes instead of zeros, so that a file of a gigabyte takes no space."""
    from holdall.sink.output import Output

    plain = Output.write

    def write(self: Output, data: memoryview, at: int) -> None:
        if data and data[0] == 0 and data == bytes(len(data)):
            end = at + len(data)
            if os.fstat(self.fd).st_size < end:
                os.ftruncate(self.fd, end)
        else:
            plain(self, data, at)

    Output.write = write  # type: ignore[method-assign]
    try:
        yield
    finally:
        Output.write = plain  # type: ignore[method-assign]
