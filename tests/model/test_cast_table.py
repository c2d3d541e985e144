"""A table of casts gives the bytes, forms and messages of the casts of its tensors one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError
from holdall.model.cast_table import CastTable
from holdall.model.casts import cast
from holdall.model.dtypes import DTYPES, find_dtype
from holdall.model.model import model_of
from holdall.model.table import ListTable, TensorTable
from holdall.model.tensor import Tensor

ROWS = 300
KINDS = ("f32", "f16", "bf16", "f64", "i8", "i4", "bool", "c64", "f8_e5m2")


def tensors(values: np.ndarray) -> list[Tensor]:
    """Tensors of several types and shapes, some empty and some without data."""
    found = []
    for row in range(ROWS):
        size, kind = row % 7, KINDS[row % len(KINDS)]
        given = values[row : row + size]
        whole = np.abs(given.astype(np.int64) % 2) if DTYPES[kind].kind in ("int", "bool") else given
        tensor = Tensor.of(f"t{row}", whole.astype(np.complex64) if kind == "c64" else whole, kind)
        found.append(Tensor(tensor.name, tensor.dtype, tensor.shape, None) if row % 50 == 49 else tensor)
    return found


@pytest.mark.parametrize("new", ["f32", "f16", "bf16", "f64", "f8_e4m3", "c64"])
@pytest.mark.parametrize("largest", [1.0, 1e4, 1e30])
def test_tensors_are_cast_together_as_each_alone(tmp_path: Path, new: str, largest: float) -> None:
    values = (np.random.default_rng(3).uniform(-1, 1, ROWS + 8) * largest).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        given = [each for each in tensors(values) if new == "c64" or each.dtype != DTYPES["c64"]]
    source: TensorTable = ListTable(given)
    choices = np.array([-1 if row % 11 == 0 else 0 for row in range(len(given))], np.intp)
    single, together = list[str](), list[str]()
    expected = [each if choice < 0 else cast(each, find_dtype(new), single.append)
                for each, choice in zip(given, choices.tolist(), strict=True)]  # fmt: skip
    table = CastTable(source, [find_dtype(new)], choices, together.append)
    assert [(form.dtype, form.shape, form.size) for form in table.forms()] == [
        (each.dtype, each.shape, None if each.payload is None else each.payload.size) for each in expected
    ]
    assert len(set(table.forms().kinds)) == len(table.forms().kinds)
    data = [b"" if each.payload is None else each.payload.read() for each in expected]
    assert list(map(bytes, table.read(np.arange(len(given))))) == data
    assert together == single and bool(single) == (largest > {"f16": 65504, "f8_e4m3": 448}.get(new, 1e38))
    assert [str(tensor.dtype) for tensor in table] == [str(each.dtype) for each in expected]


def test_the_tensor_that_does_not_fit_is_named(tmp_path: Path) -> None:
    content = {f"t{row}": np.array([row, 7], np.float32) for row in range(200)}
    content["t150"][1] = 0.5
    holdall.save(tmp_path / "m.oinf", content)
    with pytest.raises(ContentError, match=r"^tensor 't150': i16 holds whole numbers"):
        holdall.convert(tmp_path / "m.oinf", tmp_path / "n.oinf", cast="*=i16")
    with pytest.raises(ContentError, match=r"tensor 'q' is mcf[.]q8: dequantize it before casting"):
        quantized = holdall.quant.quantize_model(model_of({"a": np.ones(1), "q": np.ones((4, 64), np.float32)}), "q8")
        CastTable(quantized.tensors, [find_dtype("f16")], np.zeros(2, np.intp))


def test_a_cast_of_many_tensors_makes_no_object_for_each(tmp_path: Path) -> None:
    import sys

    holdall.save(tmp_path / "one.oinf", {"t": np.zeros(4, np.float32)})
    holdall.convert(tmp_path / "one.oinf", tmp_path / "one.safetensors", cast="bf16")  # imports are not counted
    holdall.save(tmp_path / "m.oinf", {f"t{row}": np.full(4, row, np.float32) for row in range(20_000)})
    calls = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        holdall.convert(tmp_path / "m.oinf", tmp_path / "n.safetensors", cast="bf16", fsync=False)
    finally:
        sys.setprofile(None)
    assert calls < 15 * 20_000
    with holdall.open(tmp_path / "n.safetensors") as model:
        assert model["t19999"].numpy().astype(np.float32).tolist() == [19968] * 4  # 8 bits of mantissa
