"""Lazy changes to the values of one tensor: another dtype, reversed axes, numbers out of a quantized payload.

Nothing is read here. A changed tensor gets a payload that is computed, block by block, when the sink asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from holdall.base.buffer_sizes import buffer_size
from holdall.base.memory import lend_memory
from holdall.base.parallel import thread_count
from holdall.errors import ContentError
from holdall.model.dtypes import DTYPES, FINITE, DType, float_info
from holdall.model.encodings import Opaque
from holdall.model.payload import Computed
from holdall.model.portions import Portion, fill_in_order, split
from holdall.model.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["cast", "cast_bytes", "dequantize", "require_plain", "transpose"]

R = TypeVar("R")

_BLOCK = buffer_size(4 << 20)  # bytes of a portion before or after the change, whichever is larger
_FEW = buffer_size(1 << 12)  # values for which threads and memory that is used again cost more than they save
_THREADS = 4  # make values faster than one file takes them; more would only take fresh memory


def cast(tensor: Tensor, dtype: DType, on_warning: Callable[[str], None] = lambda text: None) -> Tensor:
    """Cast ``tensor`` to another dtype. Floats round to nearest even; an integer that would change raises ContentError.

    ``on_warning`` receives how many values overflow the new type, once all of them were cast.
    """
    if tensor.dtype == dtype:
        return tensor
    source = require_plain(tensor, "casting")
    if tensor.payload is None:
        return _derive(tensor, dtype, tensor.shape, None)
    count = _BLOCK * 8 // max(source.bits, dtype.bits, 32)

    def fill(portion: Portion, out: memoryview) -> int:
        try:
            return portion.use(lambda values: _cast_values(values, source, dtype, portion.first, out))
        except ContentError as error:
            raise ContentError(f"tensor {tensor.name!r}: {error}") from None

    def make() -> Iterator[memoryview]:
        return _count_beyond(
            tensor, dtype, _fill(tensor, count, lambda count: dtype.nbytes((count,)), fill), on_warning
        )

    return _derive(tensor, dtype, tensor.shape, make)


def _count_beyond(
    tensor: Tensor, dtype: DType, blocks: Iterator[tuple[memoryview, int]], on_warning: Callable[[str], None]
) -> Iterator[memoryview]:
    """Yield the stored ``blocks``; ``on_warning`` receives how many values in all of them ``dtype`` does not hold."""
    beyond = 0
    for stored, more in blocks:
        beyond += more
        yield stored
        del stored  # memory without references is used again
    if beyond:
        noun = "value is" if beyond == 1 else "values are"
        become = "held at its largest" if dtype.name in FINITE else "now infinite or NaN"
        on_warning(f"tensor {tensor.name!r}: {beyond} {noun} beyond {dtype} and {become}")


def cast_bytes(data: bytes, source: DType, dtype: DType) -> memoryview | None:
    """Cast stored bytes of whole elements; None if one is refused or overflows, or if elements share a byte.

    >>> bytes(cast_bytes(b"\\x00\\x00\\x80\\x3f", DTYPES["f32"], DTYPES["bf16"]))
    b'\\x80?'
    """
    if source.bits % 8 or dtype.bits % 8:
        return None
    count = len(data) * 8 // source.bits
    out = memoryview(bytearray(count * dtype.bits // 8))
    try:
        values = source.decode_flat(memoryview(data), 0, count)
        return None if _cast_values(values, source, dtype, 0, out) else out
    except ContentError:
        return None


def _cast_values(values: NDArray[Any], source: DType, dtype: DType, first: int, out: memoryview) -> int:
    """Put ``values``, from element ``first`` on, as ``dtype`` into ``out``. Returns how many overflow."""
    import numpy as np

    if dtype.name == "f32" and source.is_small:
        source.widen(values, np.frombuffer(out, np.float32))
        return 0
    if not source.is_small:
        return _encode_values(values, dtype, first, out)
    with lend_memory(4 * values.size) as memory:
        return _encode_values(source.widen(values, np.frombuffer(memory, np.float32)), dtype, first, out)


def _encode_values(values: NDArray[Any], dtype: DType, first: int, out: memoryview) -> int:
    import numpy as np

    if dtype.is_small and values.dtype == np.float32:
        dtype.narrow(values, np.frombuffer(out, np.uint8))
    else:
        out[:] = dtype.encode(values)
    if dtype.kind in ("float", "complex") and values.dtype.kind in "iub":
        _refuse_other_integers(values, dtype, out, first)
    return _count_overflows(values, dtype, out)


def require_plain(tensor: Tensor, doing: str) -> DType:
    """Return the dtype of a tensor whose elements are its values; raises ContentError for others."""
    if isinstance(tensor.dtype, Opaque):
        unknown = f"tensor {tensor.name!r} is {tensor.dtype}, which holdall does not decode"
        raise ContentError(f"{unknown}: {doing} needs its values")
    if not isinstance(tensor.dtype, DType):
        raise ContentError(f"tensor {tensor.name!r} is {tensor.dtype}: dequantize it before {doing}")
    if tensor.scaling is not None:
        raise ContentError(f"tensor {tensor.name!r} is scaled by quantization parameters: dequantize it before {doing}")
    return tensor.dtype


def _refuse_other_integers(values: NDArray[Any], dtype: DType, stored: memoryview, first: int) -> None:
    """Raise ContentError for an integer that a cast to floats would change."""
    import numpy as np

    back = dtype.decode_flat(stored, 0, values.size).real.astype(np.float64)
    exact = np.abs(back) < 2.0**63  # beyond that, and for infinities, int64 cannot be compared
    exact[exact] = back[exact].astype(np.int64) == values.astype(np.int64, copy=False)[exact]
    if not exact.all():
        at = int((~exact).argmax())
        raise ContentError(f"element {first + at} is {values[at]}, which {dtype} does not hold")


def _count_overflows(values: NDArray[Any], dtype: DType, stored: memoryview) -> int:
    """Count the values that a cast makes infinite, turns from infinite to NaN, or holds at the largest value."""
    import numpy as np

    if values.dtype.kind not in "fcV" or dtype.kind not in ("float", "complex"):
        return 0
    largest = float(float_info(dtype.numpy).max)
    signed = dtype.name != "f8_e8m0"  # it has neither a sign nor a zero
    if signed and largest >= float(float_info(values.dtype).max):
        return 0
    if signed and values.dtype == np.float32 and values.size and _are_within(values, largest):
        return 0
    if values.dtype.itemsize == 1:
        values = values.astype(np.float32)
    with np.errstate(over="ignore"):  # the magnitude of a complex number may overflow
        over = np.abs(values) > largest
    if signed and not over.any():
        return 0
    if dtype.name in FINITE:  # encoding has refused infinities and NaN
        return int(over.sum())
    back = dtype.decode_flat(stored, 0, values.size)
    return int(((np.isfinite(values) & ~np.isfinite(back)) | (np.isinf(values) & np.isnan(back))).sum())


def _are_within(values: NDArray[Any], largest: float) -> bool:
    from holdall.binary import kernels

    low, high = kernels.extremes("f32", values)
    return -largest <= low and high <= largest


def transpose(tensor: Tensor) -> Tensor:
    """Return ``tensor`` with its axes in reverse order, made some rows at a time."""
    dtype, shape = require_plain(tensor, "transposing"), tensor.shape[::-1]
    if len(shape) < 2 or tensor.payload is None:
        return tensor.replace(shape=shape)
    row_bytes = max(1, tensor.count // max(1, shape[0]) * max(1, dtype.bits // 8))
    rows = max(8, _BLOCK // row_bytes // 8 * 8)  # a multiple of 8, so that a block of a packed type ends on a byte

    def make() -> Iterator[memoryview]:
        for start in range(0, shape[0], rows):
            block = tensor[..., start : start + rows]
            yield dtype.encode(block.transpose())

    return _derive(tensor, dtype, shape, make)


def dequantize(tensor: Tensor, to: str | None = None, on_warning: Callable[[str], None] = lambda text: None) -> Tensor:
    """Return a tensor that is encoded or has quantization parameters as plain numbers, decoded some at a time.

    They are float32, or what the encoding says its values are, rounded once from float32; ``to`` names another dtype,
    and ``on_warning`` receives how many values are beyond it, once all of them were decoded.
    Any other tensor is returned unchanged, and one of an unknown encoding, which nothing decodes.
    """
    encoding, scaling = tensor.dtype, tensor.scaling
    if isinstance(encoding, (DType, Opaque)) and scaling is None:
        return tensor
    dtype = DTYPES[to or ("f32" if isinstance(encoding, DType) else encoding.plain_type)]
    if tensor.payload is None:
        return Tensor(tensor.name, dtype, tensor.shape, None)

    def fill(portion: Portion, out: memoryview) -> int:
        import numpy as np

        if dtype.name != "f32":
            return portion.use(lambda values: _encode_values(values, dtype, portion.first, out))
        if scaling is None:
            portion.decode_into(np.frombuffer(out, np.float32))
        else:
            values = portion.use(lambda block: scaling.dequantize(block, tensor.shape, portion.first))
            np.frombuffer(out, np.float32)[:] = values
        return 0

    def make() -> Iterator[memoryview]:
        blocks = _fill(tensor, _BLOCK // 4, lambda count: dtype.nbytes((count,)), fill)
        return _count_beyond(tensor, dtype, blocks, on_warning)

    return _derive(tensor, dtype, tensor.shape, make)


def _fill(
    tensor: Tensor, count: int, size_of: Callable[[int], int], fill: Callable[[Portion, memoryview], R]
) -> Iterator[tuple[memoryview, R]]:
    portions = split(tensor, count)
    if tensor.count > _FEW:
        return fill_in_order(portions, size_of, fill, min(thread_count(), _THREADS))
    jobs = ((portion, memoryview(bytearray(size_of(portion.count)))) for portion in portions)
    return ((out, fill(portion, out)) for portion, out in jobs)


def _derive(
    tensor: Tensor, dtype: DType, shape: tuple[int, ...], make: Callable[[], Iterator[memoryview]] | None
) -> Tensor:
    """Return ``tensor`` in another form. What its format alone knows of it describes the old form and is dropped."""
    payload = None if make is None else Computed(dtype.nbytes(shape), make, tensor.payloads)
    return Tensor(tensor.name, dtype, shape, payload, requires_grad=tensor.requires_grad)
