"""The error of restored values, compared with the originals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from math import inf, log10, prod, sqrt
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.base.parallel import map_in_order
from holdall.binary import kernels
from holdall.errors import ContentError
from holdall.model.portions import Portion, split
from holdall.model.tensor import Tensor
from holdall.quant.source_rows import use_float32

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.quant.arrays import Quantized

__all__ = ["Measures", "Sums", "map_pairs", "measure", "sum_errors"]

R = TypeVar("R")

_BLOCK = buffer_size(1 << 18)  # values compared at a time


@dataclass(frozen=True, slots=True)
class Measures:
    """The error of a tensor. ``relative`` is the RMSE over the RMS of the original; ``snr_db`` is that in decibels."""

    count: int
    nbytes: int
    bits_per_weight: float
    rmse: float
    relative: float
    max_error: float
    snr_db: float
    cosine: float


@dataclass(slots=True)
class Sums:
    """The sums that measures are computed from. The sums of several tensors can be added up.

    ``different`` counts the elements that differ, ``wild`` those of them that are not finite on one side, which the
    other sums leave out.
    """

    count: int = 0
    nbytes: int = 0
    different: int = 0
    wild: int = 0
    max_error: float = 0.0
    noise: float = 0.0
    signal: float = 0.0
    restored: float = 0.0
    product: float = 0.0

    def add(self, original: NDArray[np.float32], restored: NDArray[np.float32]) -> None:
        """Add some values."""
        self.join(_sum_pair(original, restored))

    def join(self, other: Sums) -> None:
        """Add the sums of other values."""
        largest = max(self.max_error, other.max_error)
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        self.max_error = largest

    def measures(self) -> Measures:
        """The measures. Without any error the ratio is infinite and the cosine 1."""
        lengths = sqrt(self.signal) * sqrt(self.restored)
        ratio = self.signal / self.noise if self.noise else inf
        return Measures(
            count=self.count,
            nbytes=self.nbytes,
            bits_per_weight=8 * self.nbytes / max(1, self.count),
            rmse=sqrt(self.noise / max(1, self.count - self.wild)),
            relative=sqrt(self.noise / self.signal) if self.signal else (inf if self.noise else 0.0),
            max_error=inf if self.wild else self.max_error,
            snr_db=10 * log10(ratio) if ratio else -inf,
            cosine=min(1.0, self.product / lengths) if lengths else (0.0 if self.noise else 1.0),
        )


def measure(original: NDArray[Any] | Tensor, restored: NDArray[Any] | Tensor | Quantized) -> Measures:
    """Compare a tensor or array with its restored values, block by block.

    >>> import numpy as np
    >>> measure(np.array([3.0, 4.0], np.float32), np.array([3.0, 5.0], np.float32)).max_error
    1.0
    """
    return sum_errors(original, restored).measures()


def sum_errors(original: NDArray[Any] | Tensor, restored: NDArray[Any] | Tensor | Quantized) -> Sums:
    """Return the sums of :func:`measure`."""
    sums = Sums(nbytes=restored.nbytes)
    for each in map_pairs(original, restored, _sum_pair):
        sums.join(each)
    if sums.wild:  # a value that is restored as infinity or NaN must not look like a good one
        sums.noise = inf
    return sums


def _sum_pair(original: NDArray[np.float32], restored: NDArray[np.float32]) -> Sums:
    return Sums(original.size, 0, *kernels.distance(original, restored))


def map_pairs(
    original: NDArray[Any] | Tensor,
    restored: NDArray[Any] | Tensor | Quantized,
    work: Callable[[NDArray[np.float32], NDArray[np.float32]], R],
) -> Iterator[R]:
    """Yield ``work(a, b)`` for flat float32 pieces of equal size of both, in order and on several threads.

    ``work`` keeps no view of them.
    """
    if tuple(original.shape) != tuple(restored.shape):
        raise ContentError(f"the shapes {list(original.shape)} and {list(restored.shape)} cannot be compared")
    cols = prod(original.shape[1:]) or 1
    count = max(8, _BLOCK // cols // 8 * 8) * cols  # complete rows, as encoded tensors are decoded
    pairs = zip(split(_as_tensor(original), count), split(_as_tensor(restored), count), strict=True)
    return map_in_order(lambda pair: _use_floats(pair[0], lambda a: _use_floats(pair[1], partial(work, a))), pairs)


def _use_floats(portion: Portion, work: Callable[[NDArray[np.float32]], R]) -> R:
    return portion.use(lambda values: use_float32(values, portion.tensor.name, work))


def _as_tensor(values: Any) -> Tensor:
    from holdall.quant.arrays import Quantized

    if isinstance(values, Tensor):
        return values
    return values.tensor("") if isinstance(values, Quantized) else Tensor.of("", values)
