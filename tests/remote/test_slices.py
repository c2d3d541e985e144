"""Slices of many short pieces: the rows that they lie in are asked for once, checked or not."""

import io

import numpy as np
import pytest

import holdall
from holdall.model.dtypes import find_dtype
from holdall.model.payload import InMemory
from holdall.operations.extract import stream_plan
from holdall.operations.open_save import plan_save
from tests.remote.servers import range_server

KEYS = {
    "a column": np.s_[:, 0],
    "the last of each": np.s_[..., -1],
    "backwards": np.s_[::-1, 5],
    "some rows": np.s_[500:700, 3:5],
    "every third": np.s_[::3, ::7],
}


def make(kind, array):
    out = io.BytesIO()
    if kind == "npz":
        np.savez(out, w=array)
    else:
        from safetensors.numpy import save

        out.write(save({"w": array}))
    return out.getvalue()


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
@pytest.mark.parametrize("key", KEYS)
def test_scattered_slices_take_few_requests(kind, key):
    array = np.arange(1024 * 512, dtype=np.float32).reshape(1024, 512)  # 2 MiB
    with range_server({f"/m.{kind}": make(kind, array)}) as server, holdall.open(f"{server.url}/m.{kind}") as model:
        before = len(server.log.requests)
        assert np.array_equal(model["w"][KEYS[key]], array[KEYS[key]])
        assert len(server.log.requests) - before <= 8


def test_a_column_of_a_large_checked_member_moves_it_once():
    """It moved 1.8 GB of a file of 32 MiB, which was fetched and proven anew for every row."""
    array = np.arange(8 << 20, dtype=np.float32).reshape(512, -1)
    data = make("npz", array)
    with range_server({"/m.npz": data}) as server, holdall.open(f"{server.url}/m.npz") as model:
        assert np.array_equal(model["w"][:, 0], array[:, 0])
        assert server.log.sent < 1.2 * len(data)


def test_rows_of_packed_types_begin_where_they_begin():
    """A row of 129 elements of six bits has 96.75 bytes: the second begins inside of a byte."""
    codes = np.arange(258) % 64
    bits = "".join(f"{code:06b}"[::-1] for code in codes.tolist())
    packed = np.packbits([int(bit) for bit in bits], bitorder="little").tobytes()
    assert len(packed) == 2 * 97
    tensor = holdall.Tensor("w", find_dtype("f6_e2m3"), (2, 129), InMemory(packed))
    data = encode("onnx", tensor)
    with range_server({"/m.onnx": data}) as server, holdall.open(f"{server.url}/m.onnx") as model:
        expected = holdall.open(data)["w"].numpy()[1, ::2]
        assert model["w"][1, ::2].tolist() == expected.tolist()


def encode(format, tensor):
    plan = plan_save("m", [tensor], format=format)
    return b"".join(stream_plan(plan))
