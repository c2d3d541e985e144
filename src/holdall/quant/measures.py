"""How far restored values are from the originals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, log10, prod, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.errors import ContentError
from holdall.quant.values import as_float32
from holdall.sizes import tuned

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.quant.arrays import Quantized
    from holdall.tensor import Tensor

__all__ = ["Measures", "Sums", "measure", "paired_blocks"]

_BLOCK = tuned(1 << 18)  # values compared at a time


@dataclass(frozen=True, slots=True)
class Measures:
    """The error of a tensor. ``relative`` is the RMSE by the RMS of the original; ``snr_db`` the same in decibels."""

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
    """What measures are made of; sums of several tensors make the measures of all."""

    count: int = 0
    nbytes: int = 0
    signal: float = 0.0
    noise: float = 0.0
    restored: float = 0.0
    product: float = 0.0
    max_error: float = 0.0

    def add(self, original: NDArray[np.float32], restored: NDArray[np.float32]) -> None:
        """Take in some values."""
        a, b = original.reshape(-1).astype(np.float64), restored.reshape(-1).astype(np.float64)
        miss = a - b
        self.count += a.size
        self.signal += float(np.square(a).sum())
        self.restored += float(np.square(b).sum())
        self.product += float((a * b).sum())
        self.noise += float(np.square(miss).sum())
        self.max_error = max(self.max_error, float(np.abs(miss).max(initial=0.0)))

    def join(self, other: Sums) -> None:
        """Take in another tensor."""
        for name in ("count", "nbytes", "signal", "noise", "restored", "product"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.max_error = max(self.max_error, other.max_error)

    def measures(self) -> Measures:
        """The sums as people want them. What is exact has an infinite ratio and a cosine of 1."""
        lengths = sqrt(self.signal) * sqrt(self.restored)
        return Measures(
            count=self.count,
            nbytes=self.nbytes,
            bits_per_weight=8 * self.nbytes / max(1, self.count),
            rmse=sqrt(self.noise / max(1, self.count)),
            relative=sqrt(self.noise / self.signal) if self.signal else (inf if self.noise else 0.0),
            max_error=self.max_error,
            snr_db=(10 * log10(self.signal / self.noise) if self.signal else -inf) if self.noise else inf,
            cosine=min(1.0, self.product / lengths) if lengths else (0.0 if self.noise else 1.0),
        )


def measure(original: NDArray[Any] | Tensor, restored: NDArray[Any] | Tensor | Quantized) -> Measures:
    """Compare a tensor or array with what it became, block by block.

    >>> import numpy as np
    >>> measure(np.array([3.0, 4.0], np.float32), np.array([3.0, 5.0], np.float32)).max_error
    1.0
    """
    return measured(original, restored).measures()


def measured(original: NDArray[Any] | Tensor, restored: NDArray[Any] | Tensor | Quantized) -> Sums:
    """The sums of :func:`measure`."""
    sums = Sums(nbytes=restored.nbytes)
    for a, b in paired_blocks(original, restored):
        sums.add(a, b)
    return sums


def paired_blocks(
    original: NDArray[Any] | Tensor, restored: NDArray[Any] | Tensor | Quantized
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Both as flat float32 pieces of equal size."""
    if tuple(original.shape) != tuple(restored.shape):
        raise ContentError(f"the shapes {list(original.shape)} and {list(restored.shape)} cannot be compared")
    cols = prod(original.shape[1:]) or 1
    count = max(8, _BLOCK // cols // 8 * 8) * cols  # whole rows, so that encoded tensors give the same pieces
    yield from zip(_blocks(original, count), _blocks(restored, count), strict=True)


def _blocks(values: Any, count: int) -> Iterator[NDArray[np.float32]]:
    from holdall.tensor import Tensor

    if isinstance(values, Tensor):
        yield from (as_float32(block, values.name) for block in values.blocks(count))
        return
    flat = np.asarray(values).reshape(-1)
    yield from (as_float32(flat[start : start + count]) for start in range(0, flat.size, count))
