"""What a user can describe a model with: dataclasses, dicts, specs, dtype spellings, values at their limits."""

import dataclasses
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Optional

import numpy as np
import pytest

import holdall
from holdall import oinf
from tests.format.oinf import corpus

CASES = json.loads((corpus.FOLDER / "writer_inputs.json").read_text())["cases"]


def data_section(data):
    """The data section."""
    return data[int.from_bytes(data[53:61], "little") :]


def write_bytes(model, path, **options):
    holdall.save(path, model, fsync=False, **options)
    return path.read_bytes()


def model_of(case):
    table, name, value, dtype = case["table"], case["name"], case["value"], case["dtype"]
    if table == "sizevar":
        return oinf.model(sizevars={name: value})
    if table == "metadata":
        return oinf.model(metadata={name: value if dtype is None else oinf.ScalarValue(value, dtype)})
    if table == "declared":
        return oinf.model({name: oinf.Uninitialized(dtype, case["shape"])})
    return oinf.model({name: oinf.TensorSpec(value, dtype)})


@pytest.mark.parametrize("case", CASES, ids=[f"{c['table']}-{c['dtype']}-{str(c['value'])[:20]!r}" for c in CASES])
def test_writer_advice(case, tmp_path):
    advice, path = case["advice"], tmp_path / "case.oinf"
    if advice.startswith("refuse"):
        with pytest.raises(holdall.ContentError):
            write_bytes(model_of(case), path)
        return
    data = data_section(write_bytes(model_of(case), path))
    if advice == "accept":
        assert data.hex() == case.get("stored_payload_hex", "")
    else:  # f8: round to nearest even
        want = {(1.9,): "40", (61440.0,): "7c", (1.125, 1.375, 1.625): "3c3e3e"}[tuple(case["value"])]
        assert data.hex().startswith(want)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [("F32", "f32"), ("f8", "f8_e5m2"), ("F8E5M2", "f8_e5m2"), ("float8e5m2", "f8_e5m2"), (17, "f8_e5m2"), (25, "t1")],
)
def test_dtype_spellings(spelling, name):
    assert str(oinf.model({"w": oinf.TensorSpec([1.0], spelling)})["w"].dtype) == name


@pytest.mark.parametrize("spelling", ["float32", "string", "f8_e4m3", "c64", 0, 14, 15, 26, -1, True, None])
def test_other_dtypes_are_refused(spelling):
    with pytest.raises(holdall.ContentError):
        oinf.model({"w": oinf.Uninitialized(spelling, (1,))})


def test_f8_rounds_to_nearest_even_and_has_one_nan():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    rng = np.random.default_rng(1)
    values = (rng.standard_normal(4000) * np.exp2(rng.integers(-20, 20, 4000))).astype(np.float32)
    stored = oinf.model({"w": oinf.TensorSpec(values, "f8")})["w"].raw()
    assert bytes(stored) == values.astype(ml_dtypes.float8_e5m2).tobytes()
    nan = oinf.model({"w": oinf.TensorSpec([np.nan, -np.nan, np.copysign(np.nan, -1), np.inf], "f8")})["w"].raw()
    assert nan.hex()[0:2] == "7d" and nan.hex()[4:] == "fd7c"
    codes = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e5m2)
    assert bytes(oinf.model({"w": codes})["w"].raw()) == bytes(range(256))  # not converted: bits stay


@pytest.mark.parametrize(
    ("dtype", "data"),
    [("i8", [128]), ("u8", [256]), ("i1", [1]), ("t1", [0]), ("t2", [-2]), ("u64", [-1]), ("i64", [2**63]),
     ("i8", [0.5]), ("bool", [2]), ("u8", ["a"]), ("f32", [1j]), ("i32", [np.nan])],
)  # fmt: skip
def test_values_out_of_range_are_refused(dtype, data):
    with pytest.raises(holdall.ContentError, match="'w'"):
        oinf.model({"w": oinf.TensorSpec(data, dtype)})


def test_arrays_are_looked_into_not_copied():
    values = np.arange(6, dtype=np.float32)
    model = oinf.from_dataclass({"w": values})
    assert np.shares_memory(model["w"].numpy(), values)


def test_memory_order_and_byte_order_do_not_matter():
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    plain = bytes(oinf.model({"w": values})["w"].raw())
    for other in (np.asfortranarray(values), values.astype(">f4"), values[::-1][::-1]):
        assert bytes(oinf.model({"w": other})["w"].raw()) == plain


