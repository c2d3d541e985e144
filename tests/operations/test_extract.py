from __future__ import annotations

import io
import tracemalloc

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError
from holdall.operations.extract import make_file_names, npy_type_of, parse_slice, plan_npy, plan_raw, stream_plan
from holdall.sink import write_file


def npy_of(tensor, *arguments):
    return np.load(io.BytesIO(b"".join(stream_plan(plan_npy(tensor, *arguments)))))


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "i64", "i8", "u16", "bool", "i4", "u1", "t2", "t1"])
def test_npy_of_every_type_it_can_express(dtype):
    values = np.array([[1, 1, 1], [1, 1, 1]]) if dtype in ("bool", "u1") else np.array([[1, -1, 1], [-1, 1, 1]])
    if dtype.startswith("u"):
        values = abs(values)
    tensor = holdall.Tensor.of("w", values, dtype)
    assert npy_of(tensor).tolist() == tensor.numpy().tolist()
    assert npy_of(tensor, (slice(1), 2)).tolist() == tensor.numpy()[:1, 2].tolist()


@pytest.mark.parametrize("dtype", ["bf16", "f8_e4m3", "f8_e5m2"])
def test_npy_has_no_word_for_some(dtype):
    tensor = holdall.Tensor.of("w", np.array([0.5, -2.0], np.float32), dtype)
    assert npy_type_of(tensor) is None
    with pytest.raises(ContentError, match="cannot express"):
        plan_npy(tensor)
    assert npy_of(tensor, None, "f32").tolist() == [0.5, -2.0]
    assert b"".join(stream_plan(plan_raw(tensor))) == tensor.raw()


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1, 1, 1)])
def test_shapes(shape):
    tensor = holdall.Tensor.of("w", np.ones(shape, np.float32))
    assert npy_of(tensor).shape == shape


def test_a_declared_tensor_has_nothing_to_extract():
    kind = holdall.Tensor.of("x", np.zeros(1, np.int8)).dtype
    tensor = holdall.Tensor("w", kind, (3,), None)
    for plan in (plan_npy, plan_raw):
        with pytest.raises(ContentError, match="declared without data"):
            plan(tensor)


def test_memory_does_not_grow_with_the_tensor(tmp_path):
    path = tmp_path / "big.oinf"
    holdall.save(path, {"w": np.ones(16_000_000, np.float32)}, fsync=False)
    with holdall.open(path, mmap=False) as model:
        tracemalloc.start()
        write_file(tmp_path / "w.npy", plan_npy(model["w"], None, "f64"), fsync=False)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 64 << 20
    assert np.load(tmp_path / "w.npy", mmap_mode="r").shape == (16_000_000,)


def test_slices_in_pythons_notation():
    assert parse_slice("0:2,:") == (slice(0, 2), slice(None))
    assert parse_slice("[..., -1]") == (Ellipsis, -1)
    assert parse_slice("::-1") == (slice(None, None, -1),)
    for bad in ("", "1,", "x", "1:2:3:4", "0::0", "1e3", "９"):
        with pytest.raises(ValueError, match=r"slice|step"):
            parse_slice(bad)


def test_file_names_are_plain_and_distinct():
    names = ["a/b", "a%2Fb", "../../x", "..", ".hidden", "-rf", "", "CON\0", "é", "W", "w", "x" * 300, "x" * 299]
    found = make_file_names(names)
    assert len({name.lower() for name in found}) == len(names)
    for name in found:
        assert 0 < len(name) < 140
        assert not set(name) & set("/\\\0")
        assert name[0] not in ".-"


def test_a_thousand_equal_beginnings_are_told_apart_quickly():
    found = make_file_names([f"{'x' * 200}{n}" for n in range(3000)])
    assert len(set(found)) == 3000
