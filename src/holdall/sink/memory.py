"""Writes a plan to memory: the bytes of a file, without a file."""

from __future__ import annotations

from holdall.base.platform import memory_file
from holdall.sink.output import Output
from holdall.sink.plan import Plan
from holdall.sink.writer import PlanWriter

__all__ = ["write_bytes"]


def write_bytes(plan: Plan) -> bytes:
    """Return the bytes of the file that ``plan`` describes.

    >>> plan = Plan()
    >>> _ = plan.put(b"HEAD"), plan.align(8)
    >>> write_bytes(plan)
    b'HEAD\\x00\\x00\\x00\\x00'
    """
    with memory_file() as file:  # late pieces and taps work as they do on a disk
        PlanWriter(Output(file.fileno(), "<bytes>", fsync=False), plan, {}, None).run()
        file.seek(0)
        return file.read()
