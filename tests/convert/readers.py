"""Files read by the libraries of their formats: tests compare conversions with them.

Every reader returns the tensors of a file as (dtype name, shape, bytes of the values in C order), so that NaN and
negative zero count too. Packed types have one byte an element.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import holdall

__all__ = ["LIBRARIES", "NUMPY", "Content", "Found", "bits_of", "read", "read_by_holdall"]

# The numpy type of the decoded values. Packed integers take a byte each.
NUMPY: Mapping[str, Any] = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8_e4m3": ml_dtypes.float8_e4m3fn,
    "f8_e5m2": ml_dtypes.float8_e5m2,
    "i64": np.int64,
    "i32": np.int32,
    "i16": np.int16,
    "i8": np.int8,
    "i4": np.int8,
    "i2": np.int8,
    "u64": np.uint64,
    "u32": np.uint32,
    "u16": np.uint16,
    "u8": np.uint8,
    "u4": np.uint8,
    "u2": np.uint8,
    "bool": np.bool_,
    "c64": np.complex64,
    "c128": np.complex128,
}

Found = tuple[str, tuple[int, ...], bytes]


@dataclass
class Content:
    """What a library found. ``metadata`` is None where the library shows none."""

    tensors: dict[str, Found]
    metadata: dict[str, Any] | None = None
    keys: list[str] = field(default_factory=list)  # all names that the file has for anything


def bits_of(values: np.ndarray[Any, Any]) -> bytes:
    """The bytes of an array in C order: they distinguish NaNs, and zero from negative zero."""
    return np.ascontiguousarray(values).tobytes()


def _found(values: np.ndarray[Any, Any], names: Mapping[Any, str]) -> Found:
    return names[values.dtype], values.shape, bits_of(values)


_BY_NUMPY = {np.dtype(kind): name for name, kind in NUMPY.items() if name not in ("i4", "i2", "u4", "u2")}

# -- safetensors ------------------------------------------------------------------------------------------------------

_SAFE = {name.upper(): name for name in NUMPY} | {"F8_E4M3": "f8_e4m3", "F8_E5M2": "f8_e5m2"}


def read_safetensors(path: Path) -> Content:
    """By safe_open, and by the header itself for the types that numpy lacks."""
    from safetensors import safe_open

    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    with safe_open(path, "np") as file:
        assert sorted(file.keys()) == sorted(header)
        assert (file.metadata() or {}) == metadata
        for name, entry in header.items():
            dtype = _SAFE[entry["dtype"]]
            start, stop = (8 + size + offset for offset in entry["data_offsets"])
            tensors[name] = (dtype, tuple(entry["shape"]), data[start:stop])
            if dtype not in (
                "bf16",
                "f8_e4m3",
                "f8_e5m2",
                "c64",
            ):  # every version returns the others as numpy
                assert _found(file.get_tensor(name), _BY_NUMPY) == tensors[name]
    return Content(tensors, metadata, [*header, *metadata])


def read_hf(path: Path) -> Content:
    """The safetensors files of the folder; an index must name each tensor's file."""
    index = path / "model.safetensors.index.json"
    if not index.exists():
        found = read_safetensors(path / "model.safetensors")
    else:
        found = Content({}, {})
        document = json.loads(index.read_text())
        for file in sorted(set(document["weight_map"].values())):
            part = read_safetensors(path / file)
            assert all(document["weight_map"][name] == file for name in part.tensors)
            found.tensors |= part.tensors
            found.metadata = {**(found.metadata or {}), **(part.metadata or {})}
            found.keys += part.keys
        assert set(document["weight_map"]) == set(found.tensors)
    found.keys += [str(file.relative_to(path)) for file in path.rglob("*")]
    return found


# -- gguf -------------------------------------------------------------------------------------------------------------


