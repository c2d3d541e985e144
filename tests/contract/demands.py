"""Formats that ask more of a model than ``Holds`` can say: their own kind of contract, by id."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from holdall.model.metadata import Entry, Metadata
from holdall.model.model import Model
from holdall.testing import FormatContract


class OinfContract(FormatContract):
    """The format's own writer stores a plain float as F32 and a list as an array: so does holdall."""

    def expect(self, model: Model) -> Model:
        entries = [Entry(entry.key, _as_oinf(entry.value)) for entry in model.metadata.entries]
        return Model(model.tensors, metadata=Metadata(entries), native=model.native)


def _as_oinf(value: Any) -> Any:
    if isinstance(value, float) and abs(value) <= np.finfo(np.float32).max:
        return float(np.float32(value))
    if isinstance(value, list):
        array = np.asarray(value)
        if not value:
            return array.astype(np.float32)
        for dtype in (np.int8, np.int16, np.int32, np.int64):
            if array.dtype.kind != "f" and np.array_equal(array.astype(dtype), array):
                return array.astype(dtype)
        if array.dtype.kind == "f":
            return array.astype(np.float32)
    return value


class EmbdContract(FormatContract):
    """Metadata is text: numbers are written in decimal."""

    def expect(self, model: Model) -> Model:
        entries = [Entry(entry.key, str(entry.value)) for entry in model.metadata.entries]
        return Model(model.tensors, metadata=Metadata(entries), assets=model.assets, native=model.native)


class GgufContract(FormatContract):
    """A list of numbers comes back as an array, of the kind that the writer chose for it."""

    def expect(self, model: Model) -> Model:
        entries = [Entry(entry.key, _as_gguf(entry.value)) for entry in model.metadata.entries]
        return Model(model.tensors, metadata=Metadata(entries), native=model.native)


def _as_gguf(value: Any) -> Any:
    from holdall.format.gguf.encode import infer

    if not isinstance(value, list) or any(isinstance(item, str) for item in value):
        return value
    names = {"i32": "i4", "i64": "i8", "u64": "u8", "f32": "f4", "f64": "f8", "bool": "?"}
    return np.array(value, names[infer(value).removeprefix("array:")])


class McfContract(FormatContract):
    payloads_without_hash = "the rules of level full are about ModelInfo and unassigned dtypes; MCF stores no hashes"


class HfContract(FormatContract):
    payloads_without_hash = "the rule of level full is about files of the tokenizer; safetensors stores no hashes"


class OnnxContract(FormatContract):
    payloads_without_hash = "the rule of level full is about the parts of sparse tensors; ONNX stores no hashes"


DEMANDS: Mapping[str, type[FormatContract]] = {
    "oinf": OinfContract,
    "embd": EmbdContract,
    "gguf": GgufContract,
    "hf": HfContract,
    "mcf": McfContract,
    "onnx": OnnxContract,
}
