"""One tensor: name, dtype, shape, and where its bytes are. Nothing is read until it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from holdall.base.buffer_sizes import buffer_size
from holdall.errors import ContentError, UnsupportedError
from holdall.model.dtypes import DType, dtype_of, find_dtype
from holdall.model.encodings import Encoding, Scaling, Stored
from holdall.model.passes import can_read_anywhere, read_into
from holdall.model.payload import InMemory, Payload, SourceRange
from holdall.model.slicing import Axis, count_runs, index_of, normalize, read_slice, stream_slice

if TYPE_CHECKING:
    import torch
    from numpy.typing import ArrayLike, NDArray

__all__ = ["Tensor"]

_NUMPY_RANK = 64  # the most dimensions that numpy can hold
_BLOCK = buffer_size(1 << 20)  # values at a time
_REQUESTS = 64  # pieces of a remote tensor that are asked for one by one


class Tensor:
    """A named, typed, shaped payload. Made by readers, or from an array with :meth:`of`.

    ``native`` is what only the tensor's own format knows of it (quantization parameters, a flag byte);
    it stays with the tensor, and only that format reads it. ``requires_grad`` marks a tensor that is trained; a format
    without a place for the mark does not store it.

    >>> import numpy as np
    >>> t = Tensor.of("w", np.arange(6, dtype=np.int8).reshape(2, 3))
    >>> str(t.dtype), t.shape, t.nbytes, t[1].tolist()
    ('i8', (2, 3), 6, [3, 4, 5])
    >>> t.ndim, t.size, len(t)
    (2, 6, 2)
    """

    __slots__ = ("dtype", "name", "native", "payload", "requires_grad", "shape")

    def __init__(
        self,
        name: str,
        dtype: Stored,
        shape: tuple[int, ...],
        payload: Payload | None,
        native: object = None,
        requires_grad: bool = False,
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.payload = payload
        self.native = native
        self.requires_grad = requires_grad

    @classmethod
    def of(
        cls, name: str, values: ArrayLike, dtype: str | DType | None = None, *, requires_grad: bool = False
    ) -> Tensor:
        """A tensor from an array; ``dtype`` asks for another type than the array's own, range-checked."""
        import numpy as np

        array = np.asarray(values)
        try:
            kind = dtype_of(array) if dtype is None else find_dtype(dtype)
            payload = InMemory(kind.encode_to_array(array))
        except ContentError as error:
            raise ContentError(f"tensor {name!r}: {error}") from None
        return cls(name, kind, array.shape, payload, requires_grad=requires_grad)

    def replace(
        self,
        *,
        name: str | None = None,
        dtype: Stored | None = None,
        shape: tuple[int, ...] | None = None,
        payload: Payload | None = None,
        requires_grad: bool | None = None,
    ) -> Tensor:
        """Return a copy of this tensor with the given fields replaced."""
        return Tensor(
            self.name if name is None else name,
            self.dtype if dtype is None else dtype,
            self.shape if shape is None else shape,
            self.payload if payload is None else payload,
            self.native,
            self.requires_grad if requires_grad is None else requires_grad,
        )

    def __reduce__(self) -> tuple[object, ...]:
        """A pickle has the place in a file, which is opened again, or the bytes when they are in memory."""
        if self.payload is not None and type(self.payload) not in (SourceRange, InMemory):
            raise TypeError(
                f"tensor {self.name!r} cannot be pickled: its bytes are made or proven while they are read; "
                "pickle the model that it is in, or its array"
            )
        return Tensor, (self.name, self.dtype, self.shape, self.payload, self.native, self.requires_grad)

    def __repr__(self) -> str:
        state = "" if self.has_data else ", no data"
        return f"<Tensor {self.name!r} {self.dtype}{list(self.shape)}{state}>"

    @property
    def nbytes(self) -> int:
        """Stored bytes; 0 for a tensor that is declared without data."""
        return 0 if self.payload is None else self.payload.size

    @property
    def count(self) -> int:
        """Number of elements, as an exact integer."""
        return prod(self.shape)

    @property
    def size(self) -> int:
        """Number of elements, as numpy calls it."""
        return self.count

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __len__(self) -> int:
        """The first dimension; TypeError for a scalar, as for an array."""
        if not self.shape:
            raise TypeError("len() of a tensor without dimensions")
        return self.shape[0]

    def __bool__(self) -> bool:
        """Always True, also for an empty tensor: ``if tensor`` asks whether there is one."""
        return True

    @property
    def offset(self) -> int | None:
        """Where the payload starts in its file; None when it is not in a file."""
        return self.payload.offset if isinstance(self.payload, SourceRange) else None

    @property
    def has_data(self) -> bool:
        """False for a tensor that the file declares without storing its values."""
        return self.payload is not None

    @property
    def payloads(self) -> tuple[Payload, ...]:
        """The payload as a tuple, empty without data: the inputs of a payload that is computed from this tensor."""
        return () if self.payload is None else (self.payload,)

    def raw(self) -> memoryview:
        """The stored bytes, read-only, without a copy where possible.

        If the file states a hash of this tensor, it is checked first.
        """
        payload = self._require_payload()
        self._prove(payload)
        return payload.view()

    def _prove(self, payload: Payload) -> None:
        prove = getattr(self.native, "prove", None)
        if prove is not None:
            prove(payload)

    @property
    def scaling(self) -> Scaling | None:
        """The quantization parameters that the file keeps beside the elements; None for most tensors."""
        # Most have none. To compare with a protocol takes longer than to read a small tensor.
        return self.native if self.native is not None and isinstance(self.native, Scaling) else None

    def numpy(self, *, fill: float | None = None, dequantize: bool = False) -> NDArray[Any]:
        """The values. Zero-copy and read-only where the stored bytes are an array, else a fresh array.

        A tensor without data is an error unless ``fill`` says what its elements are. Encoded tensors such as mcf.k4 are
        always decoded. The elements of a tensor with quantization parameters beside it (:attr:`scaling`) are returned
        as stored; ``dequantize=True`` applies the parameters and gives float32.
        """
        self._check_numpy_shape()
        if dequantize and self.scaling is not None and self.payload is not None:
            return self._apply_scaling(self.scaling)
        if self.payload is None and fill is not None and isinstance(self.dtype, DType):
            import numpy as np

            try:
                return np.full(self.shape, fill, self.dtype.numpy)
            except MemoryError:  # a declared tensor states any shape
                raise UnsupportedError(f"tensor {self.name!r}: {self.dtype}{list(self.shape)} is too large") from None
        return self.dtype.decode(self.raw(), self.shape)

    def copy(self) -> NDArray[Any]:
        """The values in an array of their own, safe to modify. A large tensor is read on all cores."""
        import numpy as np

        begun = self._begin_copy()
        if begun is None:
            found = self.numpy()
            return found if found.flags.writeable else np.array(found)  # what can be written to was made just now
        values, payload = begun
        self._prove(payload)
        read_into(payload, values.reshape(-1).view(np.uint8).data)
        return values

    def begin_copy(self) -> tuple[NDArray[Any], SourceRange] | None:
        """An array for a copy of the values, and the range of a file that fills it.

        None if more than reading has to be done, or the file states a hash to check; :meth:`copy` does that.
        """
        return None if hasattr(self.native, "prove") else self._begin_copy()

    def _begin_copy(self) -> tuple[NDArray[Any], SourceRange] | None:
        import numpy as np

        payload, dtype = self.payload, self.dtype
        if not isinstance(dtype, DType) or dtype.packed or dtype.kind == "bool" or not can_read_anywhere(payload):
            return None
        self._check_numpy_shape()
        return (np.empty(self.shape, dtype.numpy), payload) if payload.size else None

    def _apply_scaling(self, scaling: Scaling) -> NDArray[Any]:
        import numpy as np

        out = np.empty(self.count, np.float32)
        start = 0
        for block in self.blocks():
            out[start : start + block.size] = scaling.dequantize(block, self.shape, start)
            start += block.size
        return out.reshape(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __getitem__(self, key: Any) -> NDArray[Any]:
        """A basic slice (integers, slices, ``...``), reading only the bytes it needs."""
        self._check_numpy_shape()
        payload, dtype = self._require_payload(), self.dtype
        is_array = isinstance(dtype, DType) and not dtype.packed and dtype.kind != "bool" and _has_free_view(payload)
        if is_array and type(key) is int and len(self.shape) > 1 and 0 <= key < self.shape[0]:
            return self._view_row(payload, key)  # the most frequent slice, without the arithmetic of axes
        axes = normalize(key, self.shape)
        if not isinstance(dtype, DType):
            return self._slice_encoded(dtype, payload, axes)
        if is_array:
            import numpy as np

            view = payload.view()
            if dtype.is_aligned(view):  # else numpy would copy the whole tensor
                return np.asarray(dtype.decode(view, self.shape)[key])
        if payload.in_order:
            return stream_slice(dtype, self.shape, axes, payload.chunks())
        if isinstance(payload, SourceRange) and payload.source.is_remote and count_runs(axes, self.shape) > _REQUESTS:
            return self._stream_rows(dtype, payload, axes)
        return read_slice(dtype, self.shape, axes, payload.slice)

    def _view_row(self, payload: Payload, row: int) -> NDArray[Any]:
        size = payload.size // self.shape[0]
        values: NDArray[Any] = self.dtype.decode(payload.slice(row * size, (row + 1) * size), self.shape[1:])
        return values

    def _stream_rows(self, dtype: DType, payload: SourceRange, axes: Sequence[Axis]) -> NDArray[Any]:
        """A slice of many short pieces: a server is asked once for the rows that they lie in, not for each piece."""
        (first, step, count, gone), *inner = axes
        low, high = sorted((first, first + step * (count - 1)))
        row, rest = divmod(prod(self.shape[1:]) * dtype.bits, 8)
        if rest:  # rows of packed types that do not begin with a byte
            return stream_slice(dtype, self.shape, axes, payload.chunks())
        rows = SourceRange(payload.source, payload.offset + low * row, (high + 1 - low) * row)
        shape = (high + 1 - low, *self.shape[1:])
        return stream_slice(dtype, shape, [(first - low, step, count, gone), *inner], rows.chunks())

    def _slice_encoded(self, encoding: Encoding, payload: Payload, axes: Sequence[Axis]) -> NDArray[Any]:
        """A slice of an encoded tensor: decodes the rows it touches where rows can be decoded alone, else all."""
        low, high = 0, self.shape[0] if self.shape else 0
        if axes and axes[0][2]:
            first, step, count, _ = axes[0]
            low, high = min(first, first + step * (count - 1)), max(first, first + step * (count - 1)) + 1
        ranges = encoding.rows(self.shape, low, high)
        if ranges is None:
            everything: NDArray[Any] = encoding.decode(payload.view(), self.shape)
            return everything[index_of(axes)]
        # One pass for all ranges where each would take one of its own.
        parts = InMemory(payload.view()) if payload.in_order and len(ranges) > 1 else payload
        rows: NDArray[Any] = encoding.decode_rows(
            [parts.slice(*span) for span in ranges], (high - low, *self.shape[1:]), low
        )
        return rows[index_of(axes, low)]

    def blocks(self, count: int = _BLOCK) -> Iterator[NDArray[Any]]:
        """The values flat and in order, at most ``count`` at a time, by positioned reads: memory stays bounded."""
        payload, dtype = self._require_payload(), self.dtype
        if not isinstance(dtype, DType):
            yield from self._decode_blocks(dtype, count)
            return
        count = max(8, count // 8 * 8)  # blocks of packed types end on a byte
        left = self.count
        for piece in payload.chunks(count * dtype.bits // 8):
            yield dtype.decode_flat(piece, 0, min(count, left))
            left -= count
            del piece  # a buffer without references is used again

    def _decode_blocks(self, encoding: Encoding, count: int) -> Iterator[NDArray[Any]]:
        """Decode some rows at a time where rows can be decoded alone, else all at once."""
        rows = self.shape[0] if self.shape else 0
        if not rows or encoding.rows(self.shape, 0, 1) is None:
            flat = self.numpy().reshape(-1)
            yield from (flat[start : start + count] for start in range(0, flat.size, count))
            return
        step = max(1, count // max(1, self.count // rows))
        payload = self._require_payload()
        whole = self.replace(payload=InMemory(payload.view())) if payload.in_order else self
        for start in range(0, rows, step):
            yield whole[start : start + step].reshape(-1)

    def torch(self, device: str | torch.device | None = None) -> torch.Tensor:
        """The values as a torch tensor with memory of its own, safe to modify."""
        from holdall.torch import to_torch

        return to_torch(self, device)

    def _require_payload(self) -> Payload:
        if self.payload is None:
            raise ContentError(
                f"tensor {self.name!r} {self.dtype}{list(self.shape)} is declared without data; "
                "numpy(fill=...) gives it values"
            )
        return self.payload

    def _check_numpy_shape(self) -> None:
        """Raise UnsupportedError for a shape that no numpy array can have."""
        if len(self.shape) > _NUMPY_RANK:
            raise UnsupportedError(
                f"tensor {self.name!r} has {len(self.shape)} dimensions; numpy holds at most {_NUMPY_RANK}"
            )
        # numpy multiplies the non-zero dims even when the tensor is empty.
        count = prod(self.shape) or prod(dim for dim in self.shape if dim)
        if count * 16 >= 1 << 63:
            raise UnsupportedError(f"tensor {self.name!r}: numpy cannot hold the shape {list(self.shape)}")


def _has_free_view(payload: Payload) -> bool:
    """Whether a view of the payload costs no read."""
    return payload.source.is_mapped if isinstance(payload, SourceRange) else isinstance(payload, InMemory)
