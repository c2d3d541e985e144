"""Writing metadata values, as the kind that an entry states or else one inferred from the value."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from holdall.base.utf8 import utf8_breach
from holdall.errors import ContentError
from holdall.format.gguf.layout import KINDS, MAX_KEY, TAG_OF
from holdall.format.refusals import refuse

__all__ = ["encode", "entry_breach", "infer"]

_UNFIT = (
    ContentError,
    OverflowError,
    ValueError,
    TypeError,
    struct.error,
)  # raised for a value that does not fit its kind
_ARRAY_INTS = ("i32", "i64", "u64")


def encode(key: str, value: Any, kind: str) -> bytes:
    """Encode the bytes of one entry. A ``kind`` that is not GGUF's is inferred from the value."""
    refuse("gguf", key_breach(key))
    chosen = kind
    try:
        if kind.split(":")[0] not in TAG_OF:
            chosen = infer(value)
        name, stored = key.encode(), bytearray()
        stored += struct.pack("<Q", len(name)) + name + struct.pack("<I", TAG_OF[chosen.split(":")[0]])
        for piece in _encode(value, chosen):
            stored += piece
    except _UNFIT as error:
        raise ContentError(f"gguf: metadata {key!r}: {error}") from None
    return bytes(stored)


def key_breach(key: str) -> str | None:
    """Why an entry cannot be called ``key``; None when it can."""
    wrong = utf8_breach(key)
    if wrong:
        return f"the key {wrong}"
    size = len(key.encode())
    if not size:
        return "a metadata key is empty"
    return f"the key {key[:40]!r}... has {size} bytes, more than {MAX_KEY}" if size > MAX_KEY else None


def entry_breach(key: str, value: Any) -> str | None:
    """Why a plain value cannot be stored under ``key``; None when it can."""
    try:
        # Pieces are dropped one by one: a vocabulary has many megabytes.
        for _ in _encode(value, infer(value)):
            pass
    except _UNFIT as error:
        return str(error)
    return key_breach(key)


def infer(value: Any) -> str:
    """The kind that holds ``value`` exactly: u32 or i32 before 64 bits, f32 if that is exact, else f64.

    >>> infer(7), infer(-1), infer(0.5), infer(0.1), infer([1, 2]), infer(["a"])
    ('u32', 'i32', 'f32', 'f64', 'array:i32', 'array:string')
    """
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return f"array:{_numpy_kind(value.dtype)}"
    if isinstance(value, np.generic) and not isinstance(value, float):
        return _numpy_kind(value.dtype)
    if isinstance(value, int):
        return _find_first_that_holds(value, value, ("u32", "i32", "u64", "i64"))
    if isinstance(value, float):
        return "f32" if _is_f32(value) else "f64"
    if isinstance(value, (list, tuple)):
        return f"array:{_infer_items(value)}"
    raise ContentError(f"{_describe(value)} is no GGUF value: it holds numbers, booleans, text, and lists of one kind")


def _infer_items(items: Sequence[Any]) -> str:
    if all(isinstance(item, str) for item in items) and items:
        return "string"
    if all(isinstance(item, (bool, np.bool_)) for item in items) and items:
        return "bool"
    if any(isinstance(item, (bool, np.bool_)) for item in items):
        raise ContentError("a list of booleans and other things has no one kind")
    if all(isinstance(item, int) for item in items):
        return _find_first_that_holds(min(items, default=0), max(items, default=0), _ARRAY_INTS)
    if all(isinstance(item, float) for item in items):
        return "f32" if all(map(_is_f32, items)) else "f64"
    raise ContentError("a list is of integers, of floats, of booleans or of text, and not of lists, which ggml refuses")


def _find_first_that_holds(low: int, high: int, kinds: Sequence[str]) -> str:
    for kind in kinds:
        limits = np.iinfo(_numpy_type(kind))
        if limits.min <= low and high <= limits.max:
            return kind
    raise ContentError(f"{low if low < 0 else high} does not fit 64 bits")


