"""Which requests to send for many byte ranges: a pure planner. Whoever fetches decides nothing."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["coalesce", "split"]

Span = tuple[int, int]  # start and stop


def coalesce(ranges: Iterable[Span], *, gap: int, most: int) -> list[Span]:
    """Neighbouring ranges joined where at most ``gap`` unwanted bytes lie between, up to ``most`` bytes each.

    Empty ranges ask for nothing. A single range above ``most`` stays whole: see :func:`split`.

    >>> coalesce([(0, 10), (12, 20), (100, 110), (5, 5)], gap=4, most=50)
    [(0, 20), (100, 110)]
    """
    joined: list[Span] = []
    for start, stop in sorted(span for span in ranges if span[1] > span[0]):
        if joined and start - joined[-1][1] <= gap and max(stop, joined[-1][1]) - joined[-1][0] <= most:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        elif not joined or stop > joined[-1][1]:
            joined.append((max(start, joined[-1][1]) if joined else start, stop))
    return joined


def split(start: int, stop: int, most: int) -> list[Span]:
    """One range in pieces of at most ``most`` bytes, to be fetched side by side.

    >>> split(0, 25, 10)
    [(0, 10), (10, 20), (20, 25)]
    """
    return [(at, min(at + most, stop)) for at in range(start, stop, most)]
