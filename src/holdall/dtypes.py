"""The one table of element types: name, bits, what they become in numpy, how they are packed.

Types below one byte are stored as one stream of bits over the flattened tensor, low bits of a byte first,
and become arrays of one byte an element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from holdall.errors import ContentError, UnsupportedError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["DTYPES", "FINITE", "UNSIGNED_ZERO", "DType", "dtype_of", "float_info", "named"]

Kind = Literal["float", "int", "uint", "ternary", "sign", "bool", "bitset", "complex"]


@dataclass(frozen=True, slots=True)
class DType:
    """One row of the table. ``str(dtype)`` is its name.

    >>> named("i4").bits, named("i4").nbytes((3, 3)), str(named("bf16"))
    (4, 5, 'bf16')
    """

    name: str
    bits: int
    kind: Kind
    numpy_name: str  # of the decoded array; "ml:" marks a type of ml_dtypes

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

    # -- decoding ---------------------------------------------------------------------------------------------------

    def decode(self, data: memoryview, shape: Sequence[int]) -> NDArray[Any]:
        """The array of ``shape`` in ``data``: a read-only window where the bytes allow it, else a fresh array."""
        flat: NDArray[Any] = self.decode_flat(data, 0, prod(shape))
        return flat.reshape(shape)

    def decode_flat(self, data: memoryview, first: int, count: int) -> NDArray[Any]:
        """``count`` elements from element ``first`` of ``data`` on, flat."""
        import numpy as np

        if not self.packed:
            width = self.bits // 8
            window = data[first * width : (first + count) * width]
            if self.kind == "bool" and (codes := np.frombuffer(window, np.uint8)).max(initial=0) > 1:
                # A byte above 1 counts as true, and must not reach a numpy bool as it is.
                return np.asarray(codes != 0)
            array: NDArray[Any] = np.frombuffer(window, self.numpy)
            if not array.flags.aligned:
                array = array.copy()
            array.flags.writeable = False  # nothing is ever a writable window into a file
            return array
        return self.decode_bits(data, first * self.bits, count)

    def aligned(self, data: memoryview) -> bool:
        """True when ``data`` lies in memory as numpy wants it for this type, so that an array may look into it."""
        import numpy as np

        return bool(np.frombuffer(data, self.numpy).flags.aligned)

    def decode_bits(self, data: memoryview, bit: int, count: int) -> NDArray[Any]:
        """``count`` elements of a packed type from bit ``bit`` of ``data`` on: always a fresh array."""
        import numpy as np

        from holdall import kernels

        codes = np.empty(count, np.uint8)
        kind = {"int": 1, "ternary": 1, "sign": 2}.get(self.kind, 0)
        kernels.unpack(data, bit, self.bits, count, kind, codes)
        return codes.view(self.numpy)

    def widened(self, array: NDArray[Any]) -> NDArray[Any]:
        """A decoded array of this type as float32 where it is a small float, by the kernel; others as they are."""
        if self.name not in _NARROW:
            return array
        import numpy as np

        from holdall import kernels

        out = np.empty(array.shape, np.float32)
        kernels.widen(self.name, np.ascontiguousarray(array).reshape(-1).view(np.uint8), out.reshape(-1))
        return out

    # -- encoding ---------------------------------------------------------------------------------------------------

    def encode(self, array: NDArray[Any]) -> memoryview:
        """The stored bytes of ``array``, refusing every value that this type cannot hold exactly as asked.

        Floats are rounded to nearest even, as a cast; integers must be in range and whole.
        """
        return self.stored(array).data

    def stored(self, array: NDArray[Any]) -> NDArray[np.uint8]:
        """The bytes of :meth:`encode` as a flat array: a window on ``array`` where that holds them already."""
        import numpy as np

        array = np.ascontiguousarray(array)
        if array.dtype != self.numpy or self.packed or self.kind in ("ternary", "sign"):
            array = self._fit(array)
        if array.dtype.byteorder == ">":
            array = array.astype(array.dtype.newbyteorder("<"))
        if not self.packed:
            return array.reshape(-1).view(np.uint8)
        from holdall import kernels

        codes = array.reshape(-1).view(np.uint8)
        if self.kind == "sign":
            codes = (array.reshape(-1) > 0).view(np.uint8)
        out = np.empty((codes.size * self.bits + 7) // 8, np.uint8)
        kernels.pack(codes, self.bits, out)
        return out

    def _fit(self, array: NDArray[Any]) -> NDArray[Any]:
        """``array`` in this type's numpy type; ContentError for a value that would change."""
        import numpy as np

        if array.dtype.kind not in "iufcbV":  # V: the types of ml_dtypes
            raise ContentError(f"{array.dtype} values are not numbers")
        limits = self.range
        if limits is None:  # float or complex: a cast is a rounding, which the caller asked for
            if array.dtype.kind == "c" and self.kind != "complex":
                raise ContentError(f"complex values do not fit {self.name}")
            if self.name in FINITE and not np.all(np.isfinite(array)):
                raise ContentError(f"{self.name} has no NaN and no infinity")
            return _cast_float(array, self)
        if array.dtype.kind == "c":
            raise ContentError(f"complex values do not fit {self.name}")
        if array.dtype.kind not in "iub" and not _all_whole(array):
            raise ContentError(f"{self.name} holds whole numbers, not {array.dtype} fractions")
        if array.size:
            low, high = (int(array.min()), int(array.max())) if array.dtype.kind != "b" else (0, 1)
            if low < limits[0] or high > limits[1]:
                raise ContentError(f"values {low}..{high} do not fit {self.name} ({limits[0]}..{limits[1]})")
            if self.kind == "sign" and not np.all(array != 0):
                raise ContentError(f"{self.name} holds -1 and 1 only, not 0")
        return array.astype(self.numpy)


