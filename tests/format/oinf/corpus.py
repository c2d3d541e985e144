"""The golden OINF files: what is expected of them, and that content rebuilt without the reader."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from holdall import oinf
from holdall.model.dtypes import DTYPES
from tests.golden import golden, golden_files, published_file

FOLDER = golden("oinf")
GOOD = [path.stem for path in golden_files("oinf", "*.oinf")]
BAD = sorted(path.stem for path in (FOLDER / "bad").glob("*.oinf"))


def file(name: str) -> Path:
    return _find(f"{name}.oinf")


def expected(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_find(f"{name}.expected.json").read_text())
    return found


def _find(file: str) -> Path:
    return published_file("oinf", file) if file.startswith("real_") else FOLDER / file


def label(name: str) -> str:
    """must-reject, strict-only or contested."""
    return (FOLDER / "bad" / f"{name}.reason.txt").read_text().split("]")[0].strip("[")


def dtype_name(name: str) -> str:
    return {"f8": "f8_e5m2"}.get(name, name)


def number(value: Any) -> Any:
    """nan, inf and -inf are text in the corpus."""
    return float(value) if isinstance(value, str) else value


def is_same(got: Any, wanted: Any) -> bool:
    """Equal numbers, NaN equal to NaN, and zeros of one sign."""
    wanted = number(wanted)
    if isinstance(wanted, float) and math.isnan(wanted):
        return bool(math.isnan(got))
    return bool(got == wanted) and (wanted != 0 or math.copysign(1, got) == math.copysign(1, wanted))


def array(values: list[Any], dtype: str, shape: list[int]) -> Any:
    """The values as the widest numpy type of their kind, as a user without the file would have them."""
    kind = DTYPES[dtype_name(dtype)].kind
    wide = {"float": np.float64, "uint": np.uint64, "bool": np.bool_}.get(kind, np.int64)
    return np.array([number(value) for value in values], wide).reshape(shape)


def rebuild(name: str) -> Any:
    """The model that expected.json describes. Tensors without listed values take their bytes from the file."""
    import holdall

    want = expected(name)
    stored = holdall.open(file(name))
    tensors: dict[str, Any] = {}
    for row in want["tensors"]:
        dtype = dtype_name(row["dtype"])
        quant = _quant(row.get("quant"))
        if not row["has_data"]:
            tensors[row["name"]] = oinf.Uninitialized(dtype, row["shape"], quant=quant)
        elif "values" in row:
            tensors[row["name"]] = oinf.TensorSpec(array(row["values"], dtype, row["shape"]), dtype, quant=quant)
        else:
            tensors[row["name"]] = oinf.TensorSpec(stored[row["name"]].numpy(), dtype, quant=quant)
    metadata = {key: _metadata(row) for key, row in want["metadata"].items()}
    return oinf.model(tensors, sizevars=want["sizevars"], metadata=metadata)


def _metadata(row: dict[str, Any]) -> Any:
    kind, value = row["type"], row["value"]
    if kind == "string":
        return value
    if kind == "bitset":
        return oinf.Bitset(value["bits"])
    if kind == "ndarray":
        return oinf.ScalarValue(array(value["values"], value["dtype"], value["shape"]), dtype_name(value["dtype"]))
    return oinf.ScalarValue(number(value), dtype_name(kind))


def _quant(row: dict[str, Any] | None) -> Any:
    if row is None:
        return None
    axis = row["scale_axis"] if row["scale_mode"] == "per_channel" else None
    zero_point = row["zero_point"] if row["zero_point_mode"] != "none" else None
    return oinf.QuantParams([number(v) for v in row["scale"]], zero_point, axis, row["scheme"])
