"""The published verifier of OINF version 1 as a reader: its values are taken before it prints them."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from tools.differential.normal import Content, Values, normalize, values_of

__all__ = ["describe_value", "prepare_oinf", "values_in"]

_NAMES = {"str": "string", "f8": "f8_e5m2"}  # where the verifier has another name for a type
_WIDENED = ("bf16", "f8_e5m2")  # types that the verifier returns as f32


def values_in(value: Any, dtype: str) -> Values:
    """An array under the name of its type, in a form that both readers' values have."""
    array = np.asarray(value)
    if dtype in _WIDENED:
        wide = array.astype(np.float32)
        array = np.where(np.isnan(wide), np.float32("nan"), wide)  # the bits of a NaN are those of the conversion
    return dtype, tuple(array.shape), values_of(array, dtype if dtype == "bool" else "")


def describe_value(kind: str, value: Any) -> Any:
    """A value of the metadata with its kind."""
    if kind.startswith("ndarray:"):
        return (kind, *values_in(value, kind.removeprefix("ndarray:")))
    return kind, normalize(value)


def prepare_oinf(put: Callable[[bytes], str]) -> Callable[[bytes], Content]:
    """Import the verifier, and return the function that reads with it; ``put`` makes a file and returns its path."""
    import oinf_verify

    content = Content()

    def spell(tag: int) -> str:
        name: str = oinf_verify.VT_NAME[tag]
        return _NAMES.get(name, name)

    def note(*_: object) -> None:
        """Stands for print: takes what the verifier is about to show."""
        seen = sys._getframe(1).f_locals
        if "tensor" in seen:
            tensor = seen["tensor"]
            dtype, shape = spell(tensor["dtype"]), tuple(tensor["dims"])
            found = values_in(seen["arr"].reshape(shape), dtype) if tensor["has_data"] else (dtype, shape, "no data")
            content.tensors[tensor["name"]] = found
        elif "entry" in seen:
            kind, value = spell(seen["entry"]["value_type"]), seen["value"]
            if kind == "ndarray":
                kind, value = f"ndarray:{spell(value['dtype'])}", value["array"]
            elif kind == "bitset":
                value = [value["bit_count"], value["bytes"]]
            content.metadata[seen["entry"]["key"]] = describe_value(kind, value)
        elif "name" in seen:
            content.metadata[f"sizevar {seen['name']}"] = normalize(seen["value"])

    oinf_verify.print = note
    # What it computes for people fails where a value is NaN or infinite.
    oinf_verify._tensor_stats = lambda values: defaultdict(float)
    for name in ("format_values", "format_scalar", "histogram_string"):
        setattr(oinf_verify, name, lambda value: "")

    def read(data: bytes) -> Content:
        content.tensors, content.metadata = {}, {}
        oinf_verify.parse_file(put(data))
        return Content(content.tensors, content.metadata)

    return read
