"""What the formats' own libraries read, in the normal form. Any exception is a refusal."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tools.differential.normal import Content, Values, digest, normalize, too_large, values_of
from tools.differential.oinf_verifier import prepare_oinf
from tools.differential.onnx_places import list_tensors

__all__ = ["READERS", "prepare"]

_SAFETENSORS = {
    "BOOL": "bool", "F4": "f4_e2m1", "F6_E2M3": "f6_e2m3", "F6_E3M2": "f6_e3m2", "U8": "u8", "I8": "i8",
    "F8_E5M2": "f8_e5m2", "F8_E4M3": "f8_e4m3", "F8_E8M0": "f8_e8m0", "F8_E4M3FNUZ": "f8_e4m3fnuz",
    "F8_E5M2FNUZ": "f8_e5m2fnuz", "I16": "i16", "U16": "u16", "F16": "f16", "BF16": "bf16", "I32": "i32",
    "U32": "u32", "F32": "f32", "C64": "c64", "F64": "f64", "I64": "i64", "U64": "u64",
}  # fmt: skip
_GGUF = {
    "UINT8": "u8", "INT8": "i8", "UINT16": "u16", "INT16": "i16", "UINT32": "u32", "INT32": "i32", "FLOAT32": "f32",
    "UINT64": "u64", "INT64": "i64", "FLOAT64": "f64",
}  # fmt: skip
# The names that numpy, ml_dtypes and torch have for a type, and those of holdall.
_TYPES = {
    "bool": "bool", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16",
    "uint32": "u32", "uint64": "u64", "float16": "f16", "float32": "f32", "float64": "f64", "complex64": "c64",
    "complex128": "c128", "bfloat16": "bf16", "float8_e4m3fn": "f8_e4m3", "float8_e5m2": "f8_e5m2",
    "float8_e4m3fnuz": "f8_e4m3fnuz", "float8_e5m2fnuz": "f8_e5m2fnuz", "float8_e8m0fnu": "f8_e8m0", "int4": "i4",
    "uint4": "u4", "int2": "i2", "uint2": "u2", "float4_e2m1fn": "f4_e2m1", "float6_e2m3fn": "f6_e2m3",
    "float6_e3m2fn": "f6_e3m2",
}  # fmt: skip


class _Path:
    """A file in memory with a path, for libraries that take nothing else."""

    def __init__(self) -> None:
        self._descriptor = os.memfd_create("input")
        self.path = f"/proc/self/fd/{self._descriptor}"

    def put(self, data: bytes) -> str:
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, data, 0)
        return self.path


def _read_safetensors() -> Callable[[bytes], Content]:
    from safetensors import deserialize, safe_open

    file = _Path()

    def read(data: bytes) -> Content:
        tensors = {
            name: (_SAFETENSORS[row["dtype"]], tuple(row["shape"]), digest(bytes(row["data"])))
            for name, row in deserialize(data)  # type: ignore[no-untyped-call]
        }
        with safe_open(file.put(data), "np") as opened:
            metadata = opened.metadata() or {}
        return Content(tensors, {key: normalize(value) for key, value in metadata.items()})

    return read


def _read_gguf() -> Callable[[bytes], Content]:
    import logging

    import gguf

    logging.disable(logging.WARNING)
    file = _Path()

    def kind_of(row: Any) -> str:
        first, *rest = (_GGUF.get(kind.name, kind.name.lower()) for kind in row.types)
        return first if first != "array" or not rest or rest[0] == "array" else f"array:{rest[0]}"

    def read(data: bytes) -> Content:
        reader = gguf.GGUFReader(file.put(data))
        if reader.endianess != gguf.GGUFEndian.LITTLE:
            raise ValueError("big-endian")
        tensors: dict[str, Values] = {}
        for tensor in reader.tensors:
            shape = tuple(int(size) for size in reversed(tensor.shape.tolist()))
            tensors[tensor.name] = (tensor.tensor_type.name.lower(), shape, digest(tensor.data.tobytes()))
        fields = {key: row for key, row in reader.fields.items() if not key.startswith("GGUF.")}
        return Content(tensors, {key: (kind_of(row), normalize(row.contents())) for key, row in fields.items()})

    return read


def _read_npz() -> Callable[[bytes], Content]:
    def describe(array: np.ndarray) -> Values:
        name = _TYPES.get(array.dtype.name)
        if name is None:  # carried as the stored bytes
            kind = "structured" if array.dtype.names else array.dtype.str.lstrip("<|=")
            return kind, array.shape, digest(np.ascontiguousarray(array).tobytes())
        return name, array.shape, values_of(array, name)

    def read(data: bytes) -> Content:
        found = np.load(io.BytesIO(data), allow_pickle=False)
        if not isinstance(found, np.lib.npyio.NpzFile):
            return Content({"array": describe(found)})
        content = Content()
        for name in found.files:
            array = found[name]
            document = name == "__metadata__" and array.dtype == np.uint8 and array.ndim == 1 and array[:1] == ord("{")
            if document:  # what holdall writes there
                content.metadata = {key: normalize(value) for key, value in json.loads(array.tobytes()).items()}
            else:
                content.tensors[name] = describe(np.asanyarray(array))
        return content

    return read


def _read_onnx() -> Callable[[bytes], Content]:
    import onnx
    from onnx import numpy_helper

    def read(data: bytes) -> Content:
        model = onnx.load_from_string(data)
        content = Content(metadata={row.key: normalize(row.value) for row in model.metadata_props})
        for own, row in list_tensors(model):
            shape, word = tuple(row.dims), onnx.TensorProto.DataType.Name(row.data_type)
            if too_large(shape, 1):
                raise ValueError(f"{word} of {shape}")
            array = np.asarray(numpy_helper.to_array(row))
            if word == "STRING":
                content.tensors[own] = "string", shape, ""
                continue
            name = _TYPES.get(array.dtype.name, word)
            content.tensors[own] = name, shape, values_of(array, name)
        return content

    return read


def _read_torch() -> Callable[[bytes], Content]:
    import collections

    import torch

    torch.set_num_threads(1)

    def describe(tensor: Any) -> Values:
        word, shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
        if tensor.layout is not torch.strided:
            return f"{tensor.layout} {word}", shape, ""
        if too_large(shape, tensor.element_size()):
            return _TYPES.get(word, word), shape, "large"
        flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        return _TYPES.get(word, word), shape, digest(flat.view(torch.uint8).numpy().tobytes() if len(flat) else b"")

    def has_tensor(value: Any, depth: int = 0) -> bool:
        if isinstance(value, torch.Tensor):
            return True
        items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
        return depth < 100 and any(has_tensor(item, depth + 1) for item in items)

    def put(tensor: Any, name: str, content: Content) -> None:
        if not tensor.is_quantized:
            content.tensors[name] = describe(tensor)
            return
        content.tensors[f"{name}.int_repr"] = describe(tensor.int_repr())  # the parts that holdall shows it as
        if tensor.qscheme() in (torch.per_channel_affine, torch.per_channel_affine_float_qparams):
            content.tensors[f"{name}.scales"] = describe(tensor.q_per_channel_scales())
            content.tensors[f"{name}.zero_points"] = describe(tensor.q_per_channel_zero_points())

    def walk(value: Any, prefix: str, content: Content) -> None:
        pairs = zip(_spell_keys(list(value)), value.values(), strict=True) if isinstance(value, Mapping) else ()
        for key, item in pairs or enumerate(value):
            name = f"{prefix}{key}"
            if isinstance(item, torch.Tensor):
                put(item, name, content)
            elif has_tensor(item):
                walk(item, name + ".", content)
            else:
                content.metadata[name] = normalize(_spell(item))
        if isinstance(value, collections.OrderedDict):
            for name, item in value.__dict__.items():
                if name == "metadata" and not prefix and isinstance(item, dict) and {*map(type, item)} <= {str}:
                    content.metadata.update({key: normalize(_spell(inner)) for key, inner in item.items()})
                else:
                    content.metadata["@" + prefix + name] = normalize(_spell(item))

    def read(data: bytes) -> Content:
        found, content = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True), Content()
        if isinstance(found, torch.Tensor):
            put(found, "tensor", content)
        elif isinstance(found, Mapping | list | tuple):
            walk(found, "", content)
        else:
            content.metadata["value"] = normalize(_spell(found))
        return content

    return read


def _spell_keys(keys: list[Any]) -> list[Any]:
    """Names for the keys of a dict of a pickle: Python's own spelling, and a number where two would be the same."""

    def spell(key: Any) -> str:
        return f"({', '.join(spell(item) for item in key)})" if isinstance(key, tuple) else str(key)

    names: list[str] = []
    for key in keys:
        word, number = spell(key), 2
        name = word
        while type(key) is not str and (name in names or name in keys):
            name, number = f"{word}#{number}", number + 1
        names.append(name)
    return names


def _spell(value: Any) -> Any:
    """A value of a pickle with text in the place of all keys but integers, which stay unless the text is a key too."""
    if isinstance(value, Mapping):
        keys = list(value)
        names = [
            key if type(key) is int and str(key) == name else name
            for key, name in zip(keys, _spell_keys(keys), strict=True)
        ]
        return dict(zip(names, map(_spell, value.values()), strict=True))
    return [_spell(item) for item in value] if isinstance(value, list | tuple) else value


READERS: Mapping[str, Callable[[], Callable[[bytes], Content]]] = {
    "safetensors": _read_safetensors,
    "gguf": _read_gguf,
    "npz": _read_npz,
    "onnx": _read_onnx,
    "torch": _read_torch,
    "oinf": lambda: prepare_oinf(_Path().put),
}


def prepare(format: str) -> Callable[[bytes], Content]:
    """Import the library of ``format``, and return the function that reads with it."""
    return READERS[format]()
