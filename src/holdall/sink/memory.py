"""Plans into memory: the bytes of a file that never is one."""

from __future__ import annotations

import os
import tempfile

from holdall.plan import Plan
from holdall.sink.file import write_output
from holdall.sink.output import Output

__all__ = ["write_bytes"]


def write_bytes(plan: Plan) -> bytes:
    """Carry out ``plan``; the file it describes, as bytes.

    >>> plan = Plan()
    >>> _ = plan.put(b"HEAD"), plan.align(8)
    >>> write_bytes(plan)
    b'HEAD\\x00\\x00\\x00\\x00'
    """
    if hasattr(os, "memfd_create"):  # a file in memory: late pieces and taps work as they do on a disk
        with os.fdopen(os.memfd_create("holdall", os.MFD_CLOEXEC), "w+b") as file:
            return _carried_out(plan, file.fileno())
    with tempfile.TemporaryFile() as file:
        return _carried_out(plan, file.fileno())


def _carried_out(plan: Plan, fd: int) -> bytes:
    write_output(Output(fd, "<bytes>", fsync=False), plan)
    size = os.fstat(fd).st_size
    data = bytearray(size)
    window = memoryview(data)
    at = 0
    while at < size:
        at += os.preadv(fd, [window[at:]], at)
    return bytes(data)
