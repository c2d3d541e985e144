"""How far the values of two tensors of one shape are apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.base.parallel import map_in_order
from holdall.base.progress import ignore_count
from holdall.model.dtypes import DType
from holdall.model.portions import split
from holdall.model.tensor import Tensor
from holdall.quant.measures import Sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Distance", "measure_distance"]

_BLOCK = buffer_size(1 << 20)  # elements that a thread compares at a time


@dataclass(frozen=True, slots=True)
class Distance:
    """How far two tensors of one shape are apart. Two NaNs are equal, and so are equal infinities.

    ``wild`` counts the elements that differ and are not finite on one side; the measures leave them out.
    """

    count: int
    different: int
    wild: int
    max: float
    rmse: float
    snr_db: float  # the signal is a, the noise a-b; inf if the finite elements are equal
    cosine: float


def measure_distance(a: Tensor, b: Tensor, on_bytes: Callable[[int], object] = ignore_count) -> Distance:
    """Measure the distance in blocks of float32, or of float64 for types that float32 cannot hold exactly.

    ``on_bytes`` gets the size of each block of ``a`` that was measured; what it raises ends the work.
    """
    exact = _fits_f32(a) and _fits_f32(b)

    def compare(x: NDArray[Any], y: NDArray[Any]) -> Sums:
        if not exact:
            return _measure_wide(x, y)
        part = Sums()
        part.add(_to_f32(a, x), _to_f32(b, y))
        return part

    sums = Sums()
    for part in _map_blocks(a, b, compare):
        sums.join(part)
        on_bytes(a.nbytes * part.count // a.count)
    found = sums.measures()
    return Distance(a.count, sums.different, sums.wild, found.max_error, found.rmse, found.snr_db, found.cosine)


def _map_blocks(a: Tensor, b: Tensor, work: Callable[[NDArray[Any], NDArray[Any]], Sums]) -> Iterator[Sums]:
    """Yield ``work`` of blocks of both tensors, which have one shape, in order. Encoded ones are decoded by rows."""
    row = prod(a.shape[1:]) or 1
    encoded = not isinstance(a.dtype, DType) or not isinstance(b.dtype, DType)
    count = max(8, _BLOCK // row // 8 * 8) * row if encoded else _BLOCK
    pairs = zip(split(a, count), split(b, count), strict=True)
    return map_in_order(lambda pair: pair[0].use(lambda x: pair[1].use(lambda y: work(x, y))), pairs)


def _fits_f32(tensor: Tensor) -> bool:
    dtype = tensor.dtype
    return not isinstance(dtype, DType) or dtype.bits <= 16 or dtype.name == "f32"


def _to_f32(tensor: Tensor, block: NDArray[Any]) -> NDArray[np.float32]:
    wide = tensor.dtype.widen(block) if isinstance(tensor.dtype, DType) else block
    return np.ascontiguousarray(wide, np.float32)


def _measure_wide(x: NDArray[Any], y: NDArray[Any]) -> Sums:
    """Measure the sums of two blocks, in float64 or complex128. Equality is decided before the values are converted."""
    kind = np.complex128 if "c" in (x.dtype.kind, y.dtype.kind) else np.float64
    p, q = x.astype(kind), y.astype(kind)
    same = (x == y) | ((p != p) & (q != q))
    both = np.isfinite(p) & np.isfinite(q)
    p, q = np.where(both, p, 0), np.where(both, q, 0)
    with np.errstate(over="ignore", invalid="ignore"):  # squares of large numbers are infinite, and shown so
        apart = np.abs(p - q)
        sums = (float((apart * apart).sum()), float((np.abs(p) ** 2).sum()), float((np.abs(q) ** 2).sum()))
        product = float((p * q.conj()).real.sum())
    counts = x.size, 0, int((~same).sum()), int((~same & ~both).sum())
    return Sums(*counts, float(apart.max(initial=0)), *sums, product)
