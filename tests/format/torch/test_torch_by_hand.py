"""The files that tests make without PyTorch mean the same to PyTorch and to holdall."""

from __future__ import annotations

import io

import numpy as np
import pytest

import holdall
from tests.format.torch.by_hand import make_legacy, make_zip

MATRIX = np.arange(12, dtype=np.float32).reshape(3, 4).copy()
ARRAYS = {
    "matrix": MATRIX,
    "same": MATRIX,
    "column": MATRIX[:, 1],
    "turned": MATRIX.T,
    "spread": np.broadcast_to(np.array([True]), (2, 3)),
    "bytes": np.arange(5, dtype=np.uint8),
    "single": np.array(7, np.int64),
    "empty": np.zeros((0, 3), np.float64),
}


@pytest.mark.parametrize("make", [make_zip, make_legacy])
def test_holdall_reads_what_was_meant(make):
    with holdall.open(make(ARRAYS)) as model:
        assert model.format == "torch"
        for name, array in ARRAYS.items():
            assert np.array_equal(model[name].numpy(), array), name


@pytest.mark.parametrize("make", [make_zip, make_legacy])
def test_torch_reads_what_was_meant(make):
    torch = pytest.importorskip("torch")
    found = torch.load(io.BytesIO(make(ARRAYS)), weights_only=True)
    for name, array in ARRAYS.items():
        assert np.array_equal(found[name].numpy(), array), name
    assert found["matrix"].data_ptr() == found["same"].data_ptr()
