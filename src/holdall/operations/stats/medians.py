"""The median, exact: from the codes of distances if many values are at hand, so that few have to be sorted."""

from __future__ import annotations

from math import isinf
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.operations.stats.histogram import CodedValues
    from holdall.operations.stats.measures import Number

__all__ = ["average_exactly", "find_median"]


def find_median(values: NDArray[Any], coded: CodedValues | None) -> Number:
    """The median of finite ``values``; ``coded`` says where the middle ones are."""
    ranks = [(values.size - 1) // 2, values.size // 2]
    if coded is not None:
        first, low, high = coded.find_span(*ranks)
        values = values[(values >= low) & (values < high)]
        ranks = [rank - first for rank in ranks]
    return average_exactly(*np.partition(values, ranks)[ranks].tolist())


def average_exactly(low: Number, high: Number) -> Number:
    """The mean of the two middle elements: an integer if it is one of integers, else rounded once to float64.

    >>> average_exactly(1, 2), average_exactly(1, 3), average_exactly(1.0, 3.0)
    (1.5, 2, 2.0)
    """
    if low == high:
        return low + 0  # a zero without its sign
    total = low + high
    if isinstance(total, int):
        return total / 2 if total % 2 else total // 2
    # A sum is rounded only where half of it is exact, and halves are exact where the sum is beyond the type.
    return low / 2 + high / 2 if isinf(total) else total / 2
