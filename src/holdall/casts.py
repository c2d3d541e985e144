"""Lazy changes to the values of one tensor: another dtype, reversed axes, numbers out of a quantized payload.

Nothing is read here. A changed tensor gets a payload that is computed, block by block, when the sink asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from holdall.dtypes import DTYPES, FINITE, DType, float_info
from holdall.errors import ContentError
from holdall.payload import Made
from holdall.sizes import tuned
from holdall.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["cast", "dequantized", "transposed"]

_BLOCK = tuned(16 << 20)  # bytes of the larger side of a block on its way through a cast or a transposition


def cast(tensor: Tensor, dtype: DType, on_warning: Callable[[str], None] = lambda text: None) -> Tensor:
    """``tensor`` in another dtype. Floats round to nearest even; an integer that would become another number stops it.

    ``on_warning`` receives how many values are beyond the new type, once the tensor has been made.
    """
    if tensor.dtype == dtype:
        return tensor
    if not isinstance(tensor.dtype, DType):
        raise ContentError(f"tensor {tensor.name!r} is {tensor.dtype}: dequantize it before casting")
    if tensor.payload is None:
        return Tensor(tensor.name, dtype, tensor.shape, None)
    source = tensor.dtype
    count = _BLOCK * 8 // max(source.bits, dtype.bits, 32)

    def make() -> Iterator[memoryview]:
        beyond = first = 0
        for block in tensor.blocks(count):
            values = source.widened(block)
            try:
                stored = dtype.encode(values)
                if dtype.kind in ("float", "complex") and values.dtype.kind in "iub":
                    _refuse_other_integers(values, dtype, stored, first)
            except ContentError as error:
                raise ContentError(f"tensor {tensor.name!r}: {error}") from None
            beyond += _beyond(values, dtype, stored)
            yield stored
            first += values.size
        if beyond:
            noun = "value is" if beyond == 1 else "values are"
            become = "held at its largest" if dtype.name in FINITE else "now infinite or NaN"
            on_warning(f"tensor {tensor.name!r}: {beyond} {noun} beyond {dtype} and {become}")

    return Tensor(tensor.name, dtype, tensor.shape, Made(dtype.nbytes(tensor.shape), make, tensor.payloads))


def _refuse_other_integers(values: NDArray[Any], dtype: DType, stored: memoryview, first: int) -> None:
    """ContentError for an integer that a cast to floats would change."""
    import numpy as np

    back = dtype.decode_flat(stored, 0, values.size).real.astype(np.float64)
    exact = np.abs(back) < 2.0**63  # what the comparison can tell, infinities apart
    exact[exact] = back[exact].astype(np.int64) == values.astype(np.int64, copy=False)[exact]
    if not exact.all():
        at = int((~exact).argmax())
        raise ContentError(f"element {first + at} is {values[at]}, which {dtype} does not hold")


def _beyond(values: NDArray[Any], dtype: DType, stored: memoryview) -> int:
    """How many numbers a cast to floats makes infinite, infinities NaN, or holds at the largest there is."""
    import numpy as np

    if values.dtype.kind not in "fcV" or dtype.kind not in ("float", "complex"):
        return 0
    largest = float(float_info(dtype.numpy).max)
    signed = dtype.name != "f8_e8m0"  # which has no zero either
    if signed and largest >= float(float_info(values.dtype).max):
        return 0
    if values.dtype.itemsize == 1:
        values = values.astype(np.float32)
    with np.errstate(over="ignore"):  # of complex numbers
        over = np.abs(values) > largest
    if signed and not over.any():
        return 0
    if dtype.name in FINITE:  # it has refused what is not finite
        return int(over.sum())
    back = dtype.decode_flat(stored, 0, values.size)
    return int(((np.isfinite(values) & ~np.isfinite(back)) | (np.isinf(values) & np.isnan(back))).sum())


def transposed(tensor: Tensor) -> Tensor:
    """``tensor`` with its axes in reverse order, row blocks made one at a time."""
    if not isinstance(tensor.dtype, DType):
        raise ContentError(f"tensor {tensor.name!r} is {tensor.dtype}: dequantize it before transposing")
    dtype, shape = tensor.dtype, tensor.shape[::-1]
    if len(shape) < 2 or tensor.payload is None:
        return tensor.replace(shape=shape)
    row_bytes = max(1, tensor.count // max(1, shape[0]) * max(1, dtype.bits // 8))
    rows = max(8, _BLOCK // row_bytes // 8 * 8)  # blocks of a packed type end on a byte

    def make() -> Iterator[memoryview]:
        for start in range(0, shape[0], rows):
            block = tensor[..., start : start + rows]
            yield dtype.encode(block.transpose())

    return Tensor(tensor.name, dtype, shape, Made(dtype.nbytes(shape), make, tensor.payloads))


def dequantized(tensor: Tensor) -> Tensor:
    """An encoded tensor as float32."""
    f32 = DTYPES["f32"]

    def make() -> Iterator[memoryview]:
        for block in tensor.blocks(_BLOCK // 4):
            yield f32.encode(block)

    return Tensor(tensor.name, f32, tensor.shape, Made(f32.nbytes(tensor.shape), make, tensor.payloads))
