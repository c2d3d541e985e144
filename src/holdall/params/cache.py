"""Arrays by key under a budget: the least recently used goes first, pinned ones stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

__all__ = ["Cache"]


@dataclass(slots=True)
class _Kept:
    value: NDArray[Any]
    pinned: bool


class Cache:
    """Who uses it holds a lock. ``budget`` None never evicts.

    >>> import numpy as np
    >>> cache = Cache(budget=16)
    >>> [cache.put(key, np.zeros(1)) for key in (1, 2, 3)], list(cache), cache.held, cache.evictions
    ([True, True, True], [2, 3], 16, 1)
    """

    def __init__(self, budget: int | None = None) -> None:
        self.budget = budget
        self.held = 0  # bytes
        self.pinned = 0  # bytes, of those held
        self.peak = 0  # the most that were ever held
        self.evictions = 0
        self.refused = 0
        self._kept: dict[int, _Kept] = {}  # in order of last use

    def __contains__(self, key: object) -> bool:
        return key in self._kept

    def __iter__(self) -> Any:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: int) -> NDArray[Any] | None:
        """The array, now the most recently used; None when it is not here."""
        found = self._kept.pop(key, None)
        if found is None:
            return None
        self._kept[key] = found
        return found.value

    def put(self, key: int, value: NDArray[Any], *, pinned: bool = False) -> bool:
        """Keep ``value``, evicting others for it. False when it cannot be kept beside what is pinned."""
        self.drop(key)
        size = value.nbytes
        if self.budget is not None:
            if self.pinned + size > self.budget:
                self.refused += 1
                return False
            self._make_room(self.budget - size)
        self._kept[key] = _Kept(value, pinned)
        self.held += size
        self.pinned += size * pinned
        self.peak = max(self.peak, self.held)
        return True

    def pin(self, key: int) -> None:
        """Keep it whatever comes, if it is here."""
        found = self._kept.get(key)
        if found is not None and not found.pinned:
            found.pinned = True
            self.pinned += found.value.nbytes

    def drop(self, key: int) -> None:
        """Let go of it, if it is here."""
        found = self._kept.pop(key, None)
        if found is not None:
            self.held -= found.value.nbytes
            self.pinned -= found.value.nbytes * found.pinned

    def clear(self) -> None:
        """Let go of everything."""
        self._kept.clear()
        self.held = self.pinned = 0

    def _make_room(self, most: int) -> None:
        if self.held <= most:
            return
        for key in [key for key, kept in self._kept.items() if not kept.pinned]:
            self.drop(key)
            self.evictions += 1
            if self.held <= most:
                return
