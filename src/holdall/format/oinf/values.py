"""Metadata values: scalars, strings, bitsets and arrays, each with the kind under which it is stored."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from math import inf, prod
from typing import Any, Final

import numpy as np

from holdall.base.check import Check, figure
from holdall.errors import ContentError
from holdall.format.oinf import rules
from holdall.format.oinf.layout import BITSET, NDARRAY, STRING, TAG_OF, TAGS, align_up, pad
from holdall.model.dtypes import DTYPES, DType, dtype_of, find_dtype

__all__ = [
    *("Bitset", "StoredNaN"),
    *("decode", "encode", "encode_elements", "infer_array_kind", "metadata_breach", "name_breach"),
]

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_UNFIT: Final = (ContentError, OverflowError, ValueError, TypeError)  # raised for a value that does not fit its type
_ARRAY_HEAD: Final = struct.Struct("<II")
_RANK: Final = 64  # the most dimensions of a numpy array
_BITSET_HEAD: Final = struct.Struct("<II")
_F32_END: Final = 2.0**128 - 2.0**103  # from here on a float64 rounds to an infinite float32


class Bitset(Sequence[bool]):
    """A sequence of bits, stored eight to a byte from the lowest bit on.

    >>> Bitset([1, 0, 1]).data, list(Bitset(data=b"\\x05", bits=3))
    (b'\\x05', [True, False, True])
    """

    __slots__ = ("bits", "data")

    def __init__(self, values: Iterable[Any] = (), *, data: bytes | None = None, bits: int | None = None) -> None:
        if data is None:
            if isinstance(values, str):  # every letter would be true, "0" too
                raise ContentError(f"{values!r} is text, not the bits of a bitset")
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
    """A NaN with unusual bits, which are kept so that it is stored with the same bits again.

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


def decode(tag: int, data: bytes, at: int, key: str, check: Check) -> tuple[Any, str]:
    """Decode the value of type ``tag`` in ``data``, which starts at byte ``at`` of the file, and its kind."""
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
    if length is None or len(data) != align_up(4 + length):
        needs = "at least 8" if length is None else str(align_up(4 + length))
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
    if len(data) != align_up(8 + size):
        message = f"oinf: metadata {key!r}: the bitset takes {align_up(8 + size)} bytes, not {len(data)}"
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
    if len(data) != align_up(start + size):
        takes = figure(align_up(start + size))
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


def encode(key: str, value: Any, kind: str) -> tuple[int, bytes]:
    """Encode the tag and the payload of ``value``; an empty ``kind`` is inferred from the value."""
    try:
        return _encode(value, kind)
    except _UNFIT as error:
        raise ContentError(f"oinf: metadata {key!r}: {error}") from None


def metadata_breach(key: str, value: Any) -> str | None:
    """Why the entry cannot be stored; None when it can."""
    try:
        _encode(value, "")
    except _UNFIT as error:
        return str(error)
    return name_breach(key)


def infer_array_kind(value: Any) -> str | None:
    """The kind in which an array or a list is stored; None for a value that is not stored as one.

    >>> infer_array_kind([1, 300]), infer_array_kind(np.array([1, 300], np.int32)), infer_array_kind("a")
    ('ndarray:i16', 'ndarray:i32', None)
    """
    try:
        array = _to_narrow_array(value) if isinstance(value, (list, tuple)) else value
        return f"ndarray:{dtype_of(array).name}" if isinstance(array, np.ndarray) else None
    except _UNFIT:
        return None


def _encode(value: Any, kind: str) -> tuple[int, bytes]:
    if kind == "" and isinstance(value, (list, tuple)):
        value, kind = _to_narrow_array(value), "ndarray"
    if kind == "string" or (kind == "" and isinstance(value, str)):
        return STRING, _encode_string(value)
    if kind == "bitset" or (kind == "" and isinstance(value, Bitset)):
        if not isinstance(value, Bitset):
            raise ContentError(f"{value!r} is not a bitset")
        return BITSET, pad(_BITSET_HEAD.pack(value.bits, len(value.data)) + value.data)
    if kind.startswith("ndarray") or (kind == "" and isinstance(value, np.ndarray)):
        if isinstance(value, str):
            raise ContentError(f"{value!r} is not an {kind}")
        return NDARRAY, _encode_array(np.asarray(value), kind.partition(":")[2])
    dtype = find_dtype(kind) if kind else _scalar_type(value)
    if dtype.name not in TAG_OF or dtype.kind == "bitset":
        raise ContentError(f"{dtype} is not an OINF type")
    if isinstance(value, (str, bytes, dict, list, tuple)) or value is None:
        raise ContentError(f"{value!r} is not a {dtype}")
    if isinstance(value, StoredNaN) and value.kind == dtype.name:
        return TAG_OF[dtype.name], value.code
    return TAG_OF[dtype.name], bytes(encode_elements(np.asarray(value), dtype))


def encode_elements(array: Any, dtype: DType) -> memoryview:
    """Encode ``array`` as bytes of ``dtype``. A NaN that is converted to F8 becomes 7D, or FD if negative."""
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
    return pad(data)


def _encode_array(value: Any, element: str) -> bytes:
    dtype = find_dtype(element) if element else dtype_of(value)
    if dtype.name not in TAG_OF or dtype.kind == "bitset":
        raise ContentError(f"{dtype} is not an OINF element type")
    data = _ARRAY_HEAD.pack(TAG_OF[dtype.name], value.ndim) + struct.pack(f"<{value.ndim}Q", *value.shape)
    data += encode_elements(value, dtype)
    return pad(data)


def _scalar_type(value: Any) -> DType:
    """The type that the format's own writer infers: the smallest one for an integer, f32 for a float."""
    if isinstance(value, (bool, np.bool_)):
        return DTYPES["bool"]
    if isinstance(value, np.generic):
        return dtype_of(np.asarray(value))
    if isinstance(value, StoredNaN):
        return DTYPES[value.kind]
    if isinstance(value, float):  # f64 only where the value would become infinite as f32
        return DTYPES["f32" if not abs(value) < inf or abs(value) < _F32_END else "f64"]
    if isinstance(value, int):
        family = ("u8", "u16", "u32", "u64") if value >= 0 else ("i8", "i16", "i32", "i64")
        for name in family:
            low, high = DTYPES[name].range or (0, 0)
            if low <= value <= high:
                return DTYPES[name]
        raise ContentError(f"{value} does not fit 64 bits")
    raise ContentError(f"{type(value).__name__} is not a metadata type: use a number, text, a list or an array")


def _to_narrow_array(values: Sequence[Any]) -> Any:
    """Return a list as an array of the smallest integer type that holds it, or of f32, as is an empty list.

    The type is signed unless all elements are unsigned numbers of numpy.
    """
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
    unsigned = array.dtype.kind == "u"
    for name in ("u8", "u16", "u32", "u64") if unsigned else ("i8", "i16", "i32", "i64"):
        least, most = DTYPES[name].range or (0, 0)
        if least <= low and high <= most:
            return array.astype(DTYPES[name].numpy)
    raise ContentError(f"no integer type holds {low}..{high}")
