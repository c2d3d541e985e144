"""A cache of values under a budget: evicts the least recently used, never a pinned one."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

__all__ = ["Cache"]


@dataclass(slots=True)
class _Kept:
    value: Any
    size: int
    pinned: bool


class Cache:
    """Values by key, each with its size. The caller holds a lock. With ``budget`` None nothing is evicted.

    >>> cache = Cache(budget=16)
    >>> [cache.put(key, "value", 8) for key in (1, 2, 3)], list(cache), cache.held, cache.evictions
    ([True, True, True], [2, 3], 16, 1)
    """

    def __init__(self, budget: int | None = None) -> None:
        self.budget = budget
        self.peak = 0  # the highest value of held
        self.evictions = 0
        self.refused = 0
        self._kept: OrderedDict[int, _Kept] = OrderedDict()  # in order of last use
        self._held = 0
        self._pinned = 0
        self._is_changing = False  # stays True where an interrupt came between a change and its count

    @property
    def held(self) -> int:
        """The bytes of all values."""
        self._settle()
        return self._held

    @property
    def pinned(self) -> int:
        """The bytes of the pinned values."""
        self._settle()
        return self._pinned

    def __contains__(self, key: object) -> bool:
        return key in self._kept

    def __iter__(self) -> Any:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: int) -> Any:
        """Return the value, which becomes the most recently used, or None."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found.value

    def put(self, key: int, value: Any, size: int, *, pinned: bool = False) -> bool:
        """Keep ``value``, evicting others for its ``size``. Return False if it does not fit beside the pinned ones."""
        self.drop(key)
        if self.budget is not None:
            if self.pinned + size > self.budget:
                self.refused += 1
                return False
            self._make_room(self.budget - size)
        self._is_changing = True
        self._kept[key] = _Kept(value, size, pinned)
        self._held += size
        self._pinned += size * pinned
        self._is_changing = False
        self.peak = max(self.peak, self._held)
        return True

    def pin(self, key: int) -> None:
        """Never evict this value, if it is in the cache."""
        self._settle()
        found = self._kept.get(key)
        if found is not None and not found.pinned:
            self._is_changing = True
            found.pinned = True
            self._pinned += found.size
            self._is_changing = False

    def drop(self, key: int) -> None:
        """Remove a value, if it is in the cache."""
        self._settle()
        self._is_changing = True
        found = self._kept.pop(key, None)
        if found is not None:
            self._held -= found.size
            self._pinned -= found.size * found.pinned
        self._is_changing = False

    def clear(self) -> None:
        """Remove all values."""
        self._is_changing = True
        self._kept.clear()
        self._settle()

    def _make_room(self, most: int) -> None:
        if self._held <= most:
            return
        for key in [key for key, kept in self._kept.items() if not kept.pinned]:
            self.drop(key)
            self.evictions += 1
            if self._held <= most:
                return

    def _settle(self) -> None:
        """Count anew after an interrupt."""
        if self._is_changing:
            self._held = sum(kept.size for kept in self._kept.values())
            self._pinned = sum(kept.size for kept in self._kept.values() if kept.pinned)
            self._is_changing = False
