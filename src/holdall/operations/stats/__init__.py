"""Statistics of tensors of any size in one pass: counts, extremes, moments, a histogram, a median.

All cores work at the same time, in bounded memory, and the results do not depend on how many there are.

    >>> import numpy as np
    >>> from holdall import Tensor
    >>> stats = tensor_stats(Tensor.of("w", np.array([1, 2, 2, 7], np.int8)))
    >>> stats.min, stats.max, stats.mean, stats.median, [(b.low, b.count) for b in stats.histogram]
    (1, 7, 3.0, 2, [(1, 1), (2, 2), (7, 1)])
"""

from __future__ import annotations

from holdall.operations.stats.measures import Bin, TensorStats
from holdall.operations.stats.run import Measured, measure_rows, model_stats, tensor_stats

__all__ = ["Bin", "Measured", "TensorStats", "measure_rows", "model_stats", "tensor_stats"]
