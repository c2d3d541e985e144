"""Checks the strict rules of OINF that need payload bytes: element values and unused bits."""

from __future__ import annotations

from holdall.base.check import Check
from holdall.format.base import OnProgress
from holdall.format.oinf import rules
from holdall.format.oinf.elements import can_break, find_breach
from holdall.model.dtypes import DType
from holdall.model.model import Model
from holdall.model.tensor import Tensor

__all__ = ["audit"]


def audit(model: Model, check: Check, on_progress: OnProgress) -> None:
    """Check the payloads of types for which some bytes are invalid."""
    if not check.wants("strict"):
        return
    seen: set[tuple[int | None, int, str]] = set()  # tensors may share their bytes
    for tensor in model.tensors:
        place = (tensor.offset, tensor.count, str(tensor.dtype))
        if tensor.payload is not None and isinstance(tensor.dtype, DType) and place not in seen:
            seen.add(place)
            with check.scope():
                _audit_tensor(tensor, tensor.dtype, model.sources[0].size, check)
        on_progress(tensor.nbytes)


def _audit_tensor(tensor: Tensor, dtype: DType, file_size: int, check: Check) -> None:
    assert tensor.payload is not None
    if can_break(dtype):
        check.limit_passes(tensor.nbytes, file_size, "oinf: passes over payloads")
    start = tensor.offset or 0
    used = tensor.count * dtype.bits % 8
    if used:
        last = tensor.payload.slice(tensor.nbytes - 1, tensor.nbytes)[0]
        if last >> used:
            message = f"oinf: tensor {tensor.name!r}: unused bits of its last byte are not 0"
            check.note(rules.BITS, start + tensor.nbytes - 1, message)
    breach = find_breach(dtype, tensor.payload) if can_break(dtype) else None
    if breach is not None:
        rule = rules.BOOLS if dtype.kind == "bool" else rules.TERNARY
        check.note(rule, start + breach[0], f"oinf: tensor {tensor.name!r}: {breach[1]}")
