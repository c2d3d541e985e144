"""Running hostile work where it cannot hurt, and measuring what it costs. Linux only, as the measuring is."""

from __future__ import annotations

import os
import pickle
import resource
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["Cost", "cost_of", "isolated", "resident_bytes", "sparse_writes"]

T = TypeVar("T")

_STATUS = Path("/proc/self/status")
_FORGET_PEAK = "5"  # written to clear_refs, it makes the peak of resident memory start anew


@dataclass(frozen=True, slots=True)
class Cost:
    """What a call took: seconds of processor time, and by how much resident memory grew at its peak."""

    seconds: float
    peak_bytes: int


def isolated(function: Callable[..., T], *arguments: Any, memory: int = 1 << 30, seconds: int = 120) -> T:
    """Call ``function`` in a forked process that may take ``memory`` more bytes and so many processor seconds.

    Its result comes back pickled; whatever it raises is an AssertionError here, with the traceback as text. One
    that waits for ever is ended as well.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _run_and_leave(writing, function, arguments, memory, seconds)
    os.close(writing)
    data = _all_from(reading, child, 3 * seconds)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise AssertionError(f"the process was ended by {signal.Signals(os.WTERMSIG(status)).name}")
    fine, result = pickle.loads(data)
    if not fine:
        raise AssertionError(result)
    value: T = result
    return value


def _all_from(reading: int, child: int, seconds: float) -> bytes:
    """What the child says until it ends, or is ended because it says nothing for so long."""
    parts: list[bytes] = []
    try:
        while select.select([reading], [], [], seconds)[0]:
            part = os.read(reading, 1 << 20)
            if not part:
                return b"".join(parts)
            parts.append(part)
        os.kill(child, signal.SIGALRM)
        return b""
    finally:
        os.close(reading)


def _run_and_leave(
    writing: int, function: Callable[..., Any], arguments: tuple[Any, ...], memory: int, seconds: int
) -> None:
    """The life of the child; it never returns, so that nothing of the parent runs twice."""
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a handler of the parent's would keep it from being ended
        cap = _status("VmSize") + memory
        resource.setrlimit(resource.RLIMIT_AS, (cap, cap))
        used = int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, used + seconds + 5))
        answer = (True, function(*arguments))
    except BaseException:
        answer = (False, traceback.format_exc())
    try:
        with open(writing, "wb") as pipe:
            pipe.write(pickle.dumps(answer))
    finally:
        os._exit(0)


def resident_bytes() -> int:
    """Resident memory of this process now."""
    return _status("VmRSS")


def cost_of(function: Callable[[], object]) -> Cost:
    """What ``function()`` takes. The peak is exact in a process of its own: call it through :func:`isolated`."""
    with suppress(OSError):  # without it the peak includes what came before: never less than the truth
        Path("/proc/self/clear_refs").write_text(_FORGET_PEAK)
    before, began = resident_bytes(), time.process_time()
    function()
    return Cost(time.process_time() - began, max(0, _status("VmHWM") - before))


def _status(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{_STATUS} has no {field}")


@contextmanager
def sparse_writes() -> Iterator[None]:
    """Inside, sinks leave holes where zeros would be, so that a file of a gigabyte costs nothing."""
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
