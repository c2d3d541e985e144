"""Elements that OINF has no meaning for: a BOOL other than 0 and 1, the code 10 of T2."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from holdall.errors import ContentError
from holdall.model.dtypes import DType
from holdall.model.payload import Computed, Payload
from holdall.source import CHUNK

__all__ = ["can_break", "check_while_read", "find_breach"]

# For each byte, whether one of its four ternary codes is 10.
_HAS_CODE_10 = np.array([any(byte >> shift & 3 == 2 for shift in (0, 2, 4, 6)) for byte in range(256)])


def can_break(dtype: object) -> bool:
    """Whether some bytes are no elements of the type."""
    return isinstance(dtype, DType) and dtype.kind in ("bool", "ternary")


def find_breach(dtype: DType, payload: Payload) -> tuple[int, str] | None:
    """Find the first byte of a payload that holds no element of its type, with its description; None if all do."""
    return next((breach for _, breach in _walk(dtype, payload) if breach is not None), None)


def check_while_read(name: str, dtype: DType, payload: Payload) -> Payload:
    """Return the payload such that reading an element that OINF cannot hold raises ContentError."""

    def make() -> Iterator[memoryview]:
        for chunk, breach in _walk(dtype, payload):
            if breach is not None:
                raise ContentError(f"oinf: tensor {name!r}: {breach[1]}")
            yield chunk

    return Computed(payload.size, make, (payload,))


def _walk(dtype: DType, payload: Payload) -> Iterator[tuple[memoryview, tuple[int, str] | None]]:
    """Return the payload in pieces, each with the first breach in it."""
    at = 0
    for chunk in payload.chunks(CHUNK):
        data = np.frombuffer(chunk, np.uint8)
        bad = data > 1 if dtype.kind == "bool" else _HAS_CODE_10[data]
        breach = None
        if bad.any():
            place = int(bad.argmax())
            if dtype.kind == "bool":
                breach = at + place, f"element {at + place} is {data[place]}, not 0 or 1"
            else:
                breach = at + place, f"byte {at + place} holds the code 10, which is not ternary"
        yield chunk, breach
        at += len(chunk)
