"""A table of which some tensors are replaced says the same as a list of the tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.model.array_table import ArrayTable
from holdall.model.payload import Computed
from holdall.model.replaced_table import ReplacedTable
from holdall.model.table import ListTable, TensorTable
from holdall.model.tensor import Tensor

CONTENT = {f"t{row}": np.arange(row % 5, dtype=(np.float32, np.int8)[row % 2]) for row in range(60)}


@pytest.fixture(params=["columns", "arrays", "list"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> TensorTable:
    holdall.save(tmp_path / "m.oinf", CONTENT)
    columns = holdall.open(tmp_path / "m.oinf").tensors
    return {"columns": columns, "arrays": ArrayTable(CONTENT), "list": ListTable(columns)}[request.param]


@pytest.mark.parametrize("rows", [[], [7], [59, 0, 30], range(60)])
def test_every_column_is_that_of_the_list(table: TensorTable, rows: list[int]) -> None:
    new = {}
    for row in rows:
        value = bytes([row]) * 4
        payload = [Computed(4, lambda value=value: [value]), None][row % 10 == 0]
        dtype = Tensor.of("", np.ones(1, np.int32)).dtype
        new[row] = Tensor(table.names[row], dtype, (1,), payload, native=str(row), requires_grad=True)
    replaced = ReplacedTable(table, new)
    expected = ListTable([new.get(row, table.tensor(row)) for row in range(len(table))])
    assert replaced.names == expected.names and len(replaced) == len(expected)
    assert list(replaced.forms()) == list(expected.forms())
    assert replaced.forms().kinds == list(dict.fromkeys(expected.forms()))
    assert replaced.totals() == expected.totals()
    assert replaced.find_trained().tolist() == expected.find_trained().tolist()
    assert list(replaced.natives(str)) == list(expected.natives(str))
    every = np.arange(len(table))[::-1]
    assert list(map(bytes, replaced.read(every))) == list(map(bytes, expected.read(every)))
    for row in (0, 7, 30, 59):
        assert (replaced.payload(row) is None) == (expected.payload(row) is None)
        assert replaced[row].shape == expected[row].shape
    ranges, wanted = replaced.ranges(), expected.ranges()
    assert (ranges.owners < 0).tolist() == (wanted.owners < 0).tolist()
    has = wanted.owners >= 0
    assert ranges.starts[has].tolist() == wanted.starts[has].tolist()
