"""Cosines between vectors, and the nearest of many."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from holdall.base.buffer_sizes import buffer_size

__all__ = ["compute_cosines", "find_nearest"]

_COSINES = buffer_size(1 << 22)  # computed at a time


def compute_cosines(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the cosine of every row of ``left`` with every row of ``right``; 0 for a row of zeros.

    >>> compute_cosines(np.float32([[2, 0]]), np.float32([[1, 0], [0, 3], [0, 0]])).tolist()
    [[1.0, 0.0, 0.0]]
    """
    found: NDArray[np.float32] = _to_units(left) @ _to_units(right).T
    return found


def find_nearest(
    queries: NDArray[np.float32], vectors: NDArray[np.float32], count: int
) -> list[list[tuple[int, float]]]:
    """Find for each query the ``count`` rows of ``vectors`` with the largest cosine: row and cosine, nearest first.

    Of equal cosines the first row comes first.

    >>> find_nearest(np.float32([[0, 1]]), np.float32([[4, 3], [0, 2], [1, 0], [4, 3]]), 2)
    [[(1, 1.0), (0, 0.6000000238418579)]]
    """
    units = _to_units(vectors)
    step = max(1, _COSINES // max(1, len(units)))
    found: list[list[tuple[int, float]]] = []
    for start in range(0, len(queries), step):
        cosines = _to_units(queries[start : start + step]) @ units.T
        for row in cosines:
            order = np.argsort(-row, kind="stable")[:count]
            found.append(list(zip(order.tolist(), row[order].tolist(), strict=True)))
    return found


def _to_units(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    units: NDArray[np.float32] = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return units.astype(np.float32)
