"""One tensor: what it is called, what it holds, where its bytes are. It reads nothing until asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from holdall.dtypes import DType, dtype_of, named
from holdall.encodings import Encoding, Stored
from holdall.errors import ContentError, UnsupportedError
from holdall.payload import Held, Payload, Range
from holdall.sizes import tuned
from holdall.slicing import Axis, index_of, normalize, read_slice

if TYPE_CHECKING:
    import torch
    from numpy.typing import ArrayLike, NDArray

__all__ = ["Tensor"]

_NUMPY_RANK = 64  # the most dimensions that numpy can hold
_BLOCK = tuned(1 << 20)  # values at a time


class Tensor:
    """A named, typed, shaped payload. Made by readers, or from an array with :meth:`of`.

    ``native`` is what only the tensor's own format knows of it (quantization parameters, a flag byte);
    it travels with the tensor and only that format looks at it.

    >>> import numpy as np
    >>> t = Tensor.of("w", np.arange(6, dtype=np.int8).reshape(2, 3))
    >>> str(t.dtype), t.shape, t.nbytes, t[1].tolist()
    ('i8', (2, 3), 6, [3, 4, 5])
    >>> t.ndim, t.size, len(t)
    (2, 6, 2)
    """

    __slots__ = ("dtype", "name", "native", "payload", "shape")

    def __init__(
        self, name: str, dtype: Stored, shape: tuple[int, ...], payload: Payload | None, native: object = None
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.payload = payload
        self.native = native

    @classmethod
    def of(cls, name: str, values: ArrayLike, dtype: str | DType | None = None) -> Tensor:
        """A tensor from an array; ``dtype`` asks for another type than the array's own, range-checked."""
        import numpy as np

        array = np.asarray(values)
        try:
            kind = dtype_of(array) if dtype is None else named(dtype)
            payload = Held(kind.stored(array))
        except ContentError as error:
            raise ContentError(f"tensor {name!r}: {error}") from None
        return cls(name, kind, array.shape, payload)

    def replace(
        self,
        *,
        name: str | None = None,
        dtype: Stored | None = None,
        shape: tuple[int, ...] | None = None,
        payload: Payload | None = None,
    ) -> Tensor:
        """The same tensor with something else about it; what is not given stays."""
        return Tensor(
            self.name if name is None else name,
            self.dtype if dtype is None else dtype,
            self.shape if shape is None else shape,
            self.payload if payload is None else payload,
            self.native,
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Travels as its place in a file that is opened again, or with its bytes when they are in memory."""
        if self.payload is not None and type(self.payload) not in (Range, Held):
            raise TypeError(
                f"tensor {self.name!r} cannot be pickled: its bytes are made or proven as they are read; "
                "pickle the model that it is in, or its array"
            )
        return Tensor, (self.name, self.dtype, self.shape, self.payload, self.native)

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
        """Number of elements, under the name that arrays have for it."""
        return self.count

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __len__(self) -> int:
        """The first dimension; TypeError for a scalar, as of an array."""
        if not self.shape:
            raise TypeError("len() of a tensor without dimensions")
        return self.shape[0]

    def __bool__(self) -> bool:
        """True: a tensor is there, whatever its values, and an empty one is no missing one."""
        return True

    @property
    def offset(self) -> int | None:
        """Where the payload starts in its file; None when it is not in a file."""
        return self.payload.offset if isinstance(self.payload, Range) else None

    @property
    def has_data(self) -> bool:
        """False for a tensor that the file declares without storing its values."""
        return self.payload is not None

    @property
    def payloads(self) -> tuple[Payload, ...]:
        """Its payload; none for a tensor without data. For payloads that are made from others."""
        return () if self.payload is None else (self.payload,)

    def raw(self) -> memoryview:
        """The stored bytes, read-only, without a copy where possible."""
        return self._whole()

    def numpy(self, *, fill: float | None = None) -> NDArray[Any]:
        """The values. Zero-copy and read-only where the stored bytes are an array, else a fresh array.

        A tensor without data is an error unless ``fill`` says what its elements are.
        """
        self._fits_numpy()
        if self.payload is None and fill is not None and isinstance(self.dtype, DType):
            import numpy as np

            return np.full(self.shape, fill, self.dtype.numpy)
        return self.dtype.decode(self._whole(), self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __getitem__(self, key: Any) -> NDArray[Any]:
        """A basic slice (integers, slices, ``...``), reading only the bytes it needs."""
        import numpy as np

        self._fits_numpy()
        payload, dtype = self._data(), self.dtype
        axes = normalize(key, self.shape)
        if not isinstance(dtype, DType):
            return self._encoded_slice(dtype, payload, axes)
        if not dtype.packed and dtype.kind != "bool" and _free_view(payload):
            view = payload.view()
            if dtype.aligned(view):  # else numpy would need a copy of all of it
                return np.asarray(dtype.decode(view, self.shape)[key])
        return read_slice(dtype, self.shape, axes, payload.part)

    def _encoded_slice(self, encoding: Encoding, payload: Payload, axes: Sequence[Axis]) -> NDArray[Any]:
        """A slice of an encoded tensor: from the rows it touches where rows stand apart, else from all of it."""
        low, high = 0, self.shape[0] if self.shape else 0
        if axes and axes[0][2]:
            first, step, count, _ = axes[0]
            low, high = min(first, first + step * (count - 1)), max(first, first + step * (count - 1)) + 1
        ranges = encoding.rows(self.shape, low, high)
        if ranges is None:
            everything: NDArray[Any] = encoding.decode(payload.view(), self.shape)
            return everything[index_of(axes)]
        rows: NDArray[Any] = encoding.decode_rows(
            [payload.part(*span) for span in ranges], (high - low, *self.shape[1:])
        )
        return rows[index_of(axes, low)]

    def blocks(self, count: int = _BLOCK) -> Iterator[NDArray[Any]]:
        """The values flat and in order, at most ``count`` at a time, by positioned reads: memory stays bounded."""
        payload, dtype = self._data(), self.dtype
        if not isinstance(dtype, DType):
            yield from self._encoded_blocks(dtype, count)
            return
        count = max(8, count // 8 * 8)  # blocks of packed types end on a byte
        left = self.count
        for piece in payload.chunks(count * dtype.bits // 8):
            yield dtype.decode_flat(piece, 0, min(count, left))
            left -= count
            del piece  # or its memory would look as if it were kept

    def _encoded_blocks(self, encoding: Encoding, count: int) -> Iterator[NDArray[Any]]:
        """Some rows at a time where rows stand apart, else all at once."""
        rows = self.shape[0] if self.shape else 0
        if not rows or encoding.rows(self.shape, 0, 1) is None:
            flat = self.numpy().reshape(-1)
            yield from (flat[start : start + count] for start in range(0, flat.size, count))
            return
        step = max(1, count // max(1, self.count // rows))
        for start in range(0, rows, step):
            yield self[start : start + step].reshape(-1)

    def torch(self, device: str | torch.device | None = None) -> torch.Tensor:
        """The values as a torch tensor of their own memory, safe to modify."""
        from holdall.torch import to_torch

        return to_torch(self, device)

    def _whole(self) -> memoryview:
        """All stored bytes, compared with the hash that the file states of this very tensor, where it states one."""
        payload = self._data()
        prove = getattr(self.native, "prove", None)
        if prove is not None:
            prove(payload)
        return payload.view()

    def _data(self) -> Payload:
        if self.payload is None:
            raise ContentError(
                f"tensor {self.name!r} {self.dtype}{list(self.shape)} is declared without data; "
                "numpy(fill=...) gives it values"
            )
        return self.payload

    def _fits_numpy(self) -> None:
        if len(self.shape) > _NUMPY_RANK:
            raise UnsupportedError(
                f"tensor {self.name!r} has {len(self.shape)} dimensions; numpy holds at most {_NUMPY_RANK}"
            )
        # numpy multiplies the non-zero dims even when the tensor is empty
        if prod(dim for dim in self.shape if dim) * 16 >= 1 << 63:
            raise UnsupportedError(f"tensor {self.name!r}: numpy cannot hold the shape {list(self.shape)}")


def _free_view(payload: Payload) -> bool:
    return isinstance(payload, Held) or (isinstance(payload, Range) and payload.source.mapped)
