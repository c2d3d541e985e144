"""The strict rules of OINF that need payload bytes: element values and unused bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from holdall.check import Check
from holdall.dtypes import DType
from holdall.format import Tick
from holdall.formats.oinf import rules
from holdall.model import Model
from holdall.source import CHUNK
from holdall.tensor import Tensor

__all__ = ["audit"]

# For every byte, whether it holds the ternary code 10 in one of its four places.
_HAS_CODE_10 = np.array([any(byte >> shift & 3 == 2 for shift in (0, 2, 4, 6)) for byte in range(256)])


def audit(model: Model, check: Check, tick: Tick) -> None:
    """Look at the payloads whose bytes can be wrong."""
    if not check.wants("strict"):
        return
    seen: set[tuple[int | None, int, str]] = set()  # tensors may share their bytes
    for tensor in model.tensors:
        place = (tensor.offset, tensor.count, str(tensor.dtype))
        if tensor.payload is not None and isinstance(tensor.dtype, DType) and place not in seen:
            seen.add(place)
            with check.scope():
                _audit_tensor(tensor, tensor.dtype, model.sources[0].size, check)
        tick(tensor.nbytes)


def _audit_tensor(tensor: Tensor, dtype: DType, file_size: int, check: Check) -> None:
    assert tensor.payload is not None
    if dtype.kind in ("bool", "ternary"):
        check.limit_passes(tensor.nbytes, file_size, "oinf: passes over payloads")
    start = tensor.offset or 0
    used = tensor.count * dtype.bits % 8
    if used:
        last = tensor.payload.part(tensor.nbytes - 1, tensor.nbytes)[0]
        if last >> used:
            message = f"oinf: tensor {tensor.name!r}: unused bits of its last byte are not 0"
            check.note(rules.BITS, start + tensor.nbytes - 1, message)
    if dtype.kind == "bool":
        for at, bytes_ in _walk(tensor):
            if bytes_.size and bytes_.max() > 1:
                place = int((bytes_ > 1).argmax())
                message = f"oinf: tensor {tensor.name!r}: element {at + place} is {bytes_[place]}, not 0 or 1"
                check.note(rules.BOOLS, start + at + place, message)
                return
    if dtype.kind == "ternary":
        for at, bytes_ in _walk(tensor):
            bad = _HAS_CODE_10[bytes_]
            if bad.any():
                place = int(bad.argmax())
                message = f"oinf: tensor {tensor.name!r}: byte {at + place} holds the code 10, which is not ternary"
                check.note(rules.TERNARY, start + at + place, message)
                return


def _walk(tensor: Tensor) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """The payload as byte arrays, with the place of each."""
    assert tensor.payload is not None
    at = 0
    for chunk in tensor.payload.chunks(CHUNK):
        yield at, np.frombuffer(chunk, np.uint8)
        at += len(chunk)