def read_gguf(path: Path) -> Content:
    """By GGUFReader, whose shapes are in the order of ggml and whose bf16 is bytes."""
    from gguf import GGMLQuantizationType, GGUFReader

    plain = {"F64", "F32", "F16", "BF16", "I8", "I16", "I32", "I64"}
    try:
        reader = GGUFReader(path)
    except IndexError:  # it fails for bf16 without dimensions, which ggml itself takes
        with holdall.open(path) as model:  # it also opens the other parts of a split
            here = [tensor for tensor in model.tensors if Path(tensor.payload.source.name).name == path.name]
            assert any(tensor.shape == () and str(tensor.dtype) == "bf16" for tensor in here)
            found = {tensor.name: (str(tensor.dtype), tensor.shape, bits_of(tensor.numpy())) for tensor in here}
            return Content(found, dict(model.metadata), [*found, *model.metadata])
    tensors = {}
    for tensor in reader.tensors:
        kind = GGMLQuantizationType(tensor.tensor_type).name
        shape = tuple(int(size) for size in tensor.shape[::-1])
        dtype = kind.lower() if kind in plain else f"ggml.{kind.lower()}"
        if dtype.startswith("ggml."):
            from gguf.quants import dequantize

            tensors[tensor.name] = (dtype, shape, bits_of(dequantize(tensor.data, tensor.tensor_type)))
        else:
            tensors[tensor.name] = (dtype, shape, bits_of(tensor.data))
    fields = {name: value.contents() for name, value in reader.fields.items() if not name.startswith("GGUF.")}
    return Content(tensors, fields, [*tensors, *fields])


# -- numpy, torch, onnx -----------------------------------------------------------------------------------------------


def read_npz(path: Path) -> Content:
    """By numpy.load without pickles."""
    with np.load(path, allow_pickle=False) as file:
        names = [name for name in file.files if name != "__metadata__"]
        return Content({name: _found(file[name], _BY_NUMPY) for name in names}, None, list(file.files))


_TORCH = {name: np.dtype(kind).name for name, kind in NUMPY.items() if name not in ("i4", "i2", "u4", "u2")}


def read_torch(path: Path) -> Content:
    """By torch.load of weights only."""
    import torch

    names = {getattr(torch, theirs): ours for ours, theirs in _TORCH.items()}
    state = torch.load(path, map_location="cpu", weights_only=True)
    tensors = {}
    for name, value in state.items():
        if isinstance(value, torch.Tensor):
            flat = value.contiguous().reshape(-1)
            data = b"" if not flat.numel() else flat.view(torch.uint8).numpy().tobytes()
            tensors[name] = (names[value.dtype], tuple(value.shape), data)
    return Content(tensors, None, list(state))


def read_onnx(path: Path) -> Content:
    """By onnx.numpy_helper, after onnx's own checker."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(path)
    names = {**_BY_NUMPY, np.dtype(ml_dtypes.int4): "i4", np.dtype(ml_dtypes.uint4): "u4"}
    names |= {np.dtype(ml_dtypes.int2): "i2", np.dtype(ml_dtypes.uint2): "u2"}
    onnx.checker.check_model(model)
    tensors = {}
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        dtype = names[values.dtype]
        tensors[tensor.name] = (dtype, values.shape, bits_of(values.astype(NUMPY[dtype])))
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    return Content(tensors, metadata, [*tensors, *metadata])


# -- all --------------------------------------------------------------------------------------------------------------


def read_by_holdall(path: Path) -> Content:
    """By holdall's own reader: for formats without a library. An encoded tensor is given as its float32 values."""
    with holdall.open(path) as model:
        tensors = {}
        for tensor in model.tensors:
            values = tensor.numpy()
            assert values.size == prod(tensor.shape)
            tensors[tensor.name] = (str(tensor.dtype), tensor.shape, bits_of(values))
        metadata = dict(model.metadata)
        return Content(tensors, metadata, [*tensors, *metadata, *model.assets])


LIBRARIES: Mapping[str, Callable[[Path], Content]] = {
    "safetensors": read_safetensors,
    "hf": read_hf,
    "gguf": read_gguf,
    "npz": read_npz,
    "torch": read_torch,
    "onnx": read_onnx,
}


def _has_torch() -> bool:
    if "torch" in sys.modules:
        return True
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


def read(path: Path, format: str) -> Content:
    """By the library of ``format``, else by holdall."""
    if format == "torch" and not _has_torch():
        return read_by_holdall(path)
    return LIBRARIES.get(format, read_by_holdall)(path)