def _cast_float(array: NDArray[Any], dtype: DType) -> NDArray[Any]:
    """Round to ``dtype``. Small floats go through the kernels, which numpy's own cast is slow at."""
    import numpy as np

    if array.dtype.kind in "iu" and array.dtype.itemsize > 2:
        array = array.astype(np.float64)
    if array.dtype == dtype.numpy:
        return array
    if array.dtype.kind in "fV" and array.dtype.itemsize == 1:  # ml_dtypes has no cast between some of its own
        array = array.astype(np.float32)
    if array.dtype.kind == "f" and array.dtype.itemsize == 8 and dtype.name in _NARROW:
        array = _rounded_to_odd(array)
    if array.dtype == np.float32 and dtype.name in _NARROW:
        from holdall import kernels

        out = np.empty(array.shape, dtype.numpy)
        kernels.narrow(dtype.name, array.reshape(-1), out.reshape(-1).view(np.uint8))
        return out
    with np.errstate(over="ignore", invalid="ignore"):  # a cast may overflow to infinity, as asked; NaN stays NaN
        return array.astype(dtype.numpy)


FINITE = frozenset(("f6_e2m3", "f6_e3m2", "f4_e2m1"))  # neither infinities nor NaN
UNSIGNED_ZERO = frozenset(("f8_e4m3fnuz", "f8_e5m2fnuz", "f8_e8m0"))  # no negative zero; the last has no zero at all


def float_info(dtype: np.dtype[Any]) -> Any:
    """What numpy calls finfo, also for the types of ml_dtypes; of a complex type, that of its parts."""
    import ml_dtypes

    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def _rounded_to_odd(array: NDArray[Any]) -> NDArray[Any]:
    """float64 as float32, with an odd last bit wherever it is not exact: rounding that again cannot go wrong."""
    import numpy as np

    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        near = array.astype(np.float32)
        bits = near.view(np.uint32)
        bits -= np.abs(near) > np.abs(array)  # towards zero
        bits |= (near != array) & ~np.isnan(array)
    return near


_NARROW = frozenset(("bf16", "f16", "f8_e4m3", "f8_e5m2"))


def _all_whole(array: NDArray[Any]) -> bool:
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


def named(name: str | DType) -> DType:
    """The dtype called ``name``.

    >>> named("f8_e5m2").bits
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
    found = _by_numpy().get(array.dtype)
    if found is None and array.dtype.kind in "iufc":
        found = _by_numpy().get(array.dtype.newbyteorder("="))
    if found is None:
        raise ContentError(f"arrays of {array.dtype} cannot be stored; cast them first")
    return found


@lru_cache(maxsize=1)
def _by_numpy() -> dict[np.dtype[Any], DType]:
    table: dict[np.dtype[Any], DType] = {}
    for dtype in DTYPES.values():
        if dtype.packed and not dtype.numpy_name.startswith("ml:"):
            continue  # i4 decodes to int8, but int8 is i8
        if dtype.kind == "bitset":
            continue
        try:
            table[dtype.numpy] = dtype
        except UnsupportedError:
            continue
    return table
