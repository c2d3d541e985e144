"""The statistics of all tensors as columns, filled in the background and in file order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.progress import Progress
from holdall.operations.stats import TensorStats, model_stats
from holdall.viewer.task import Task

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.model import Model

__all__ = ["COLUMNS", "Statistics"]

# What a column says, by its name.
COLUMNS = {
    "min": "the smallest value",
    "max": "the largest value",
    "mean": "the mean",
    "std": "the standard deviation",
    "zeros": "how many values are zero",
    "nan": "how many values are not a number",
    "inf": "how many values are infinite",
    "outlier": "how far the farthest value is from the mean, in standard deviations",
}


class Statistics:
    """A column of float64 for each of :data:`COLUMNS`; NaN where a value is unknown or does not exist."""

    def __init__(self, model: Model, waits: bool = False) -> None:
        self._model = model
        count = len(model.tensors)
        self.columns: dict[str, NDArray[np.float64]] = {name: np.full(count, np.nan) for name in COLUMNS}
        self.failures: dict[int, str] = {}  # by row
        self.filled = 0  # rows from the first on
        self.task = Task(self._fill, waits)

    def describe(self, row: int) -> dict[str, float | None]:
        """The statistics of one tensor; None for what is unknown."""
        found = {name: float(column[row]) for name, column in self.columns.items()}
        return {name: value if value == value else None for name, value in found.items()}

    def measure(self, progress: Progress | None = None) -> None:
        """Fill all columns now."""
        self._fill(progress or (lambda done, total: None))

    def _fill(self, progress: Progress) -> None:
        tensors, start = self._model.tensors, self.filled
        names = None if start == 0 else [tensors.names[row] for row in range(start, len(tensors))]
        sizes = tensors.forms().sizes()
        before, total = int(sizes[:start].sum()), int(sizes.sum())

        def count(done: int, _: int | None) -> None:
            progress(before + done, total)

        found = model_stats(self._model, names, bins=0, progress=count)
        try:
            for row, (_, stats) in enumerate(found, start):
                self._keep(row, stats)
                self.filled = row + 1
        finally:
            close: Any = getattr(found, "close", None)
            if close is not None:
                close()

    def _keep(self, row: int, stats: TensorStats | str) -> None:
        if isinstance(stats, str):
            self.failures[row] = stats
            return
        for name in ("zeros", "nan", "inf", "min", "max", "mean", "std"):
            value = getattr(stats, name)
            if value is not None:
                self.columns[name][row] = float(value)
        if stats.std and stats.mean is not None and stats.max is not None and stats.min is not None:
            farthest = max(stats.max - stats.mean, stats.mean - stats.min)
            self.columns["outlier"][row] = farthest / stats.std
