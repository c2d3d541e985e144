"""What the compressed parts of a file may take in memory once they are expanded and read.

A compressed index of a few kilobytes can be right and describe a hundred thousand tensors, or be a bomb: neither its
stored size nor its expanded size tells. So a reader estimates the memory that it will need, from the bytes, rows and
values that it finds, and asks before it takes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from holdall.base.check import Check, figure

__all__ = ["Expansion"]

_SHARE = 128  # times its own size a file may always take: an entry of three bytes becomes a tensor of a few hundred
_VALUE = 128  # of a small Python object, with its token and its place in a list or dict


class Expansion:
    """The memory that the compressed parts of one file may take together.

    A file may take 128 times its size, and what all files of a model take beyond that is held to
    ``Limits.expanded_bytes``. ``elsewhere`` are the sizes of other files that this one describes; they are asked for
    only when they are needed. A part that is read again counts once.

    >>> from holdall.limits import Limits
    >>> check = Check(limits=Limits(expanded_bytes=1000))
    >>> expansion = Expansion(check, 100)
    >>> expansion.add("TIDX", 13_000, check, 0, "an index")
    >>> expansion.values_left(check)
    6
    """

    def __init__(self, check: Check, stored: int, elsewhere: Iterable[int] = ()) -> None:
        self._beyond = check.beyond  # of all files that are read with this check
        self._stored = stored
        self._elsewhere = iter(elsewhere)
        self._costs: dict[str, int] = {}

    def add(self, part: str, cost: int, check: Check, at: int | None, what: str) -> None:
        """Count the memory of ``part``, called ``what`` in messages, and refuse the file if that is too much.

        What is refused is not expanded, so it does not count against the parts that are read after it.
        """
        before = self._costs.get(part, 0)
        self._costs[part] = max(cost, before)
        while self._left(check) < 0:
            more = next(self._elsewhere, None)
            if more is None:
                self._costs[part] = before
                self.refuse(check, at, f"{what}: expanded, it would take {figure(cost)} bytes of memory", part)
            self._stored += more
        self._beyond[self] = max(0, sum(self._costs.values()) - _SHARE * self._stored)

    def values_left(self, check: Check) -> int:
        """The number of values of a document for which there is room."""
        return max(0, self._left(check)) // _VALUE

    def _left(self, check: Check) -> int:
        """The bytes of memory that this file may still take."""
        own = _SHARE * self._stored - sum(self._costs.values())
        return own + max(0, check.limits.expanded_bytes - self._others())

    def _others(self) -> int:
        """The bytes beyond their shares that other files take."""
        return sum(self._beyond.values()) - self._beyond.get(self, 0)

    def refuse(self, check: Check, at: int | None, message: str, part: str | None = None) -> NoReturn:
        """Fail because the file would take too much memory; the message names all that is counted beside ``part``."""
        room = _SHARE * self._stored + check.limits.expanded_bytes
        counted = [f"{name} takes {figure(cost)}" for name, cost in self._costs.items() if cost and name != part]
        counted += [f"other files take {others}"] if (others := self._others()) else []
        used = f", of which {' and '.join(counted)}" if counted else ""
        check.exceed("expanded_bytes", at, f"{message}; a file of {self._stored} bytes may take {room}{used}")
