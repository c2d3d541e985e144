"""The one table of element types: name, bits, numpy counterpart, packing.

Types below one byte are stored as one stream of bits over the flattened tensor, low bits of a byte first. They decode
to arrays with one byte for each element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

from holdall.errors import ContentError, UnsupportedError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["DTYPES", "FINITE", "UNSIGNED_ZERO", "DType", "dtype_of", "find_dtype", "float_info", "is_stored_form"]

Kind = Literal["float", "int", "uint", "ternary", "sign", "bool", "bitset", "complex"]


@dataclass(frozen=True, slots=True)
class DType:
    """One row of the table. ``str(dtype)`` is its name.

    >>> find_dtype("i4").bits, find_dtype("i4").nbytes((3, 3)), str(find_dtype("bf16"))
    (4, 5, 'bf16')
    """

    name: str
    bits: int
    kind: Kind
    numpy_name: str  # the numpy type of the decoded array; "ml:" marks a type of ml_dtypes

    def __str__(self) -> str:
        return self.name

    @property
    def packed(self) -> bool:
        """True when several elements share a byte."""
        return self.bits % 8 != 0

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy (or ml_dtypes) type of the decoded array."""
        return _numpy_dtype(self.numpy_name)

    @property
    def range(self) -> tuple[int, int] | None:
        """Smallest and largest value of an integer-like type."""
        match self.kind:
            case "int":
                return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
            case "uint" | "bitset":
                return 0, (1 << self.bits) - 1
            case "bool":
                return 0, 1
            case "ternary" | "sign":
                return -1, 1
            case _:
                return None

    def nbytes(self, shape: Sequence[int]) -> int:
        """Stored bytes of a tensor of this shape, in exact integers."""
        return (prod(shape) * self.bits + 7) // 8

    def decode(self, data: memoryview, shape: Sequence[int]) -> NDArray[Any]:
        """Decode the array of ``shape`` in ``data``: a read-only view where the bytes allow it, else a fresh array."""
        flat: NDArray[Any] = self.decode_flat(data, 0, prod(shape))
        return flat if len(shape) == 1 else flat.reshape(shape)

    def decode_flat(self, data: memoryview, first: int, count: int) -> NDArray[Any]:
        """Decode ``count`` elements from element ``first`` of ``data`` on, flat."""
        import numpy as np

        if not self.packed:
            width = self.bits // 8
            window = data[first * width : (first + count) * width]
            if self.kind == "bool" and (codes := np.frombuffer(window, np.uint8)).max(initial=0) > 1:
                # A byte above 1 counts as true, but a numpy bool must be 0 or 1.
                return np.asarray(codes != 0)
            array: NDArray[Any] = np.frombuffer(window, self.numpy)
            if not array.flags.aligned:
                array = array.copy()
            array.flags.writeable = False  # a view must not write into the file
            return array
        return self.decode_bits(data, first * self.bits, count)

    def is_aligned(self, data: memoryview) -> bool:
        """Whether ``data`` is aligned in memory for this type, so that an array can be a view of it."""
        import numpy as np

        return bool(np.frombuffer(data, self.numpy).flags.aligned)

    def decode_bits(self, data: memoryview, bit: int, count: int) -> NDArray[Any]:
        """Decode ``count`` elements of a packed type from bit ``bit`` of ``data`` on: always a fresh array."""
        import numpy as np

        from holdall.binary import kernels

        codes = np.empty(count, np.uint8)
        kind = {"int": 1, "ternary": 1, "sign": 2}.get(self.kind, 0)
        kernels.unpack(data, bit, self.bits, count, kind, codes)
        return codes.view(self.numpy)

    @property
    def is_small(self) -> bool:
        """Whether the kernels convert this type to and from float32."""
        return self.name in _NARROW

    def widen(self, array: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return a decoded array of a small float type as float32, by the kernel; arrays of other types unchanged.

        ``out`` is where the float32 are put; without it they get memory of their own.
        """
        if not self.is_small:
            return array
        import numpy as np

        from holdall.binary import kernels

        wide = np.empty(array.shape, np.float32) if out is None else out.reshape(array.shape)
        kernels.widen(self.name, np.ascontiguousarray(array).reshape(-1).view(np.uint8), wide.reshape(-1))
        return wide

    def narrow(self, array: NDArray[Any], out: NDArray[Any]) -> None:
        """Put a float32 array as this small float type, rounded to nearest even, into the bytes of ``out``."""
        from holdall.binary import kernels

        kernels.narrow(self.name, array.reshape(-1), out)

    def encode(self, array: NDArray[Any]) -> memoryview:
        """Encode the stored bytes of ``array``; ContentError for a value that this type cannot hold.

        Floats are rounded to nearest even, as by a cast; values of an integer type must be whole and in range.
        """
        return self.encode_to_array(array).data

    def encode_to_array(self, array: NDArray[Any]) -> NDArray[np.uint8]:
        """Encode the bytes of :meth:`encode` as a flat array: a view of ``array`` where that holds them already."""
        import numpy as np

        array = np.ascontiguousarray(array)
        if array.dtype != self.numpy or self.packed or self.kind in ("ternary", "sign"):
            array = self._fit(array)
        if array.dtype.byteorder == ">":
            array = array.astype(array.dtype.newbyteorder("<"))
        if not self.packed:
            return array.reshape(-1).view(np.uint8)
        from holdall.binary import kernels

        codes = array.reshape(-1).view(np.uint8)
        if self.kind == "sign":
            codes = (array.reshape(-1) > 0).view(np.uint8)
        out = np.empty((codes.size * self.bits + 7) // 8, np.uint8)
        kernels.pack(codes, self.bits, out)
        return out

    def _fit(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return ``array`` in this type's numpy type; ContentError for a value that would change."""
        import numpy as np

        if array.dtype.kind not in "iufcbV":  # V: the types of ml_dtypes
            raise ContentError(f"{array.dtype} values are not numbers")
        limits = self.range
        if limits is None:  # a float or complex type: the caller asked for rounding
            if array.dtype.kind == "c" and self.kind != "complex":
                raise ContentError(f"complex values do not fit {self.name}")
            if self.name in FINITE and not np.all(np.isfinite(array)):
                raise ContentError(f"{self.name} has no NaN and no infinity")
            return _cast_float(array, self)
        if array.dtype.kind == "c":
            raise ContentError(f"complex values do not fit {self.name}")
        if array.dtype.kind not in "iub" and not _are_whole(array):
            raise ContentError(f"{self.name} holds whole numbers, not {array.dtype} fractions")
        if array.size:
            low, high = (int(array.min()), int(array.max())) if array.dtype.kind != "b" else (0, 1)
            if low < limits[0] or high > limits[1]:
                raise ContentError(f"values {low}..{high} do not fit {self.name} ({limits[0]}..{limits[1]})")
            if self.kind == "sign" and not np.all(array != 0):
                raise ContentError(f"{self.name} holds -1 and 1 only, not 0")
        return array.astype(self.numpy)


def _cast_float(array: NDArray[Any], dtype: DType) -> NDArray[Any]:
    """Round to ``dtype``. Small floats go through the kernels, since the cast of numpy is slow for them."""
    import numpy as np

    if array.dtype.kind in "iu" and array.dtype.itemsize > 2:
        array = array.astype(np.float64)
    if array.dtype == dtype.numpy:
        return array
    if array.dtype.kind in "fV" and array.dtype.itemsize == 1:  # ml_dtypes lacks casts between some of its types
        array = array.astype(np.float32)
    if array.dtype.kind == "f" and array.dtype.itemsize == 8 and dtype.is_small:
        array = _round_to_odd(array)
    if array.dtype == np.float32 and dtype.is_small:
        out = np.empty(array.shape, dtype.numpy)
        dtype.narrow(array, out.reshape(-1).view(np.uint8))
        return out
    with np.errstate(over="ignore", invalid="ignore"):  # a cast may overflow to infinity, and NaN stays NaN
        return array.astype(dtype.numpy)


FINITE = frozenset(("f6_e2m3", "f6_e3m2", "f4_e2m1"))  # neither infinities nor NaN
UNSIGNED_ZERO = frozenset(("f8_e4m3fnuz", "f8_e5m2fnuz", "f8_e8m0"))  # no negative zero; the last has no zero at all


@cache
def float_info(dtype: np.dtype[Any]) -> Any:
    """``numpy.finfo``, also for the types of ml_dtypes; for a complex type, that of its parts."""
    import ml_dtypes

    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def _round_to_odd(array: NDArray[Any]) -> NDArray[Any]:
    """float64 as float32, with an odd last bit where it is not exact: a second rounding then gives the right result."""
    import numpy as np

    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        near = array.astype(np.float32)
        bits = near.view(np.uint32)
        bits -= np.abs(near) > np.abs(array)  # towards zero
        bits |= (near != array) & ~np.isnan(array)
    return near


_NARROW = frozenset(("bf16", "f16", "f8_e4m3", "f8_e5m2"))


def _are_whole(array: NDArray[Any]) -> bool:
    import numpy as np

    with np.errstate(invalid="ignore"):
        return bool(np.all(np.isfinite(array)) and np.all(array == np.trunc(array)))


@cache
def _numpy_dtype(name: str) -> np.dtype[Any]:
    import numpy as np

    if not name.startswith("ml:"):
        return np.dtype(name)
    import ml_dtypes

    kind = getattr(ml_dtypes, name[3:], None)
    if kind is None:
        raise UnsupportedError(f"this version of ml_dtypes has no {name[3:]}")
    found: np.dtype[Any] = np.dtype(kind)
    return found


_ROWS: tuple[tuple[str, int, Kind, str], ...] = (
    ("f64", 64, "float", "<f8"),
    ("f32", 32, "float", "<f4"),
    ("f16", 16, "float", "<f2"),
    ("bf16", 16, "float", "ml:bfloat16"),
    ("f8_e4m3", 8, "float", "ml:float8_e4m3fn"),
    ("f8_e5m2", 8, "float", "ml:float8_e5m2"),
    ("f8_e4m3fnuz", 8, "float", "ml:float8_e4m3fnuz"),
    ("f8_e5m2fnuz", 8, "float", "ml:float8_e5m2fnuz"),
    ("f8_e8m0", 8, "float", "ml:float8_e8m0fnu"),
    ("f6_e2m3", 6, "float", "ml:float6_e2m3fn"),
    ("f6_e3m2", 6, "float", "ml:float6_e3m2fn"),
    ("f4_e2m1", 4, "float", "ml:float4_e2m1fn"),
    ("i64", 64, "int", "<i8"),
    ("i32", 32, "int", "<i4"),
    ("i16", 16, "int", "<i2"),
    ("i8", 8, "int", "i1"),
    ("i4", 4, "int", "i1"),
    ("i2", 2, "int", "i1"),
    ("i1", 1, "int", "i1"),
    ("u64", 64, "uint", "<u8"),
    ("u32", 32, "uint", "<u4"),
    ("u16", 16, "uint", "<u2"),
    ("u8", 8, "uint", "u1"),
    ("u4", 4, "uint", "u1"),
    ("u2", 2, "uint", "u1"),
    ("u1", 1, "uint", "u1"),
    ("t2", 2, "ternary", "i1"),
    ("t1", 1, "sign", "i1"),
    ("bool", 8, "bool", "?"),
    ("bitset", 8, "bitset", "u1"),
    ("c64", 64, "complex", "<c8"),
    ("c128", 128, "complex", "<c16"),
)

DTYPES: Mapping[str, DType] = {name: DType(name, bits, kind, numpy) for name, bits, kind, numpy in _ROWS}


def find_dtype(name: str | DType) -> DType:
    """Find the dtype called ``name``.

    >>> find_dtype("f8_e5m2").bits
    8
    """
    if isinstance(name, DType):
        return name
    try:
        return DTYPES[name]
    except KeyError:
        raise UnsupportedError(f"there is no dtype {name!r}; the dtypes are {' '.join(DTYPES)}") from None


def dtype_of(array: NDArray[Any]) -> DType:
    """The dtype that holds ``array`` exactly.

    >>> import numpy as np
    >>> str(dtype_of(np.zeros(2, np.float16)))
    'f16'
    """
    found = _dtypes_by_numpy().get(array.dtype)
    if found is None and array.dtype.kind in "iufc":
        found = _dtypes_by_numpy().get(array.dtype.newbyteorder("="))
    if found is None:
        raise ContentError(f"arrays of {array.dtype} cannot be stored; cast them first")
    return found


def is_stored_form(value: object) -> TypeGuard[NDArray[Any]]:
    """Whether ``value`` is an array whose memory is what files store: contiguous, of a plain type, little-endian.

    >>> import numpy as np
    >>> is_stored_form(np.zeros(2)), is_stored_form(np.zeros(2, ">f8")), is_stored_form(np.zeros((4, 4))[:, 1])
    (True, False, False)
    """
    import numpy as np

    return type(value) is np.ndarray and value.dtype in _plain_types() and value.flags.c_contiguous


@lru_cache(maxsize=1)
def _plain_types() -> frozenset[np.dtype[Any]]:
    """The types of whole bytes that numpy itself knows; other types give no buffer."""
    plain = (dtype for dtype in DTYPES.values() if not dtype.packed and not dtype.numpy_name.startswith("ml:"))
    return frozenset(dtype.numpy for dtype in plain)


@lru_cache(maxsize=1)
def _dtypes_by_numpy() -> dict[np.dtype[Any], DType]:
    table: dict[np.dtype[Any], DType] = {}
    for dtype in DTYPES.values():
        if dtype.packed and not dtype.numpy_name.startswith("ml:"):
            continue  # i4 decodes to int8, but an int8 array is stored as i8
        if dtype.kind == "bitset":
            continue
        try:
            table[dtype.numpy] = dtype
        except UnsupportedError:
            continue
    return table
