"""The files that the published writer makes of the same dataclass, byte for byte."""

from dataclasses import field, make_dataclass
from typing import Annotated, Any

import numpy as np
import pytest

import holdall
import holdall.numpy
from holdall import oinf

published = pytest.importorskip("oinf_encoder")


def instance(**fields):
    """An instance of a dataclass with these fields: each an annotation and a function that makes the default."""
    made = make_dataclass("Made", [(name, kind, field(default_factory=make)) for name, (kind, make) in fields.items()])
    return made()


def write(obj):
    return holdall.numpy.save(oinf.from_dataclass(obj), format="oinf")


SAME = [
    (float, 1), (float, True), (float, 16777217), (float, 2**60 + 1), (float | None, 2),
    (Annotated[float, "note"], 1), (Annotated[float, {"dtype": "f64"}], 1), (Annotated[float, {"dtype": "i16"}], 1),
    (list[float], [1, 2]), (list[float], [1, 2.5]), (tuple[float, ...], (1, 2)), (tuple[float, float], (1, 2)),
    (list[list[float]], [[1, 2], [3, 4]]), (list[float | None], [1]), (list[int], [1, 300]), (list, [1, 2]),
    (list[int], [True, False]), (list[bool], [1, 0]), (bool, 1), (bool, 0), (bool, 1.0),
    (float, np.int64(3)), (float, np.float64(0.1)), (float, np.float16(0.1)), (np.float64, np.float64(5)),
    (Any, np.int64(5)), (Any, np.int64(-5)), (Any, np.int32(-300)), (Any, np.uint16(5)), (Any, np.int64(2**40)),
    (Any, np.uint64(2**64 - 1)), (Any, np.int64(-(2**63))), (Any, np.float64(0.1)), (Any, np.float32(0.1)),
    (Any, np.float16(0.5)), (Any, np.float64(np.nan)), (Any, np.float64(-np.inf)), (Any, -1), (Any, 1.5), (Any, "a"),
    (Any, (np.uint8(1),)), (Any, [np.uint64(300)]), (Any, [np.int64(1), np.int64(-2)]), (Any, [np.float64(1), 2]),
    (Any, [2**63]), (int, np.int64(5)), (int, 5), (np.ndarray, np.arange(3)), (Any, np.float32([1, 2])),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), SAME, ids=[f"{kind}-{value!r}" for kind, value in SAME])
def test_a_field_gets_the_type_that_the_published_writer_gives_it(kind, value):
    obj = instance(x=(kind, lambda: value))
    assert write(obj) == published.dataclass_to_oinf(obj)


@pytest.mark.parametrize("value", [np.float64(0.1), np.int64(7), np.int64(-7), 3, 0.5])
@pytest.mark.parametrize("dtype", [None, "f64", "f16", "f32"])
def test_scalar_values_do_so_too(value, dtype):
    theirs = published.dataclass_to_oinf(instance(x=(Any, lambda: published.ScalarValue(value, dtype))))
    assert write(instance(x=(Any, lambda: oinf.ScalarValue(value, dtype)))) == theirs


def test_values_that_the_published_writer_would_change_stay():
    found = oinf.from_dataclass(
        instance(a=(float, lambda: 1e39), b=(Any, lambda: np.float64(1e300)), c=(float, lambda: 10**39))
    )
    with holdall.open(holdall.numpy.save(found)) as model:
        assert dict(model.metadata) == {"a": 1e39, "b": 1e300, "c": 1e39}
        assert {model.metadata.kind(key) for key in "abc"} == {"f64"}
    with pytest.raises(holdall.ContentError, match=r"oinf: metadata 'x': about 2\^1328 is too large for a float"):
        oinf.from_dataclass(instance(x=(float, lambda: 10**400)))


def named(lib):
    """Fields whose tensors have names in another order; the dict is merged in and sorted with the fields."""
    return instance(
        b=(Any, lambda: lib.TensorSpec(np.float32([1]), name="z")),
        c=(Any, lambda: lib.TensorSpec([2, 3], dtype="i8")),
        d=(Any, lambda: lib.UninitializedTensor("f32", (2,), name="a")),
        tensors=(dict, lambda: {"bb": lib.TensorSpec(np.int16([4]), name="y"), "a.a": np.uint8([5])}),
    )


def test_a_tensor_with_a_name_of_its_own_keeps_the_place_of_its_field(tmp_path):
    model = oinf.from_dataclass(named(oinf))
    data = holdall.numpy.save(model)
    assert data == published.dataclass_to_oinf(named(published))
    with holdall.open(data) as found:
        assert list(found) == ["a.a", "z", "y", "c", "a"]
        assert found["z"].numpy().tolist() == [1] and not found["a"].has_data
    holdall.save(tmp_path / "version2.oinf", model, version=2)
    assert list(holdall.open(tmp_path / "version2.oinf")) == ["a.a", "z", "y", "c", "a"]


def test_names_in_plain_tables_keep_their_place_too():
    model = oinf.model({"b": oinf.TensorSpec([1], name="z"), "c": np.zeros(1)})
    assert list(holdall.open(holdall.numpy.save(model))) == ["z", "c"]
    assert list(holdall.open(holdall.numpy.save(model.replace(tensors=[model["c"], model["z"]])))) == ["z", "c"]
