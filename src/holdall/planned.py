"""A file that a plan describes, before it is written: what is known of it can be read already."""

from __future__ import annotations

from bisect import bisect_right

from holdall.payload import Held, Payload
from holdall.plan import Constant, Late, Plan
from holdall.source import Source

__all__ = ["PlannedSource"]


class PlannedSource(Source):
    """The bytes that ``plan`` will make, zeros where it has no piece. Pieces that are made last cannot be read.

    >>> from holdall.plan import Plan
    >>> plan = Plan()
    >>> plan.put(b"HEAD"), plan.align(8), plan.stream(Held(b"data"))
    (0, 8, 8)
    >>> PlannedSource(plan).read(2, 8)
    b'AD\\x00\\x00\\x00\\x00da'
    """

    name = "<plan>"

    def __init__(self, plan: Plan) -> None:
        assert self.readable(plan)
        self.size = plan.cursor
        self._pieces: list[tuple[int, Payload]] = [
            (piece.offset, Held(piece.data) if isinstance(piece, Constant) else piece.payload)
            for piece in plan.pieces
            if not isinstance(piece, Late) and piece.size
        ]
        self._starts = [start for start, _ in self._pieces]

    @staticmethod
    def readable(plan: Plan) -> bool:
        """Whether all of the file is known before its payloads have passed."""
        return not plan.tails and not any(isinstance(piece, Late) for piece in plan.pieces)

    @property
    def identity(self) -> tuple[object, ...]:
        return ("plan", id(self))

    def payload(self, offset: int, size: int) -> Payload | None:
        """The payload that fills exactly this stretch; None when no single one does."""
        row = bisect_right(self._starts, offset) - 1
        if row < 0 or self._starts[row] != offset or self._pieces[row][1].size != size:
            return None
        return self._pieces[row][1]

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self._inside(offset, len(buffer))
        buffer[:] = bytes(len(buffer))
        end = offset + len(buffer)
        for start, payload in self._pieces[max(0, bisect_right(self._starts, offset) - 1) :]:
            if start >= end:
                break
            low, high = max(start, offset), min(start + payload.size, end)
            if low < high:
                buffer[low - offset : high - offset] = payload.part(low - start, high - start)

    def close(self) -> None:
        return None
