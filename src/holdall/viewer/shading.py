"""What the colours of a treemap say: one number for each tensor, and how those of a branch become one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.model import Model

__all__ = ["Errors", "Shading", "Statistic", "count_elements", "find_ends"]

_OUTSIDE = 0.02  # of all bytes, which lie beyond each end of a scale


class Shading(Protocol):
    """What gives a branch its colour."""

    @property
    def word(self) -> str:
        """What stands before the number of a branch."""

    def average(self, rows: Sequence[int]) -> float:
        """The value of the tensors in ``rows`` together; NaN if none is known."""


@dataclass(frozen=True, slots=True)
class Statistic:
    """A column of statistics: that of a branch is the mean by elements. NaN is unknown, or does not exist."""

    values: NDArray[np.float64]
    elements: NDArray[np.float64]
    word: str = "mean "

    def average(self, rows: Sequence[int]) -> float:
        """The value of some tensors together.

        >>> Statistic(np.array([1.0, 4.0, np.nan]), np.array([3.0, 1.0, 9.0])).average([0, 1, 2])
        1.75
        """
        if len(rows) == 1:
            return float(self.values[rows[0]])
        values, weights = self.values[rows], self.elements[rows]
        known = np.isfinite(values) & (weights > 0)
        if not known.any():
            return float("nan")
        top = float(np.abs(values[known]).max()) or 1.0  # a sum of the largest numbers would be infinite
        return top * float(np.average(values[known] / top, weights=weights[known]))


@dataclass(frozen=True, slots=True)
class Errors:
    """How far tensors are apart: the norm of the difference beside that of the values, both as log10.

    The error of a branch is that of its tensors taken as one. Equal tensors have -inf for both, and change nothing; NaN
    is unknown.
    """

    noises: NDArray[np.float64]
    signals: NDArray[np.float64]
    word: str = "together "

    def average(self, rows: Sequence[int]) -> float:
        """The error of some tensors together.

        >>> round(Errors(np.log10([0.3, 0.4]), np.log10([3.0, 4.0])).average([0, 1]), 6)
        0.1
        """
        noises, signals = self.noises[rows], self.signals[rows]
        known = ~np.isnan(noises)
        if not known.any():
            return float("nan")
        noise = _add_norms(noises[known])
        if noise == -np.inf:
            return 0.0
        with np.errstate(over="ignore"):
            return float(np.power(10.0, noise - _add_norms(signals[known])))


def _add_norms(logs: NDArray[np.float64]) -> float:
    """The log10 of the norm of what parts of these norms are together."""
    top = float(logs.max())
    return top if np.isinf(top) else top + float(np.log10(np.sum(10.0 ** (2 * (logs - top))))) / 2


def count_elements(model: Model) -> NDArray[np.float64]:
    """The number of elements of each tensor: the weights of its statistics."""
    counts: NDArray[np.float64] = model.tensors.forms().column(lambda form: min(prod(form.shape), 1 << 62), np.float64)
    return counts


def find_ends(values: NDArray[np.float64], sizes: NDArray[np.float64]) -> tuple[float, float]:
    """The ends of a scale, so that no small tensor sets them: the values at 2 % and at 98 % of the bytes.

    >>> find_ends(np.array([0.02, 0.04, 147.8]), np.array([5e6, 5e6, 4096]))
    (0.02, 0.04)
    """
    known = np.isfinite(values)
    if not known.any():
        return 0.0, 1.0
    order = np.argsort(values[known], kind="stable")
    found, shares = values[known][order], np.maximum(sizes[known][order], 0.0)
    sums = np.cumsum(shares) if shares.any() else np.arange(1.0, len(found) + 1)
    low, high = np.searchsorted(sums, [sums[-1] * _OUTSIDE, sums[-1] * (1 - _OUTSIDE)])
    return float(found[low]), float(found[high])
