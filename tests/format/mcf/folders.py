"""Hugging Face folders as models, read by the plainest means: what packing is given."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from holdall.model.dtypes import DTYPES
from holdall.model.model import Model
from holdall.model.payload import SourceRange
from holdall.model.tensor import Tensor
from holdall.source import FileSource, FolderSource

_NAMES = {"F32": "f32", "F16": "f16", "BF16": "bf16", "F64": "f64", "I8": "i8", "U8": "u8", "I16": "i16",
          "U16": "u16", "I32": "i32", "U32": "u32", "I64": "i64", "U64": "u64"}  # fmt: skip


def folder_model(folder: Path) -> Model:
    """The tensors of all safetensors files of a folder, its other files as assets."""
    tensors, assets = [], {}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".safetensors":
            tensors += _tensors(path)
        elif path.name != "model.safetensors.index.json":
            assets[path.name] = path.read_bytes()
    return Model(tensors, assets=assets, metadata={"format": "pt"}, format="hf", sources=[FolderSource(folder)])


def _tensors(path: Path) -> list[Tensor]:
    source = FileSource(path)
    (size,) = struct.unpack("<Q", source.read(0, 8))
    header = json.loads(source.read(8, size))
    header.pop("__metadata__", None)
    tensors = []
    for name, entry in header.items():
        start, stop = entry["data_offsets"]
        payload = SourceRange(source, 8 + size + start, stop - start)
        tensors.append(Tensor(name, DTYPES[_NAMES[entry["dtype"]]], tuple(entry["shape"]), payload))
    return tensors
