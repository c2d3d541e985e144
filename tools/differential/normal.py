"""The form in which two readers' contents are compared: tensors by name, and metadata by key."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

__all__ = ["LARGE", "Content", "Values", "compare", "digest", "normalize", "too_large", "values_of"]

LARGE = 1 << 24  # bytes: the values of larger tensors are not compared

Values = tuple[str, tuple[int, ...], str]  # dtype, shape, digest of the values


@dataclass(slots=True)
class Content:
    """What a reader makes of a file."""

    tensors: dict[str, Values] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)


def digest(data: bytes | memoryview) -> str:
    """Short bytes in hexadecimal, longer ones as a hash."""
    return bytes(data).hex() if len(data) <= 32 else hashlib.blake2b(data, digest_size=16).hexdigest()


def too_large(shape: tuple[int, ...], width: int) -> bool:
    """Whether the values are too many to be compared: strides of zero make much of few bytes."""
    return prod(shape) * max(1, width) > LARGE


def values_of(array: np.ndarray, dtype: str) -> str:
    """The digest of an array: of its bytes, little-endian, or of its numbers where they have no bytes of their own."""
    if array.dtype.kind in "OU" or array.dtype.itemsize == 0:
        return repr(array.tolist())
    if dtype == "bool":  # a byte above 1 is true, in whatever way the library says so
        return digest((np.ascontiguousarray(array).reshape(-1).view(np.uint8) != 0).tobytes())
    if dtype in _SMALL:
        return digest(array.astype(np.float32).tobytes())
    order = array.dtype.newbyteorder("<") if array.dtype.kind in "iufc" else array.dtype
    return digest(np.ascontiguousarray(array, order).tobytes())


_SMALL = frozenset(("i4", "u4", "i2", "u2", "f4_e2m1", "f6_e2m3", "f6_e3m2"))


def normalize(value: Any) -> Any:
    """A value of metadata in a form that compares by type and by bits: 1, 1.0 and True differ, NaN is NaN."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return ("float", value.hex())
    if isinstance(value, int):
        return ("int", int(value))
    if isinstance(value, str):
        return ("text", str(value))
    if isinstance(value, bytes | bytearray | memoryview):
        return ("bytes", bytes(value).hex())
    if isinstance(value, Mapping):
        return ("dict", [(normalize(key), normalize(item)) for key, item in value.items()])
    if isinstance(value, list | tuple):
        return ("list", [normalize(item) for item in value])
    return ("other", str(value))


def compare(ours: Content, theirs: Content) -> list[str]:
    """What differs, one short sentence each; the first word is its kind."""
    found: list[str] = []
    if list(ours.tensors) != list(theirs.tensors) and set(ours.tensors) != set(theirs.tensors):
        only = sorted(str(name)[:60] for name in set(ours.tensors) ^ set(theirs.tensors))
        found.append(f"names: {only[:4]} are in one only")
    for name in ours.tensors.keys() & theirs.tensors.keys():
        for what, mine, other in zip(
            ("dtype", "shape", "values"), ours.tensors[name], theirs.tensors[name], strict=True
        ):
            if mine != other:
                found.append(f"{what}: {name[:60]!r} is {str(mine)[:80]} here and {str(other)[:80]} there")
                break
    for key in ours.metadata.keys() | theirs.metadata.keys():  # not sorted: keys of a pickle may be of any type
        mine, other = ours.metadata.get(key, "absent"), theirs.metadata.get(key, "absent")
        if mine != other:
            found.append(f"metadata: {repr(key)[:60]} is {str(mine)[:80]} here and {str(other)[:80]} there")
    return sorted(found)
