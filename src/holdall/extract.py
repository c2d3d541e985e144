"""Tensors on their own: as .npy files or as their stored bytes, planned like any other file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from math import prod
from typing import TYPE_CHECKING, Any

from holdall.casts import cast as cast_to
from holdall.casts import dequantized
from holdall.dtypes import DType, named
from holdall.encodings import Opaque
from holdall.errors import ContentError, UnsupportedError
from holdall.payload import Held, Made, Payload
from holdall.plan import Constant, Plan, Stream
from holdall.sizes import tuned
from holdall.tensor import Tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["file_names", "npy_plan", "npy_type", "parse_slice", "plan_bytes", "raw_plan"]

_BLOCK = tuned(1 << 20)  # elements that are decoded or cast at a time
_INTEGER = "-?[0-9]{1,19}"
_RANK = 64  # of a numpy array
_LONGEST = 120  # characters of a file name, the suffix not counted


def npy_type(tensor: Tensor, cast: str | None = None) -> np.dtype[Any] | None:
    """The numpy type that an .npy of the tensor would have; None when .npy has no word for it (bf16, f8)."""
    import numpy as np

    stored = tensor.dtype if cast is None else named(cast)
    if isinstance(tensor.dtype, Opaque):
        return None  # bytes without a decoder
    if cast is not None and named(cast).packed:
        return None  # values of four bits in bytes would not be what was asked for
    found = stored.numpy if isinstance(stored, DType) else np.dtype(np.float32)
    return None if found.kind == "V" or found.isbuiltin != 1 else found


def npy_plan(
    tensor: Tensor,
    key: tuple[Any, ...] | None = None,
    cast: str | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Plan:
    """An .npy file of the tensor, or of the slice ``key`` of it, cast to the dtype ``cast``.

    Whole tensors pass in blocks; a slice is held in memory, once. ``tell`` hears of values beyond the new type, once
    they have been made.
    """
    kind = npy_type(tensor, cast)
    if kind is None:
        what = cast or tensor.dtype
        raise ContentError(f"tensor {tensor.name!r}: .npy cannot express {what}; cast to f32, or take the stored bytes")
    _payload(tensor)
    if len(tensor.shape) > _RANK:
        raise UnsupportedError(f"tensor {tensor.name!r} has {len(tensor.shape)} dims, numpy at most {_RANK}")
    taken = tensor if key is None else _sliced(tensor, key)
    if cast is not None:
        plain = taken if isinstance(taken.dtype, DType) else dequantized(taken)
        return _npy(kind, taken.shape, _payload(cast_to(plain, named(cast), tell)))  # .npy has it as it is stored

    def make() -> Iterator[memoryview]:
        for block in taken.blocks(_BLOCK):
            yield _bytes(block)

    return _npy(kind, taken.shape, Made(prod(taken.shape) * kind.itemsize, make, taken.payloads))


def _sliced(tensor: Tensor, key: tuple[Any, ...]) -> Tensor:
    """A slice as a tensor that is held; one of an encoded tensor is of its values."""
    values = tensor[key]
    dtype = tensor.dtype if isinstance(tensor.dtype, DType) else named("f32")
    return Tensor(tensor.name, dtype, values.shape, Held(dtype.encode(values)))


def raw_plan(tensor: Tensor, key: tuple[Any, ...] | None = None) -> Plan:
    """A file of the tensor's bytes as they are stored; those of a slice are packed as the tensor is."""
    plan = Plan()
    if key is None:
        plan.stream(_payload(tensor))
        return plan
    if not isinstance(tensor.dtype, DType):
        raise UnsupportedError(f"tensor {tensor.name!r}: a slice of {tensor.dtype} has no stored form; take it as .npy")
    plan.stream(_payload(_sliced(tensor, key)))
    return plan


def plan_bytes(plan: Plan) -> Iterator[memoryview]:
    """The bytes of a plan without late pieces, in order: for a pipe."""
    at = 0
    for piece in plan.pieces:
        assert isinstance(piece, (Constant, Stream)) and piece.offset == at
        yield from (memoryview(piece.data),) if isinstance(piece, Constant) else piece.payload.chunks()
        at += piece.size


def parse_slice(text: str) -> tuple[Any, ...]:
    """A basic index in Python's notation.

    >>> parse_slice("0:2, :, -1")
    (slice(0, 2, None), slice(None, None, None), -1)
    """
    return tuple(_item(part.strip(), text) for part in text.strip().strip("[]").split(","))


def _item(part: str, text: str) -> Any:
    if part == "...":
        return Ellipsis
    if not re.fullmatch(f"{_INTEGER}|({_INTEGER})?:({_INTEGER})?(:({_INTEGER})?)?", part):
        raise ValueError(f"{text!r} is not a slice such as 0:2,:")
    if ":" not in part:
        return int(part)
    numbers = [int(number) if number else None for number in part.split(":")]
    if len(numbers) == 3 and numbers[2] == 0:
        raise ValueError(f"{text!r}: a step cannot be 0")
    return slice(*numbers)


def file_names(names: Iterable[str]) -> list[str]:
    """A plain file name for each tensor name: no path, no hidden file, none twice, not even where case is ignored.

    >>> file_names(["layer.0.w", "../etc/passwd", "W", "w", ""])
    ['layer.0.w', '%2E.%2Fetc%2Fpasswd', 'W', 'w~2', '%']
    """
    taken: set[str] = set()
    numbers: Counter[str] = Counter()  # that have been given to names of the same beginning
    result = []
    for name in names:
        safe = re.sub(r"[^A-Za-z0-9._-]|^[.-]", lambda m: "".join(f"%{b:02X}" for b in m[0].encode("utf-8", "replace")),
                      name)[:_LONGEST] or "%"  # fmt: skip
        unique = safe
        while unique.lower() in taken:
            numbers[safe.lower()] += 1
            unique = f"{safe}~{numbers[safe.lower()] + 1}"
        taken.add(unique.lower())
        result.append(unique)
    return result


def _npy(kind: np.dtype[Any], shape: tuple[int, ...], payload: Payload) -> Plan:
    from numpy.lib import format as npy

    head = BytesIO()
    npy.write_array_header_1_0(head, {"descr": npy.dtype_to_descr(kind), "fortran_order": False, "shape": shape})
    plan = Plan()
    plan.put(head.getvalue())
    plan.stream(payload)
    return plan


def _payload(tensor: Tensor) -> Payload:
    if tensor.payload is None:
        raise ContentError(f"tensor {tensor.name!r} {tensor.dtype}{list(tensor.shape)} is declared without data")
    return tensor.payload


def _bytes(array: NDArray[Any]) -> memoryview:
    import numpy as np

    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
