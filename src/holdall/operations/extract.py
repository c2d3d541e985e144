"""Single tensors as files: as .npy, or as their stored bytes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from math import prod
from typing import TYPE_CHECKING, Any

from holdall.base.buffer_sizes import buffer_size
from holdall.base.file_names import is_device
from holdall.errors import ContentError, UnsupportedError
from holdall.model.casts import cast as cast_to
from holdall.model.casts import dequantize
from holdall.model.dtypes import DType, find_dtype
from holdall.model.encodings import Opaque
from holdall.model.payload import Computed, InMemory, Payload
from holdall.model.tensor import Tensor
from holdall.sink.plan import Constant, Plan, Stream

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["choose_plain", "make_file_names", "npy_type_of", "parse_slice", "plan_npy", "plan_raw", "stream_plan"]

_BLOCK = buffer_size(1 << 20)  # elements decoded or cast at a time
_INTEGER = "-?[0-9]{1,19}"
_RANK = 64  # the most dimensions of a numpy array
_LONGEST = 120  # characters of a file name without its suffix


def npy_type_of(tensor: Tensor, cast: str | None = None) -> np.dtype[Any] | None:
    """The numpy type of the tensor in an .npy file; None for types that .npy cannot express (bf16, f8)."""
    import numpy as np

    stored = tensor.dtype if cast is None else find_dtype(cast)
    if isinstance(tensor.dtype, Opaque):
        return None  # there is no decoder for its bytes
    if cast is not None and find_dtype(cast).packed:
        return None  # .npy would store its values unpacked, one in each byte
    found = stored.numpy if isinstance(stored, DType) else np.dtype(np.float32)
    return None if found.kind == "V" or found.isbuiltin != 1 else found


def choose_plain(tensor: Tensor, cast: str | None = None) -> tuple[Tensor, str | None]:
    """Return a quantized tensor as plain numbers, and the dtype to cast these to.

    They are those that ``holdall convert --dequantize`` writes; of a type that .npy cannot express, float32 holds them.
    With ``cast`` they are float32, so that they are rounded once. Any other tensor is returned unchanged.
    """
    plain = dequantize(tensor, None if cast is None else "f32")
    if plain is not tensor and cast is None and npy_type_of(plain) is None:
        return plain, "f32"
    return plain, cast


def plan_npy(
    tensor: Tensor,
    key: tuple[Any, ...] | None = None,
    cast: str | None = None,
    on_warning: Callable[[str], None] = lambda text: None,
) -> Plan:
    """Plan an .npy file of the tensor, or of the slice ``key`` of it, cast to the dtype ``cast``.

    A whole tensor is streamed in blocks; a slice is held in memory, once. ``on_warning`` receives a message about
    values beyond the new type when they are computed.
    """
    kind = npy_type_of(tensor, cast)
    if kind is None and isinstance(tensor.dtype, Opaque):
        raise ContentError(f"tensor {tensor.name!r}: holdall does not decode {tensor.dtype}; take the stored bytes")
    if kind is None:
        what = cast or tensor.dtype
        raise ContentError(f"tensor {tensor.name!r}: .npy cannot express {what}; cast to f32, or take the stored bytes")
    _require_payload(tensor)
    if len(tensor.shape) > _RANK:
        raise UnsupportedError(f"tensor {tensor.name!r} has {len(tensor.shape)} dims, numpy at most {_RANK}")
    taken = tensor if key is None else _take_slice(tensor, key)
    if cast is not None:
        plain = taken if isinstance(taken.dtype, DType) else dequantize(taken)
        return _plan_array(kind, taken.shape, _require_payload(cast_to(plain, find_dtype(cast), on_warning)))

    def make() -> Iterator[memoryview]:
        for block in taken.blocks(_BLOCK):
            yield _view_bytes(block)

    return _plan_array(kind, taken.shape, Computed(prod(taken.shape) * kind.itemsize, make, taken.payloads))


def _take_slice(tensor: Tensor, key: tuple[Any, ...]) -> Tensor:
    """Take a slice as a tensor in memory; that of an encoded tensor has its decoded values."""
    values = tensor[key]
    dtype = tensor.dtype if isinstance(tensor.dtype, DType) else find_dtype("f32")
    return Tensor(tensor.name, dtype, values.shape, InMemory(dtype.encode(values)))


def plan_raw(tensor: Tensor, key: tuple[Any, ...] | None = None) -> Plan:
    """Plan a file of the tensor's stored bytes; a slice is packed like the tensor."""
    plan = Plan()
    if key is None:
        plan.stream(_require_payload(tensor))
        return plan
    if not isinstance(tensor.dtype, DType):
        instead = "holdall does not decode it: take it whole" if isinstance(tensor.dtype, Opaque) else "take it as .npy"
        raise UnsupportedError(f"tensor {tensor.name!r}: a slice of {tensor.dtype} has no stored form; {instead}")
    plan.stream(_require_payload(_take_slice(tensor, key)))
    return plan


def stream_plan(plan: Plan) -> Iterator[memoryview]:
    """The bytes of a plan without late pieces, in order. A pipe cannot be patched later."""
    at = 0
    for piece in plan.pieces:
        assert isinstance(piece, (Constant, Stream)) and piece.offset == at
        yield from (memoryview(piece.data),) if isinstance(piece, Constant) else piece.payload.chunks()
        at += piece.size


def parse_slice(text: str) -> tuple[Any, ...]:
    """Parse a basic index in Python's notation.

    >>> parse_slice("0:2, :, -1")
    (slice(0, 2, None), slice(None, None, None), -1)
    """
    return tuple(_parse_item(part.strip(), text) for part in text.strip().strip("[]").split(","))


def _parse_item(part: str, text: str) -> Any:
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


def make_file_names(names: Iterable[str]) -> list[str]:
    """Make a file name for each tensor name: no path, not hidden, and unique even where case is ignored; no device.

    >>> make_file_names(["layer.0.w", "../etc/passwd", "W", "w", "", "con.w"])
    ['layer.0.w', '%2E.%2Fetc%2Fpasswd', 'W', 'w~2', '%', '%63on.w']
    """
    taken: set[str] = set()
    numbers: Counter[str] = Counter()  # how many names got a number, by their common beginning
    result = []
    for name in names:
        safe = re.sub(r"[^A-Za-z0-9._-]|^[.-]", lambda m: "".join(f"%{b:02X}" for b in m[0].encode("utf-8", "replace")),
                      name)[:_LONGEST] or "%"  # fmt: skip
        if is_device(safe):
            safe = f"%{ord(safe[0]):02X}{safe[1:]}"
        unique = safe
        while unique.lower() in taken:
            numbers[safe.lower()] += 1
            unique = f"{safe}~{numbers[safe.lower()] + 1}"
        taken.add(unique.lower())
        result.append(unique)
    return result


def _plan_array(kind: np.dtype[Any], shape: tuple[int, ...], payload: Payload) -> Plan:
    from numpy.lib import format as npy

    head = BytesIO()
    npy.write_array_header_1_0(head, {"descr": npy.dtype_to_descr(kind), "fortran_order": False, "shape": shape})
    plan = Plan()
    plan.put(head.getvalue())
    plan.stream(payload)
    return plan


def _require_payload(tensor: Tensor) -> Payload:
    if tensor.payload is None:
        raise ContentError(f"tensor {tensor.name!r} {tensor.dtype}{list(tensor.shape)} is declared without data")
    return tensor.payload


def _view_bytes(array: NDArray[Any]) -> memoryview:
    import numpy as np

    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
