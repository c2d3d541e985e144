"""The index of a file is written in blocks: saving takes little memory for each tensor."""

from __future__ import annotations

import pytest

import holdall
from holdall.model.dtypes import DTYPES
from holdall.model.payload import InMemory
from holdall.testing import cost_of, run_isolated
from tests.format.aero.build import parse

COUNT = 200_000


@pytest.mark.shows("A48")
def test_the_index_is_not_held_in_memory(tmp_path):
    payload = InMemory(b"abcd")
    tensors = [holdall.Tensor(f"layer.{n}.weight", DTYPES["f32"], (1,), payload) for n in range(COUNT)]
    path = tmp_path / "many.aero"
    cost = run_isolated(lambda: cost_of(lambda: holdall.save(path, tensors, fsync=False, align=1)))
    # What the process shares with this one is counted when it is first touched: some 100 bytes a tensor.
    assert cost.peak_bytes < 400 * COUNT
    rows = parse(path.read_bytes()).tensors()
    assert [row["name"] for row in rows] == [tensor.name for tensor in tensors]
    assert [row["data_off"] for row in rows[-2:]] == [4 * COUNT - 8, 4 * COUNT - 4]
