"""The values with which a dataclass or dict describes a model beyond plain numbers and arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from holdall.errors import ContentError
from holdall.format.oinf.layout import TAG_OF, TAGS
from holdall.format.oinf.quant import QuantParams
from holdall.format.oinf.values import encode_elements
from holdall.model.dtypes import DTYPES, DType, dtype_of
from holdall.model.metadata import Entry
from holdall.model.payload import InMemory
from holdall.model.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["DTypeName", "ScalarValue", "SizeVar", "TensorSpec", "Uninitialized"]
__all__ += ["entry_of", "parse_dtype", "sizevar_of", "tensor_of"]

DTypeName: TypeAlias = str | int | DType

_ALIASES = {"f8": "f8_e5m2", "f8e5m2": "f8_e5m2", "float8e5m2": "f8_e5m2"}


@dataclass(frozen=True, slots=True, eq=False)
class TensorSpec:
    """Values for a tensor: an array or a nested list, optionally with a dtype, a name and quant parameters.

    >>> TensorSpec([1, -8, 7], dtype="i4").dtype
    'i4'
    """

    data: ArrayLike
    dtype: DTypeName | None = None
    name: str | None = None
    quant: QuantParams | None = None


@dataclass(frozen=True, slots=True)
class Uninitialized:
    """A tensor without data. A dim may be the name of a size variable.

    >>> Uninitialized("f32", (16, "D")).shape
    (16, 'D')
    """

    dtype: DTypeName
    shape: Sequence[int | str]
    name: str | None = None
    quant: QuantParams | None = None


@dataclass(frozen=True, slots=True)
class SizeVar:
    """A size variable, for a field whose annotation does not say that it is one."""

    value: int


@dataclass(frozen=True, slots=True)
class ScalarValue:
    """A metadata scalar of a chosen type.

    >>> ScalarValue(1, "u64")
    ScalarValue(value=1, dtype='u64')
    """

    value: Any
    dtype: DTypeName | None = None


def parse_dtype(spelling: DTypeName) -> DType:
    """Parse the element type with the name ``spelling``, in upper or lower case, or with that tag.

    >>> str(parse_dtype("F8")), str(parse_dtype(10)), str(parse_dtype("bf16"))
    ('f8_e5m2', 'f32', 'bf16')
    """
    if isinstance(spelling, DType):
        name = spelling.name
    elif isinstance(spelling, str):
        name = _ALIASES.get(spelling.strip().lower(), spelling.strip().lower())
    else:
        name = TAGS.get(spelling, "") if type(spelling) is int else ""
    if name not in DTYPES or name not in TAG_OF:
        known = " ".join(name for name in TAG_OF if name in DTYPES)
        raise ContentError(f"oinf: there is no element type {spelling!r}; there are {known}")
    return DTYPES[name]


def tensor_of(name: str, value: Any, dtype: DTypeName | None = None, sizes: Mapping[str, int] | None = None) -> Tensor:
    """The tensor that ``value`` describes. Arrays are not copied where their bytes can be used."""
    if isinstance(value, Tensor):
        return value.replace(name=name)
    if isinstance(value, Uninitialized):
        return Tensor(
            value.name or name,
            parse_dtype(value.dtype),
            _resolve_dims(name, value.shape, sizes or {}),
            None,
            value.quant,
        )
    quant = None
    if isinstance(value, TensorSpec):
        name, dtype, quant, value = value.name or name, value.dtype if dtype is None else dtype, value.quant, value.data
    try:
        array = _to_array(value)
    except ValueError as error:
        raise ContentError(f"oinf: tensor {name!r}: a ragged list is no array: {error}") from None
    try:
        kind = parse_dtype(dtype_of(array) if dtype is None else dtype)
        payload = InMemory(encode_elements(array, kind))
    except ContentError as error:
        raise ContentError(f"oinf: tensor {name!r}: {str(error).removeprefix('oinf: ')}") from None
    return Tensor(name, kind, array.shape, payload, quant)


def _to_array(value: ArrayLike) -> NDArray[Any]:
    """Return ``value`` as an array; integers stay exact where numpy makes floats of them, because some reach 2^63."""
    array = np.asarray(value)
    if array.dtype == np.float64 and isinstance(value, (list, tuple)):
        exact = np.asarray(value, object)
        if all(type(item) is int and 0 <= item < 1 << 64 for item in exact.flat):
            return exact.astype(np.uint64) if exact.size else array
    return array


def _resolve_dims(name: str, shape: Sequence[int | str], sizes: Mapping[str, int]) -> tuple[int, ...]:
    dims = []
    for dim in shape:
        if isinstance(dim, str) and dim not in sizes:
            raise ContentError(f"oinf: tensor {name!r}: the dim {dim!r} is not a size variable of the model")
        value = sizes[dim] if isinstance(dim, str) else index(dim)
        if value < 0:
            raise ContentError(f"oinf: tensor {name!r}: a dim of {value} is negative")
        dims.append(value)
    return tuple(dims)


def entry_of(key: str, value: Any, dtype: DTypeName | None = None) -> Entry:
    """The metadata entry that ``value`` describes."""
    if isinstance(value, ScalarValue):
        value, dtype = value.value, value.dtype if dtype is None else dtype
    if isinstance(value, (TensorSpec, Uninitialized, SizeVar, Tensor)):
        raise ContentError(f"oinf: metadata {key!r}: a {type(value).__name__} is no metadata value")
    if dtype is None:
        # As in the format's own writer a number from numpy takes the type that a plain number of its value takes.
        return Entry(key, value.item() if isinstance(value, (np.integer, np.floating)) else value)
    kind = parse_dtype(dtype).name
    if isinstance(value, (list, tuple, np.ndarray)):
        return Entry(key, np.asarray(value), f"ndarray:{kind}")
    return Entry(key, bool(value) if kind == "bool" and isinstance(value, (int, float)) else value, kind)


def sizevar_of(name: str, value: Any) -> int:
    """The integer that ``value`` describes; raises ContentError for text and fractions."""
    if isinstance(value, SizeVar):
        value = value.value
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        return index(value)
    except TypeError:
        raise ContentError(f"oinf: sizevar {name!r}: {value!r} is not an integer in 0..2^64-1") from None
