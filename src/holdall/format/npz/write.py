"""Writing npz: stored entries in the order given; their elements begin on multiples of 64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from holdall.base.check import Check
from holdall.errors import ContentError, FormatError
from holdall.format.npz import header, metadata
from holdall.format.npz.layout import ALIGN, CODE_OF, METADATA, OPAQUE, SUFFIX
from holdall.format.npz.read import NpzNative
from holdall.format.refusals import check_payload, refuse, refuse_repeats
from holdall.format.zip.directory import name_breach as entry_name_breach
from holdall.format.zip.writer import ZipPlan
from holdall.model.encodings import Opaque
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from holdall.sink.plan import Plan

__all__ = ["MAX_RANK", "name_breach", "plan"]

MAX_RANK = 32  # the limit of numpy before 2.0, which raised it to 64


def plan(model: Model, options: Mapping[str, Any]) -> Plan:
    """Plan the npz file that holds ``model``."""
    if model.assets:
        raise ContentError(f"npz has no place for assets: {', '.join(model.assets)}")
    archive = ZipPlan(ALIGN)
    if model.metadata.entries:
        document = metadata.encode(model.metadata.entries)
        front = header.encode("u8", (len(document),))
        archive.add(METADATA + SUFFIX, front, document, pending=model.metadata.pending)
    table = model.tensors
    refuse_repeats("npz", table.names)
    for name in table.names:
        refuse("npz", name_breach(name))
    forms = table.forms()
    heads = [_encode_header(table.tensor(row)) for row in forms.firsts]
    codes = memoryview(cast(Any, forms.codes))
    rows = np.arange(len(table), dtype=np.intp)
    archive.add_rows(table, rows, lambda number: table.names[number] + SUFFIX, lambda row: heads[codes[row]])
    out = archive.finish()
    if isinstance(model.native, NpzNative) and model.native.archive is not None:
        out.notes += model.native.archive.notes
    return out


def _encode_header(tensor: Tensor) -> bytes:
    if len(tensor.shape) > MAX_RANK or any(not 0 <= size < 1 << 63 for size in tensor.shape):
        raise ContentError(f"npz: tensor {tensor.name!r}: numpy cannot hold the shape {list(tensor.shape)}")
    if isinstance(tensor.dtype, Opaque):
        return _encode_opaque(tensor)
    check_payload("npz", tensor, "numpy", CODE_OF)
    return header.encode(str(tensor.dtype), tensor.shape)


def _encode_opaque(tensor: Tensor) -> bytes:
    """Encode the header of an array that is copied but not decoded; ContentError if it could not be read again."""
    name = str(tensor.dtype)
    refused = f"tensor {tensor.name!r}: holdall does not write {name}{list(tensor.shape)}"
    if not name.startswith(OPAQUE) or tensor.payload is None:
        raise ContentError(f"npz: {refused}")
    front = header.encode(name, tensor.shape)
    try:
        start, stop = header.find_text(front, 0, Check(), refused)
        array = header.parse(front[start:stop], stop, start, Check(), refused, header.name_encoding(front))
    except FormatError as error:
        raise ContentError(f"npz: {error.message}") from error
    if str(array.dtype) != name or array.dtype.nbytes(array.shape) != tensor.payload.size:
        raise ContentError(f"npz: {refused}: that are other bytes than the {tensor.payload.size} of its payload")
    return front


def name_breach(name: str) -> str | None:
    """Why a tensor cannot be called ``name``; None when it can."""
    if not name or name == METADATA:
        return f"no array can be called {name!r}"
    if name.endswith(SUFFIX):
        return f"numpy takes {SUFFIX} off the name {name!r}"
    wrong = entry_name_breach(name + SUFFIX)
    return None if wrong is None else f"the tensor name: {wrong}"