@dataclass
class Everything:
    B: int
    D: Optional[int]  # noqa: UP045  # both spellings are accepted
    E: int | None
    N: oinf.SizeVar
    M: Annotated[np.int64, "sizevar"]
    mode: str
    flag: bool
    rate: float
    table: list[int]
    bits: oinf.Bitset
    exact: oinf.ScalarValue
    typed: Annotated[float, {"dtype": "f64"}]
    array: np.ndarray
    spec: oinf.TensorSpec
    state: oinf.Uninitialized
    one: Annotated[float, "tensor"]
    listed: Annotated[list[int], {"dtype": "i4"}]
    kept: Any = field(default=None, metadata={"dtype": "bf16", "shape": ("B", 3)})
    marked: Any = field(default=(1, 2), metadata={"tensor": True, "name": "renamed"})
    sizevars: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Any] = field(default_factory=dict)


def make_everything(**changes):
    values: dict[str, Any] = {
        "B": 2, "D": 8, "E": 9, "N": oinf.SizeVar(3), "M": np.int64(7), "mode": "fast", "flag": True, "rate": 0.5,
        "table": [1, -300], "bits": oinf.Bitset([1, 0, 1]), "exact": oinf.ScalarValue(1, "u64"), "typed": 0.1,
        "array": np.zeros(2, np.int16), "spec": oinf.TensorSpec([1, 2], "u4", name="x.spec"),
        "state": oinf.Uninitialized("f16", (4, "D")), "one": 1.5, "listed": [1, -8],
        "sizevars": {"layer.0.K": 5, "B": 99}, "metadata": {"a.b": 1, "mode": "slow"},
        "tensors": {"blk.0.w": np.ones(1, np.float32), "array": np.ones(5, np.uint8)},
    }  # fmt: skip
    return Everything(**{**values, **changes})


@pytest.mark.shows("O50")
def test_every_field_finds_its_table():
    model = oinf.from_dataclass(make_everything())
    assert model.sizevars == {"layer.0.K": 5, "B": 2, "D": 8, "E": 9, "N": 3, "M": 7}
    assert set(model.metadata) == {"a.b", "mode", "flag", "rate", "table", "bits", "exact", "typed"}
    assert model.metadata["mode"] == "fast"  # a field wins over a merged entry
    assert {name: (str(t.dtype), t.shape, t.has_data) for name, t in model.items()} == {
        "blk.0.w": ("f32", (1,), True), "array": ("i16", (2,), True), "x.spec": ("u4", (2,), True),
        "state": ("f16", (4, 8), False), "one": ("f64", (), True), "listed": ("i4", (2,), True),
        "kept": ("bf16", (2, 3), False), "renamed": ("i64", (2,), True),
    }  # fmt: skip


def test_a_dataclass_is_stored_as_it_was_described(tmp_path):
    write_bytes(oinf.from_dataclass(make_everything()), tmp_path / "all.oinf")
    assert holdall.verify(tmp_path / "all.oinf", level="strict").ok
    with holdall.open(tmp_path / "all.oinf") as model:
        kinds = {key: model.metadata.kind(key) for key in model.metadata}
        assert kinds == {
            "a.b": "u8", "mode": "string", "flag": "bool", "rate": "f32", "table": "ndarray:i16", "bits": "bitset",
            "exact": "u64", "typed": "f64",
        }  # fmt: skip
        assert model["listed"].numpy().tolist() == [1, -8]


def test_attributes_that_are_no_fields_are_not_dropped():
    @dataclass
    class Small:
        B: int = 1

        @cached_property
        def doubled(self) -> int:
            return 2 * self.B

    small = Small()
    small.metadata = {"mode": "fast"}
    small.w = np.zeros(3, np.float32)
    small._scratch = object()
    assert small.doubled == 2
    model = oinf.from_dataclass(small)
    assert (model.sizevars, dict(model.metadata), list(model)) == ({"B": 1}, {"mode": "fast"}, ["w"])


def test_dicts_and_classes_with_defaults():
    model = oinf.from_dataclass({"B": 4, "on": True, "w": np.zeros(2), "x": oinf.TensorSpec([1], "i2"), "mode": "fast"})
    assert (model.sizevars, dict(model.metadata), list(model)) == ({"B": 4}, {"on": True, "mode": "fast"}, ["w", "x"])
    cls = dataclasses.make_dataclass("Made", [("B", int, 3)])
    assert oinf.from_dataclass(cls).sizevars == {"B": 3}


