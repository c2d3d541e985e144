"""Lazy changes of where the numbers of tensors stand: permute, split, join. Nothing is read here.

Each gives a payload that is computed some rows at a time, so that memory does not grow with the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from holdall.base.buffer_sizes import buffer_size
from holdall.errors import ContentError
from holdall.model.dtypes import DType
from holdall.model.encodings import Stored
from holdall.model.passes import map_pieces
from holdall.model.payload import Computed, InMemory, Payload, SourceRange
from holdall.model.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["add", "concatenate", "count_rounded", "interleave", "split"]

_BLOCK = buffer_size(1 << 20)  # bytes of a piece, rounded to whole rows
_VALUES = buffer_size(1 << 20)  # values at a time


def interleave(tensor: Tensor, heads: int, halves: int, *, back: bool = False) -> Tensor:
    """Interleave the ``halves`` parts of the rows of each head: rows a0 a1 b0 b1 of a head become a0 b0 a1 b1.

    ``back`` puts them in their places again. Rows may be numbers or whole blocks of an encoding.

    >>> import numpy as np
    >>> interleave(Tensor.of("q", np.arange(8, dtype=np.int8)), heads=2, halves=2).numpy().tolist()
    [0, 2, 1, 3, 4, 6, 5, 7]
    """
    rows = tensor.shape[0] if tensor.shape else 0
    if not tensor.shape or heads < 1 or rows % (heads * halves):
        raise _shape_error(tensor, f"has no {heads} heads of {halves} equal parts in its first dimension")
    if tensor.payload is None or not tensor.payload.size:
        return tensor
    row, rest = divmod(tensor.payload.size, rows)
    if rest:
        raise _shape_error(tensor, "has rows that do not end on a byte")
    inner = rows // heads // halves
    order = (inner, halves) if back else (halves, inner)

    def work(data: memoryview) -> memoryview:
        import numpy as np

        grid = np.frombuffer(data, np.uint8).reshape(-1, *order, row)
        return np.ascontiguousarray(grid.transpose(0, 2, 1, 3)).reshape(-1).data

    return _derive(tensor, tensor.shape, tensor.payload, work, rows // heads * row)


def split(tensor: Tensor, axis: int, sizes: Sequence[int]) -> list[Tensor]:
    """Split ``tensor`` along ``axis`` into parts of ``sizes``.

    >>> import numpy as np
    >>> whole = Tensor.of("qkv", np.arange(6, dtype=np.int8).reshape(2, 3))
    >>> [part.numpy().tolist() for part in split(whole, 1, [1, 2])]
    [[[0], [3]], [[1, 2], [4, 5]]]
    """
    axis = _check_axis(tensor, axis)
    if sum(sizes) != tensor.shape[axis] or any(size < 0 for size in sizes):
        raise _shape_error(tensor, f"cannot be split into {list(sizes)} along dimension {axis}")
    parts, start = [], 0
    for size in sizes:
        parts.append(_slice(tensor, axis, start, size))
        start += size
    return parts


def _slice(tensor: Tensor, axis: int, start: int, size: int) -> Tensor:
    """Return ``size`` places of ``axis``, from ``start`` on."""
    shape = (*tensor.shape[:axis], size, *tensor.shape[axis + 1 :])
    payload = tensor.payload
    if payload is None:
        return Tensor(tensor.name, tensor.dtype, shape, None)
    length = tensor.shape[axis]
    unit = _measure_unit(tensor, axis)
    if prod(shape[:axis]) == 1:
        part = _range_of(payload, start * unit, (start + size) * unit)
        return Tensor(tensor.name, tensor.dtype, shape, part, requires_grad=tensor.requires_grad)

    def work(data: memoryview) -> memoryview:
        import numpy as np

        grid = np.frombuffer(data, np.uint8).reshape(-1, length * unit)
        return np.ascontiguousarray(grid[:, start * unit : (start + size) * unit]).reshape(-1).data

    return _derive(tensor, shape, payload, work, length * unit)


def _range_of(payload: Payload, start: int, stop: int) -> Payload:
    """Return the bytes ``start..stop`` of ``payload`` as a payload of their own."""
    if type(payload) is SourceRange:
        return SourceRange(payload.source, payload.offset + start, stop - start)
    if isinstance(payload, InMemory):
        return InMemory(payload.slice(start, stop))

    def make() -> Iterator[memoryview]:
        at = 0
        for piece in payload.chunks():
            if at >= stop:
                return
            yield piece[max(0, start - at) : max(0, stop - at)]
            at += len(piece)

    return Computed(stop - start, make, (payload,))


def concatenate(tensors: Sequence[Tensor], axis: int, *, stacked: bool = False) -> Tensor:
    """Join tensors along ``axis``; ``stacked`` along a new one, so that the result has one dimension more.

    >>> import numpy as np
    >>> a, b = Tensor.of("a", np.zeros((2, 1), np.int8)), Tensor.of("b", np.ones((2, 2), np.int8))
    >>> concatenate([a, b], 1).numpy().tolist()
    [[0, 1, 1], [0, 1, 1]]
    >>> concatenate([a, a], 0, stacked=True).shape
    (2, 2, 1)
    """
    if stacked:
        tensors = [each.replace(shape=(*each.shape[:axis], 1, *each.shape[axis:])) for each in tensors]
    if not tensors:
        raise ContentError("there are no tensors to join")
    first = tensors[0]
    axis = _check_axis(first, axis)
    for each in tensors[1:]:
        others = [shape[:axis] + shape[axis + 1 :] for shape in (each.shape, first.shape)]
        if len(each.shape) != len(first.shape) or others[0] != others[1]:
            raise _shape_error(each, f"cannot be joined with {first.name!r} {list(first.shape)} along dimension {axis}")
        if each.dtype != first.dtype:
            raise ContentError(
                f"tensor {each.name!r} is {each.dtype}, and {first.name!r}, with which it is joined, {first.dtype}"
            )
    shape = (*first.shape[:axis], sum(each.shape[axis] for each in tensors), *first.shape[axis + 1 :])
    payloads = [each.payload for each in tensors if each.payload is not None]
    if len(payloads) < len(tensors):
        return Tensor(first.name, first.dtype, shape, None)
    rows = prod(shape[:axis])
    widths = [_measure_unit(each, axis) * each.shape[axis] for each in tensors]

    def make() -> Iterator[memoryview]:
        if rows == 1:
            for payload in payloads:
                yield from payload.chunks()
            return
        yield from _join_rows(payloads, widths)

    return Tensor(first.name, first.dtype, shape, Computed(rows * sum(widths), make, tuple(payloads)))


def _join_rows(payloads: Sequence[Payload], widths: Sequence[int]) -> Iterator[memoryview]:
    """Yield the rows of all payloads beside each other; a row of each has the width in bytes."""
    import numpy as np

    step = max(1, _BLOCK // max(1, sum(widths)))
    streams = [payload.chunks(step * width) for payload, width in zip(payloads, widths, strict=True) if width]
    filled = [width for width in widths if width]
    for pieces in zip(*streams, strict=True):
        grids = [np.frombuffer(piece, np.uint8).reshape(-1, width) for piece, width in zip(pieces, filled, strict=True)]
        yield np.concatenate(grids, axis=1).reshape(-1).data


def add(tensor: Tensor, constant: float) -> Tensor:
    """Add a constant to each number, computed in f32 and rounded to the tensor's type.

    >>> import numpy as np
    >>> add(Tensor.of("norm", np.zeros(2, np.float32)), 1).numpy().tolist()
    [1.0, 1.0]
    """
    dtype = tensor.dtype
    if not isinstance(dtype, DType) or dtype.kind != "float":
        raise ContentError(f"tensor {tensor.name!r} is {dtype}: a constant is added to floats only")

    def make() -> Iterator[memoryview]:
        import numpy as np

        wide = np.dtype(np.float64 if dtype.bits > 32 else np.float32)
        for block in tensor.blocks(_VALUES):
            values: NDArray[Any] = block.astype(wide)
            yield memoryview(dtype.encode(values + wide.type(constant)))

    payload = None if tensor.payload is None else Computed(tensor.payload.size, make, tensor.payloads)
    return Tensor(tensor.name, dtype, tensor.shape, payload, requires_grad=tensor.requires_grad)


def count_rounded(tensor: Tensor, constant: float) -> int:
    """Count the values that are others, bit for bit, after ``constant`` was added and subtracted. It reads them.

    >>> import numpy as np
    >>> count_rounded(Tensor.of("norm", np.array([0.5, 1e-9, -0.0], np.float32)), 1)
    2
    """
    import numpy as np

    again = add(add(tensor, constant), -constant)
    if tensor.payload is None:
        return 0
    count = 0
    for before, after in zip(tensor.blocks(_VALUES), again.blocks(_VALUES), strict=True):
        bits = np.dtype(f"u{before.dtype.itemsize}")
        count += int(np.count_nonzero(before.view(bits) != after.view(bits)))
    return count


def _derive(
    tensor: Tensor, shape: tuple[int, ...], payload: Payload, work: Callable[[memoryview], memoryview], unit: int
) -> Tensor:
    """Return the tensor that ``work`` makes of some times ``unit`` bytes at a time."""
    piece = max(1, _BLOCK // max(1, unit)) * unit
    size = payload.size * prod(shape) // max(1, tensor.count)
    made = Computed(size, lambda: map_pieces(payload, work, piece) if piece else (), (payload,))
    return Tensor(tensor.name, tensor.dtype, shape, made, requires_grad=tensor.requires_grad)


def _measure_unit(tensor: Tensor, axis: int) -> int:
    """Return the bytes of one place of ``axis``; raises ContentError where it does not end on a byte, or in a block."""
    payload = tensor.payload
    count = prod(tensor.shape[: axis + 1])
    size = 0 if payload is None else payload.size
    inner = tensor.shape[axis + 1 :]
    if count and (size % count or (not isinstance(tensor.dtype, DType) and not inner)):
        raise _shape_error(tensor, f"has parts along dimension {axis} that do not end on a byte")
    return size // count if count else 0


def _check_axis(tensor: Tensor, axis: int) -> int:
    if not 0 <= axis < len(tensor.shape):
        raise _shape_error(tensor, f"has no dimension {axis}")
    return axis


def _shape_error(tensor: Tensor, what: str) -> ContentError:
    dtype: Stored = tensor.dtype
    return ContentError(f"tensor {tensor.name!r} {dtype}{list(tensor.shape)} {what}")
