"""Formats that ask more of a model than ``Holds`` can say: their own kind of contract, by id."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from holdall.metadata import Entry, Metadata
from holdall.model import Model
from holdall.testing import FormatContract


class OinfContract(FormatContract):
    """The format's own writer stores a plain float as F32 and a list as an array: so does holdall."""

    def expected(self, model: Model) -> Model:
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
            if np.array_equal(array.astype(dtype), array):
                return array.astype(dtype)
    return value


class EmbdContract(FormatContract):
    """Metadata is text: numbers and flags are written out."""

    def expected(self, model: Model) -> Model:
        from holdall.formats.embd.write import text_of

        entries = [Entry(entry.key, text_of(entry.value)) for entry in model.metadata.entries]
        return Model(model.tensors, metadata=Metadata(entries), assets=model.assets, native=model.native)


class GgufContract(FormatContract):
    """A list of numbers comes back as an array, of the kind that the writer chose for it."""

    def expected(self, model: Model) -> Model:
        entries = [Entry(entry.key, _as_gguf(entry.value)) for entry in model.metadata.entries]
        return Model(model.tensors, metadata=Metadata(entries), native=model.native)


def _as_gguf(value: Any) -> Any:
    from holdall.formats.gguf.encode import infer

    if not isinstance(value, list) or any(isinstance(item, str) for item in value):
        return value
    names = {"i32": "i4", "i64": "i8", "u64": "u8", "f32": "f4", "f64": "f8", "bool": "?"}
    return np.array(value, names[infer(value).removeprefix("array:")])


DEMANDS: Mapping[str, type[FormatContract]] = {
    "oinf": OinfContract,
    "embd": EmbdContract,
    "gguf": GgufContract,
}