def _is_f32(value: float) -> bool:
    """Whether f32 holds ``value`` bit for bit: a NaN may have more bits set than f32 has."""
    try:
        back = struct.unpack("<f", struct.pack("<f", value))[0]
        return struct.pack("<d", back) == struct.pack("<d", value)
    except OverflowError:
        return False


def _numpy_type(kind: str) -> np.dtype[Any]:
    return np.dtype(f"<{KINDS[TAG_OF[kind]].code}")


def _numpy_kind(dtype: np.dtype[Any]) -> str:
    for kind in KINDS.values():
        if np.dtype(f"<{kind.code}") == dtype.newbyteorder("<"):
            return kind.name
    raise ContentError(f"GGUF has no values of numpy's {dtype}")


def _describe(value: Any) -> str:
    return f"{value!r}" if value is None else f"a {type(value).__name__}"


def _encode(value: Any, kind: str) -> Iterator[bytes]:
    """Encode the bytes of the value, in pieces."""
    head, _, rest = kind.partition(":")
    if head == "array":
        yield from _encode_array(value, rest)
    elif rest:
        raise ContentError(f"there is no kind {kind!r}")
    else:
        yield _encode_text(value) if head == "string" else _encode_number(value, head)


def _encode_number(value: Any, head: str) -> bytes:
    stored = KINDS[TAG_OF[head]]
    if isinstance(value, np.generic) and value.dtype == _numpy_type(head):
        return value.tobytes()  # keeps the bits of a NaN
    if head == "bool":
        fits = isinstance(value, (bool, np.bool_))
    elif head in ("f32", "f64"):
        fits = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    else:
        fits = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not fits:
        raise ContentError(f"{value!r} is not a {head}")
    try:
        return struct.pack("<" + stored.code, value)
    except (struct.error, OverflowError):
        raise ContentError(f"{value!r} does not fit {head}") from None


def _encode_text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ContentError(f"{value!r} is not text")
    try:
        text = value.encode()
    except UnicodeEncodeError:
        raise ContentError(str(utf8_breach(value))) from None
    return struct.pack("<Q", len(text)) + text


def _encode_array(value: Any, kind: str) -> Iterator[bytes]:
    if isinstance(value, (str, bytes)) or not isinstance(value, (Sequence, np.ndarray)):
        raise ContentError(f"{value!r} is not an array")
    yield struct.pack("<IQ", _tag(kind), len(value))
    if kind == "string":
        yield from map(_encode_text, value)
        return
    if kind.partition(":")[0] == "array":
        inner = kind.partition(":")[2]
        for item in value:
            yield from _encode_array(item, inner or _inner_kind(item))
        return
    array = np.asarray(value)
    target = _numpy_type(kind)
    if array.ndim != 1:
        raise ContentError(f"an array of {array.ndim} dimensions is not one of {kind}")
    if array.dtype != target and array.size:
        _check_fit(array, kind, target)
    yield array.astype(target).tobytes()


def _inner_kind(item: Any) -> str:
    """The kind of the items of an array that lies in an array of mixed kinds."""
    if isinstance(item, (list, tuple)) and any(isinstance(each, (list, tuple, np.ndarray)) for each in item):
        return "array"
    return infer(item).partition(":")[2]


def _tag(kind: str) -> int:
    head = kind.partition(":")[0]
    if head not in TAG_OF:
        raise ContentError(f"there are no arrays of {kind!r}")
    return TAG_OF[head]


def _check_fit(array: Any, kind: str, target: np.dtype[Any]) -> None:
    """Raise ContentError for values that the kind cannot hold; rounding a float to f32 is allowed."""
    if kind == "bool" or array.dtype.kind == "b":
        raise ContentError(f"{array.dtype} values are not {kind}")
    if kind in ("f32", "f64"):
        if array.dtype.kind not in "iuf":
            raise ContentError(f"{array.dtype} values are not {kind}")
        with np.errstate(over="ignore"):
            if (np.isfinite(array) & ~np.isfinite(array.astype(target))).any():
                raise ContentError(f"a value is too large for {kind}")
        return
    limits = np.iinfo(target)
    if array.dtype.kind not in "iu" or array.min() < limits.min or array.max() > limits.max:
        raise ContentError(f"the values do not fit {kind}")
