"""What a model is described with: values that say more than a plain number or array does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from holdall.dtypes import DTYPES, DType, dtype_of
from holdall.errors import ContentError
from holdall.formats.oinf.layout import BITSET, TAG_OF, TAGS
from holdall.formats.oinf.quant import QuantParams
from holdall.formats.oinf.values import encode_elements
from holdall.metadata import Entry
from holdall.payload import Held
from holdall.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["DTypeName", "ScalarValue", "SizeVar", "TensorSpec", "Uninitialized"]
__all__ += ["dtype_named", "entry_of", "sizevar_of", "tensor_of"]

DTypeName: TypeAlias = str | int | DType

_ALIASES = {"f8": "f8_e5m2", "f8e5m2": "f8_e5m2", "float8e5m2": "f8_e5m2"}


@dataclass(frozen=True, slots=True, eq=False)
class TensorSpec:
    """Values for a tensor: any array or nested list, with another dtype, name or quant parameters where given.

    >>> TensorSpec([1, -8, 7], dtype="i4").dtype
    'i4'
    """

    data: ArrayLike
    dtype: DTypeName | None = None
    name: str | None = None
    quant: QuantParams | None = None


@dataclass(frozen=True, slots=True)
class Uninitialized:
    """A tensor that is declared without data. A dim may be the name of a size variable.

    >>> Uninitialized("f32", (16, "D")).shape
    (16, 'D')
    """

    dtype: DTypeName
    shape: Sequence[int | str]
    name: str | None = None
    quant: QuantParams | None = None


@dataclass(frozen=True, slots=True)
class SizeVar:
    """A size variable, where the annotation does not say so."""

    value: int


@dataclass(frozen=True, slots=True)
class ScalarValue:
    """A metadata scalar of a chosen type.

    >>> ScalarValue(1, "u64")
    ScalarValue(value=1, dtype='u64')
    """

    value: Any
    dtype: DTypeName | None = None


def dtype_named(spelling: DTypeName) -> DType:
    """The element type that ``spelling`` means: one of the format's short names, in any case, or its tag.

    >>> str(dtype_named("F8")), str(dtype_named(10)), str(dtype_named("bf16"))
    ('f8_e5m2', 'f32', 'bf16')
    """
    if isinstance(spelling, DType):
        name = spelling.name
    elif isinstance(spelling, str):
        name = _ALIASES.get(spelling.strip().lower(), spelling.strip().lower())
    else:
        name = TAGS.get(spelling, "") if type(spelling) is int else ""
    if name not in DTYPES or TAG_OF.get(name, BITSET) == BITSET:
        known = " ".join(name for name in TAG_OF if name in DTYPES and name != "bitset")
        raise ContentError(f"oinf: there is no element type {spelling!r}; there are {known}")
    return DTYPES[name]


def tensor_of(name: str, value: Any, dtype: DTypeName | None = None, sizes: Mapping[str, int] | None = None) -> Tensor:
    """The tensor that ``value`` describes; arrays are looked into, not copied."""
    if isinstance(value, Tensor):
        return value.replace(name=name)
    if isinstance(value, Uninitialized):
        return Tensor(
            value.name or name, dtype_named(value.dtype), _dims(name, value.shape, sizes or {}), None, value.quant
        )
    quant = None
    if isinstance(value, TensorSpec):
        name, dtype, quant, value = value.name or name, value.dtype if dtype is None else dtype, value.quant, value.data
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ContentError(f"oinf: tensor {name!r}: a ragged list is no array: {error}") from None
    try:
        kind = dtype_named(dtype_of(array) if dtype is None else dtype)
        payload = Held(encode_elements(array, kind))
    except ContentError as error:
        raise ContentError(f"oinf: tensor {name!r}: {str(error).removeprefix('oinf: ')}") from None
    return Tensor(name, kind, array.shape, payload, quant)


def _dims(name: str, shape: Sequence[int | str], sizes: Mapping[str, int]) -> tuple[int, ...]:
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
        return Entry(key, value)
    kind = dtype_named(dtype).name
    if isinstance(value, (list, tuple, np.ndarray)):
        return Entry(key, np.asarray(value), f"ndarray:{kind}")
    return Entry(key, bool(value) if kind == "bool" and isinstance(value, (int, float)) else value, kind)


def sizevar_of(name: str, value: Any) -> int:
    """The number that ``value`` describes: an integer, never text or a fraction taken for one."""
    if isinstance(value, SizeVar):
        value = value.value
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        return index(value)
    except TypeError:
        raise ContentError(f"oinf: sizevar {name!r}: {value!r} is not an integer in 0..2^64-1") from None
