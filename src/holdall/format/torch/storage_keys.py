"""The keys of storages. PyTorch numbers them, so that a column of integers can nearly always hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Keys", "numbers_of"]

_DIGITS = 15


class Keys(Sequence[str]):
    """Keys that are decoded from the pickle when asked for; the caller has checked that they are digits."""

    def __init__(self, data: bytes, at: NDArray[np.uint64], sizes: NDArray[np.uint64]) -> None:
        self._data, self._at, self._sizes = data, at, sizes

    def __len__(self) -> int:
        return len(self._at)

    def __getitem__(self, row: int) -> str:  # type: ignore[override]  # rows only, no slices
        at = int(self._at[row])
        return self._data[at : at + int(self._sizes[row])].decode("ascii")


def numbers_of(data: bytes, at: NDArray[np.uint64], sizes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The number in each piece of ``data``, if it is written as Python would print it; else -1.

    >>> places, sizes = np.array([0, 2, 3], np.uint64), np.array([2, 1, 2], np.uint64)
    >>> numbers_of(b"12x07", places, sizes).tolist()
    [12, -1, -1]
    """
    values = np.zeros(len(at), np.int64)
    sound = (sizes > 0) & (sizes <= _DIGITS)
    letters = np.frombuffer(data, np.uint8)
    for place in range(int(sizes[sound].max(initial=0))):
        rows = (sound & (sizes > place)).nonzero()[0]
        digits = letters[at[rows] + np.uint64(place)].astype(np.int64) - ord("0")
        good = (digits >= 0) & (digits <= 9)
        if place == 0:
            good &= (digits > 0) | (sizes[rows] == 1)
        sound[rows] = good
        values[rows] = values[rows] * 10 + digits
    return np.where(sound, values, -1)