@pytest.mark.parametrize(
    "wrong",
    [1, "text", None, {1: 2}, {"B": oinf.SizeVar("12")}, {"B": oinf.SizeVar(True)}, {"B": oinf.SizeVar(1.0)},
     {"w": oinf.Uninitialized("f32", ("Q",))}, {"w": oinf.TensorSpec([[1], [2, 3]])}, {"tensors": {1: [1]}},
     {"metadata": {"w": oinf.TensorSpec([1])}}, dataclasses.make_dataclass("Bare", [("B", int)])],
)  # fmt: skip
def test_what_describes_no_model_is_refused(wrong):
    with pytest.raises(holdall.ContentError):
        oinf.from_dataclass(wrong)


def test_an_annotation_that_cannot_be_evaluated_is_not_guessed():
    @dataclass
    class Odd:
        n: "Missing" = 3  # noqa: F821
        w: "Missing" = field(default_factory=lambda: np.zeros(1))  # noqa: F821

    with pytest.raises(holdall.ContentError, match="'n'"):
        oinf.from_dataclass(Odd())


def test_a_float_that_f32_cannot_hold_is_stored_as_f64(tmp_path):
    write_bytes(oinf.model(metadata={"a": 1e300, "b": [1e300, 1.0], "c": float("inf"), "d": 0.1}), tmp_path / "m.oinf")
    with holdall.open(tmp_path / "m.oinf") as model:
        assert [model.metadata.kind(key) for key in "abcd"] == ["f64", "ndarray:f64", "f32", "f32"]
        assert model.metadata["a"] == 1e300


def test_integers_take_the_smallest_type(tmp_path):
    values = {"a": 255, "b": 256, "c": 2**32, "d": -129, "e": [0, 200], "f": [2**63], "g": [True], "h": np.float16(1)}
    write_bytes(oinf.model(metadata=values), tmp_path / "m.oinf")
    with holdall.open(tmp_path / "m.oinf") as model:
        kinds = [model.metadata.kind(key) for key in values]
    assert kinds == ["u8", "u16", "u64", "i16", "ndarray:i16", "ndarray:u64", "ndarray:bool", "f32"]


@pytest.mark.parametrize(
    "quant",
    [
        lambda: oinf.QuantParams([0.5, 0.5]),
        lambda: oinf.QuantParams([0.5] * 4, axis=1),
        lambda: oinf.QuantParams([0.5], zero_point=[1], scheme="symmetric"),
        lambda: oinf.QuantParams([0.5], zero_point=[1, 2]),
        lambda: oinf.QuantParams.per_channel(2, [1.0]),
        lambda: oinf.QuantParams.per_channel(-1, [1.0, 1.0, 1.0]),
        lambda: oinf.QuantParams([1e300]),
        lambda: oinf.QuantParams([1.0], zero_point=[2**31]),
        lambda: oinf.QuantParams([1.0], scheme="odd"),
    ],
)
def test_quant_that_does_not_fit_is_refused(quant, tmp_path):
    with pytest.raises(holdall.ContentError):
        write_bytes(oinf.model({"w": oinf.TensorSpec(np.zeros((2, 3), np.int8), quant=quant())}), tmp_path / "q.oinf")


@pytest.mark.shows("O49")
def test_quant_makes_version_2(tmp_path):
    quant = oinf.QuantParams.per_channel(1, [1.0, 2.0, 3.0], [0, -1, 1])
    model = oinf.model({"w": oinf.TensorSpec(np.zeros((2, 3), np.int8), quant=quant), "v": np.zeros(1, np.int8)})
    write_bytes(model, tmp_path / "q.oinf")
    with holdall.open(tmp_path / "q.oinf") as found:
        assert (found.version, found["w"].native, found["v"].native) == ((2,), quant, None)
    with pytest.raises(holdall.ContentError, match="version 1"):
        write_bytes(model, tmp_path / "q.oinf", version=1)


def test_names_are_text(tmp_path):
    for model in (oinf.model(sizevars={1: 1}), oinf.model(metadata={1: 1}), oinf.model({1: [1]})):
        with pytest.raises(holdall.ContentError, match="text"):
            write_bytes(model, tmp_path / "n.oinf")
