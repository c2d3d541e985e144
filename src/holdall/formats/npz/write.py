"""Writing npz: stored entries in the order given, their elements at multiples of 64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdall import zipfiles
from holdall.dtypes import DType
from holdall.encodings import Stored
from holdall.errors import ContentError
from holdall.formats.npz import header, metadata
from holdall.formats.npz.layout import ALIGN, CODE_OF, METADATA, SUFFIX
from holdall.formats.npz.read import NpzNative
from holdall.model import Model
from holdall.plan import Plan
from holdall.tensor import Tensor
from holdall.zipplan import ZipPlan

__all__ = ["MAX_RANK", "name_breach", "plan"]

MAX_RANK = 32  # what every numpy can hold; those from 2.0 on hold 64


def plan(model: Model, options: Mapping[str, Any]) -> Plan:
    """The npz file that holds ``model``."""
    if model.assets:
        raise ContentError(f"npz has no place for assets: {', '.join(model.assets)}")
    archive = ZipPlan(ALIGN)
    if model.metadata.entries:
        document = metadata.encode(model.metadata.entries)
        front = header.encode("u8", (len(document),))
        archive.add(METADATA + SUFFIX, front, document, pending=model.metadata.pending)
    seen: set[str] = set()
    fronts: dict[tuple[Stored, tuple[int, ...], int], bytes] = {}  # many tensors have the type and shape of others
    for tensor in model.tensors:
        wrong = name_breach(tensor.name)
        if wrong:
            raise ContentError(f"npz: {wrong}")
        form = tensor.dtype, tensor.shape, tensor.nbytes
        head = fronts.get(form) if tensor.payload is not None else None
        if head is None:
            head = fronts[form] = _front(tensor)
        if tensor.name in seen:
            raise ContentError(f"npz: two tensors are called {tensor.name!r}")
        seen.add(tensor.name)
        assert tensor.payload is not None
        archive.add(tensor.name + SUFFIX, head, tensor.payload)
    made = archive.finish()
    if isinstance(model.native, NpzNative) and model.native.archive is not None:
        made.notes += model.native.archive.notes
    return made


def _front(tensor: Tensor) -> bytes:
    what = f"npz: tensor {tensor.name!r}: {tensor.dtype}{list(tensor.shape)}"
    if not isinstance(tensor.dtype, DType) or tensor.dtype.name not in CODE_OF:
        raise ContentError(f"{what}: numpy has no {tensor.dtype}")
    if tensor.payload is None:
        raise ContentError(f"{what} is declared without data, which npz cannot say")
    if len(tensor.shape) > MAX_RANK or any(not 0 <= size < 1 << 63 for size in tensor.shape):
        raise ContentError(f"{what}: numpy cannot hold this shape")
    if tensor.nbytes != tensor.dtype.nbytes(tensor.shape):
        raise ContentError(f"{what} takes {tensor.dtype.nbytes(tensor.shape)} bytes, not {tensor.nbytes}")
    return header.encode(tensor.dtype.name, tensor.shape)


def name_breach(name: str) -> str | None:
    """Why a tensor cannot be called ``name``; None when it can."""
    if not name or name == METADATA:
        return f"no array can be called {name!r}"
    if name.endswith(SUFFIX):
        return f"numpy takes {SUFFIX} off the name {name!r}"
    wrong = zipfiles.name_breach(name + SUFFIX)
    return None if wrong is None else f"the tensor name: {wrong}"
