"""Metadata values: scalars, strings, bitsets and arrays, with the kind that they are stored as."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from math import inf, prod
from typing import Any, Final

import numpy as np

from holdall.check import Check, figure
from holdall.dtypes import DTYPES, DType, dtype_of, named
from holdall.errors import ContentError
from holdall.formats.oinf import rules
from holdall.formats.oinf.layout import ALIGN, BITSET, NDARRAY, STRING, TAG_OF, TAGS

__all__ = ["Bitset", "StoredNaN", "decode", "encode", "encode_elements", "name_breach", "value_breach"]

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_UNFIT: Final = (ContentError, OverflowError, ValueError, TypeError)  # what tells that a value does not fit
_ARRAY_HEAD: Final = struct.Struct("<II")
_RANK: Final = 64  # of a numpy array
_BITSET_HEAD: Final = struct.Struct("<II")
_F32_END: Final = 2.0**128 - 2.0**103  # from here on a float64 rounds to an infinite float32


class Bitset(Sequence[bool]):
    """A number of bits, stored eight to a byte, lowest first.

    >>> Bitset([1, 0, 1]).data, list(Bitset(data=b"\\x05", bits=3))
    (b'\\x05', [True, False, True])
    """

    __slots__ = ("bits", "data")

    def __init__(self, values: Iterable[Any] = (), *, data: bytes | None = None, bits: int | None = None) -> None:
        if data is None:
            flags = [bool(value) for value in values]
            self.bits = len(flags)
            self.data = np.packbits(np.array(flags, np.bool_), bitorder="little").tobytes()
        else:
            self.bits = len(data) * 8 if bits is None else bits
            self.data = bytes(data)
            if len(self.data) != -(-self.bits // 8):
                raise ContentError(f"{self.bits} bits take {-(-self.bits // 8)} bytes, not {len(self.data)}")

    def __len__(self) -> int:
        return self.bits

    def __getitem__(self, index: Any) -> Any:
        return self._flags()[index]

    def __iter__(self) -> Iterator[bool]:
        return iter(self._flags())

    def _flags(self) -> list[bool]:
        array = np.unpackbits(np.frombuffer(self.data, np.uint8), bitorder="little")[: self.bits]
        flags: list[bool] = array.astype(np.bool_).tolist()
        return flags

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bitset) and (self.bits, self.data) == (other.bits, other.data)

    def __hash__(self) -> int:
        return hash((self.bits, self.data))

    def __repr__(self) -> str:
        return f"Bitset({self.bits} bits, {self.data.hex()})"


class StoredNaN(float):
    """A NaN whose bits are not the usual ones: a float that remembers how it was stored.

    >>> StoredNaN("f16", b"\\x01\\x7e")
    nan
    """

    kind: str
    code: bytes

    def __new__(cls, kind: str, code: bytes) -> StoredNaN:
        value = super().__new__(cls, "nan")
        value.kind, value.code = kind, code
        return value

    def __reduce__(self) -> tuple[type[StoredNaN], tuple[str, bytes]]:
        return StoredNaN, (self.kind, self.code)


def name_breach(name: str) -> str | None:
    """Why ``name`` cannot be an OINF name; None when it can."""
    if _NAME.fullmatch(name):
        return None
    return f"the name {name!r} is not made of A-Z a-z 0-9 . _ -" if name else "the name is empty"


# -- reading ----------------------------------------------------------------------------------------------------------


def decode(tag: int, data: bytes, at: int, key: str, check: Check) -> tuple[Any, str]:
    """The value stored as ``tag`` in ``data``, which begins at byte ``at``, and its kind."""
    kind = TAGS[tag]
    if tag == STRING:
        return _decode_string(data, at, key, check), kind
    if tag == BITSET:
        return _decode_bitset(data, at, key, check), kind
    if tag == NDARRAY:
        return _decode_array(data, at, key, check)
    dtype = DTYPES[kind]
    if len(data) != dtype.nbytes(()):
        check.fail(
            rules.META_SIZE, at, f"oinf: metadata {key!r}: a {kind} takes {dtype.nbytes(())} bytes, not {len(data)}"
        )
    if kind == "bool" and data[0] > 1:
        check.note(rules.META_BOOL, at, f"oinf: metadata {key!r}: a BOOL of {data[0]}")
    _check_spare_bits(dtype, 1, data, at, key, check)
    value = dtype.decode(memoryview(data), ()).item()
    if value != value and encode(key, value, kind)[1] != data:
        value = StoredNaN(kind, data)
    return value, kind


def _decode_string(data: bytes, at: int, key: str, check: Check) -> str:
    length = int.from_bytes(data[:4], "little") if len(data) >= 4 else None
    if length is None or len(data) != _padded(4 + length):
        needs = "at least 8" if length is None else str(_padded(4 + length))
        check.fail(rules.META_SIZE, at, f"oinf: metadata {key!r}: the string takes {needs} bytes, not {len(data)}")
    _check_padding(data[4 + length :], at + 4 + length, key, check)
    try:
        value = data[4 : 4 + length].decode()
    except UnicodeDecodeError as error:
        check.fail(rules.META_STRING, at + 4 + error.start, f"oinf: metadata {key!r}: the string is not UTF-8")
    if not _NAME.fullmatch(value):
        what = "is empty" if not value else "has characters outside A-Z a-z 0-9 . _ -"
        check.note(rules.META_CHARSET, at, f"oinf: metadata {key!r}: the string {what}")
    return value


def _decode_bitset(data: bytes, at: int, key: str, check: Check) -> Bitset:
    if len(data) < _BITSET_HEAD.size:
        check.fail(rules.META_SIZE, at, f"oinf: metadata {key!r}: a bitset takes at least 8 bytes, not {len(data)}")
    bits, size = _BITSET_HEAD.unpack_from(data)
    if size != -(-bits // 8):
        check.fail(rules.META_BITSET, at, f"oinf: metadata {key!r}: {bits} bits take {-(-bits // 8)} bytes, not {size}")
    if len(data) != _padded(8 + size):
        message = f"oinf: metadata {key!r}: the bitset takes {_padded(8 + size)} bytes, not {len(data)}"
        check.fail(rules.META_SIZE, at, message)
    stored = data[8 : 8 + size]
    if bits % 8 and stored[-1] >> bits % 8:
        check.note(rules.META_BITS, at + 7 + size, f"oinf: metadata {key!r}: unused bits of the bitset are not 0")
    _check_padding(data[8 + size :], at + 8 + size, key, check)
    return Bitset(data=stored, bits=bits)


def _decode_array(data: bytes, at: int, key: str, check: Check) -> tuple[Any, str]:
    if len(data) < _ARRAY_HEAD.size:
        check.fail(rules.META_SIZE, at, f"oinf: metadata {key!r}: an array takes at least 8 bytes, not {len(data)}")
    tag, rank = _ARRAY_HEAD.unpack_from(data)
    kind = TAGS.get(tag, "")
    if kind not in DTYPES or tag == BITSET:
        check.fail(rules.META_ARRAY, at, f"oinf: metadata {key!r}: arrays of tag {tag} do not exist")
    start = _ARRAY_HEAD.size + 8 * rank
    if start > len(data):
        check.fail(rules.META_SIZE, at + 4, f"oinf: metadata {key!r}: {rank} dims do not fit in {len(data)} bytes")
    if rank > _RANK:
        check.fail(rules.META_SIZE, at + 4, f"oinf: metadata {key!r}: numpy cannot hold an array of {rank} dims")
    shape = struct.unpack_from(f"<{rank}Q", data, _ARRAY_HEAD.size)
    dtype = DTYPES[kind]
    size = dtype.nbytes(shape)
    if len(data) != _padded(start + size):
        takes = figure(_padded(start + size))
        message = f"oinf: metadata {key!r}: {kind}{list(shape)} takes {takes} bytes, not {len(data)}"
        check.fail(rules.META_SIZE, at, message)
    if prod(d for d in shape if d) >= 1 << 60:
        check.fail(rules.META_SIZE, at + 4, f"oinf: metadata {key!r}: numpy cannot hold the shape {list(shape)[:8]}")
    stored = data[start : start + size]
    if kind == "bool" and stored and max(stored) > 1:
        check.note(rules.META_BOOL, at + start, f"oinf: metadata {key!r}: a BOOL element above 1")
    _check_spare_bits(dtype, prod(shape), stored, at + start, key, check)
    _check_padding(data[start + size :], at + start + size, key, check)
    return dtype.decode(memoryview(stored), shape), f"ndarray:{kind}"


def _check_padding(padding: bytes, at: int, key: str, check: Check) -> None:
    if any(padding):
        check.note(rules.META_BITS, at, f"oinf: metadata {key!r}: padding is not 0")


def _check_spare_bits(dtype: DType, count: int, data: bytes, at: int, key: str, check: Check) -> None:
    used = count * dtype.bits % 8
    if used and data[-1] >> used:
        check.note(rules.META_BITS, at + len(data) - 1, f"oinf: metadata {key!r}: unused bits are not 0")


def _padded(size: int) -> int:
    return size + -size % ALIGN


# -- writing ----------------------------------------------------------------------------------------------------------


def encode(key: str, value: Any, kind: str) -> tuple[int, bytes]:
    """How ``value`` is stored: tag and payload. An empty ``kind`` is inferred from the value."""
    try:
        return _encode(value, kind)
    except _UNFIT as error:
        raise ContentError(f"oinf: metadata {key!r}: {error}") from None


def value_breach(value: Any) -> str | None:
    """Why ``value`` cannot be stored; None when it can."""
    try:
        _encode(value, "")
    except _UNFIT as error:
        return str(error)
    return None


def _encode(value: Any, kind: str) -> tuple[int, bytes]:
    if kind == "" and isinstance(value, (list, tuple)):
        value, kind = _narrowed(value), "ndarray"
    if kind == "string" or (kind == "" and isinstance(value, str)):
        payload = _encode_string(value)
        return STRING, payload
    if kind == "bitset" or (kind == "" and isinstance(value, Bitset)):
        if not isinstance(value, Bitset):
            raise ContentError(f"{value!r} is not a bitset")
        payload = _BITSET_HEAD.pack(value.bits, len(value.data)) + value.data
        payload += bytes(-len(payload) % ALIGN)
        return BITSET, payload
    if kind.startswith("ndarray") or (kind == "" and isinstance(value, np.ndarray)):
        if isinstance(value, str):
            raise ContentError(f"{value!r} is not an {kind}")
        payload = _encode_array(np.asarray(value), kind.partition(":")[2])
        return NDARRAY, payload
    dtype = named(kind) if kind else _scalar_type(value)
    if dtype.name not in TAG_OF or dtype.kind == "bitset":
        raise ContentError(f"{dtype} is not an OINF type")
    if isinstance(value, (str, bytes, dict, list, tuple)) or value is None:
        raise ContentError(f"{value!r} is not a {dtype}")
    if isinstance(value, StoredNaN) and value.kind == dtype.name:
        return TAG_OF[dtype.name], value.code
    return TAG_OF[dtype.name], bytes(encode_elements(np.asarray(value), dtype))


def encode_elements(array: Any, dtype: DType) -> memoryview:
    """The stored bytes of ``array`` as ``dtype``. A NaN that is converted to F8 becomes 7D, with its sign FD."""
    stored = dtype.encode(array)
    if dtype.name != "f8_e5m2" or array.dtype == dtype.numpy:
        return stored
    codes = np.frombuffer(stored, np.uint8).copy()
    nan = codes & 0x7F > 0x7C
    codes[nan] = codes[nan] & 0x80 | 0x7D
    return codes.data


def _encode_string(value: Any) -> bytes:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ContentError(f"string values are one or more of A-Z a-z 0-9 . _ -, not {value!r}")
    data = len(value).to_bytes(4, "little") + value.encode()
    return data + bytes(-len(data) % ALIGN)


def _encode_array(value: Any, element: str) -> bytes:
    dtype = named(element) if element else dtype_of(value)
    if dtype.name not in TAG_OF or dtype.kind == "bitset":
        raise ContentError(f"{dtype} is not an OINF element type")
    data = _ARRAY_HEAD.pack(TAG_OF[dtype.name], value.ndim) + struct.pack(f"<{value.ndim}Q", *value.shape)
    data += encode_elements(value, dtype)
    return data + bytes(-len(data) % ALIGN)


def _scalar_type(value: Any) -> DType:
    """The smallest type of an integer, f32 for a float: what the format's own writer infers."""
    if isinstance(value, (bool, np.bool_)):
        return DTYPES["bool"]
    if isinstance(value, np.generic):
        return dtype_of(np.asarray(value))
    if isinstance(value, StoredNaN):
        return DTYPES[value.kind]
    if isinstance(value, float):  # f64 where f32 would make it infinite
        return DTYPES["f32" if not abs(value) < inf or abs(value) < _F32_END else "f64"]
    if isinstance(value, int):
        family = ("u8", "u16", "u32", "u64") if value >= 0 else ("i8", "i16", "i32", "i64")
        for name in family:
            low, high = DTYPES[name].range or (0, 0)
            if low <= value <= high:
                return DTYPES[name]
        raise ContentError(f"{value} does not fit 64 bits")
    raise ContentError(f"{type(value).__name__} is not a metadata type: use a number, text, a list or an array")


def _narrowed(values: Sequence[Any]) -> Any:
    """A list as an array of the smallest signed type that holds it, or f32; an empty one is f32."""
    try:
        array = np.array(values)
    except ValueError as error:
        raise ContentError(f"a ragged list is no array: {error}") from None
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind == "f":
        finite = np.abs(array[np.isfinite(array)])
        return array.astype(np.float32) if not finite.size or finite.max() < _F32_END else array
    if array.dtype.kind not in "iu":
        raise ContentError(f"a list of {array.dtype} is no array of numbers")
    low, high = int(array.min()), int(array.max())
    for name in ("i8", "i16", "i32", "i64", "u64"):
        least, most = DTYPES[name].range or (0, 0)
        if least <= low and high <= most:
            return array.astype(DTYPES[name].numpy)
    raise ContentError(f"no integer type holds {low}..{high}")
