"""What holdall reads, in the normal form."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np

import holdall
from holdall.errors import HoldallError
from holdall.format.oinf.values import Bitset
from holdall.format.torch.nesting import ATTRIBUTE
from holdall.model.dtypes import DType
from holdall.model.metadata import Entry
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from tools.differential.normal import Content, Values, digest, normalize, too_large, values_of
from tools.differential.oinf_verifier import describe_value, values_in

__all__ = ["read"]

_BY_VALUE = ("npz", "onnx")  # their libraries return arrays, the others bytes


def read(format: str, data: bytes) -> Content | None:
    """The content of ``data``; None if holdall refuses it, at once or when a tensor is read."""
    try:
        with holdall.open(data, format=format) as model, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Content({tensor.name: _values(tensor, format) for tensor in model.tensors}, _metadata(model, format))
    except HoldallError:
        return None


def _values(tensor: Tensor, format: str) -> Values:
    dtype = tensor.dtype
    name = re.sub(r"^(ggml|npy|torch|onnx)\.[<|=]?", "", dtype.name)
    if name.startswith("["):  # records, whose fields numpy spells in another way than some files
        name = "structured"
    if too_large(tensor.shape, dtype.bits // 8 if isinstance(dtype, DType) else 1):
        return name, tensor.shape, "large" if tensor.has_data else "no data"
    if not tensor.has_data:
        return name, tensor.shape, "no data"
    if format == "oinf":
        return values_in(tensor.numpy(), name)
    if name == "string":  # of ONNX: carried without being decoded
        return name, tensor.shape, ""
    array = np.asarray(tensor.numpy()) if isinstance(dtype, DType) else None
    if array is not None and format in _BY_VALUE:
        return name, tensor.shape, values_of(array, name)
    raw = bytes(tensor.raw())
    if array is not None and isinstance(dtype, DType) and dtype.bits % 8 == 0:
        stored = np.frombuffer(raw, array.dtype)
        if values_of(array, name) != values_of(stored, name):
            return name, tensor.shape, f"{digest(raw)}, as numbers {values_of(array, name)}"
    return name, tensor.shape, digest(raw)


def _metadata(model: Model, format: str) -> dict[str, Any]:
    entries = model.metadata.entries
    if format == "gguf":
        return {entry.key: (_kind(entry), normalize(entry.value)) for entry in entries}
    if format == "oinf":
        found = {entry.key: describe_value(entry.kind, _plain(entry.value)) for entry in entries}
        return found | {f"sizevar {name}": normalize(size) for name, size in model.sizevars.items()}
    # An attribute of an OrderedDict may be called like a key: PyTorch's reader keeps both.
    return {("@" if entry.kind == ATTRIBUTE else "") + entry.key: normalize(entry.value) for entry in entries}


def _plain(value: Any) -> Any:
    return [value.bits, value.data] if isinstance(value, Bitset) else value


def _kind(entry: Entry) -> str:
    """The kind of a value of GGUF. The library does not say what the elements of an empty array, or of arrays, are."""
    if entry.kind.startswith("array:") and (entry.kind.startswith("array:array") or not len(entry.value)):
        return "array"
    return entry.kind
