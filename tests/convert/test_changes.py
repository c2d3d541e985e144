"""Lazy changes to tensors: what they choose, how they rename, and that casts and transpositions are exact."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import holdall
from holdall.errors import ContentError, UnsupportedError
from holdall.model.casts import cast, transpose
from holdall.model.dtypes import DTYPES, FINITE, find_dtype, float_info
from holdall.model.tensor import Tensor
from holdall.operations.convert.changes import Changes, parse_cast, parse_rename

VALUES = np.random.default_rng(1).standard_normal((37, 53)).astype(np.float32)


@pytest.fixture
def stored(tmp_path: Path) -> Tensor:
    """A tensor that is read from a file by positioned reads."""
    holdall.save(tmp_path / "one.oinf", {"w": VALUES})
    return holdall.open(tmp_path / "one.oinf", mmap=False)["w"]


def test_nothing_asked_changes_nothing() -> None:
    assert Changes().options() == []
    tensor = Tensor.of("w", VALUES)
    assert Changes().apply(tensor).payload is tensor.payload


def test_include_and_exclude() -> None:
    changes = Changes(include=["*.weight", "head"], exclude=["*.0.*"])
    names = ["a.0.weight", "a.1.weight", "a.1.bias", "head"]
    assert [name for name in names if changes.chooses(name)] == ["a.1.weight", "head"]


def test_rename_by_table_then_by_rules() -> None:
    changes = Changes(rename=parse_rename(["s/^model[.]//", "s|w(\\d)|weight.\\1|"]), names={"x": "model.w7"})
    assert changes.new_name("x") == "weight.7"
    assert changes.new_name("model.b") == "b"


@pytest.mark.parametrize("rule", ["", "s", "s/a/b", "s//b/", "y/a/b/", "s/(/b/", "s/a/b/x", r"s/a/\1/", r"s/a/\g<n>/"])
def test_a_rename_rule_that_is_none(rule: str) -> None:
    with pytest.raises(UnsupportedError, match="rename rule"):
        parse_rename([rule])


def test_cast_rules() -> None:
    assert parse_cast({"*.norm": "f32"}) == [("*.norm", "f32")]
    assert parse_cast("bf16") == [("", "bf16")]
    with pytest.raises(UnsupportedError, match="float99"):
        parse_cast("float99")


def test_the_first_cast_rule_counts(stored: Tensor) -> None:
    changes = Changes(cast=parse_cast(["w=f16", "bf16"]))
    assert str(changes.apply(stored).dtype) == "f16"


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f64", "f8_e4m3", "f8_e5m2"])
def test_a_float_cast_rounds_to_nearest(stored: Tensor, dtype: str) -> None:
    expected = VALUES.astype(find_dtype(dtype).numpy)
    made = cast(stored, find_dtype(dtype)).numpy()
    assert made.dtype == expected.dtype
    assert made.tobytes() == expected.tobytes()


def test_a_rule_without_a_pattern_is_for_floats() -> None:
    changes = Changes(cast=parse_cast("bf16"))
    ids = Tensor.of("ids", np.arange(1000))
    assert changes.apply(ids).dtype == ids.dtype
    assert str(changes.apply(Tensor.of("w", VALUES)).dtype) == "bf16"


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (np.array([1, 2**24 + 1], np.int64), "f32", "element 1 is 16777217, which f32 does not hold"),
        (np.array([2**63 - 1], np.int64), "f64", "element 0"),
        (np.array([70000], np.int32), "f16", "element 0 is 70000"),
    ],
)
def test_an_integer_that_would_become_another_stops_the_cast(value: np.ndarray, dtype: str, message: str) -> None:
    with pytest.raises(ContentError, match=f"'w': {message}"):
        cast(Tensor.of("w", value), find_dtype(dtype)).raw()


BEYOND = [
    (np.float32(1e6), "f16"), (np.float64(1e300), "f32"), (np.float32(500), "f8_e4m3"), (np.complex128(1e300j), "c64"),
    (np.float64(1e300), "c64"), (np.float32(np.inf), "f8_e4m3"), (np.float32(-np.inf), "f8_e5m2fnuz"),
    (np.float32(-1), "f8_e8m0"), (np.float32(0), "f8_e8m0"),
    (ml_dtypes.float8_e8m0fnu(2.0**127), "f16"), (ml_dtypes.float8_e8m0fnu(2.0**127), "f8_e5m2"),
    (ml_dtypes.float8_e5m2fnuz(1000), "f8_e4m3"), (ml_dtypes.float8_e5m2fnuz(1000), "f8_e4m3fnuz"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "dtype"), BEYOND)
def test_values_beyond_the_type_are_counted(value: np.floating, dtype: str) -> None:
    messages: list[str] = []
    cast(Tensor.of("w", np.array([value, 1, np.nan], value.dtype)), find_dtype(dtype), messages.append).raw()
    assert messages == [f"tensor 'w': 1 value is beyond {dtype} and now infinite or NaN"]


@pytest.mark.parametrize("dtype", sorted(FINITE))
def test_values_beyond_a_type_without_infinities_are_counted(dtype: str) -> None:
    messages: list[str] = []
    made = cast(Tensor.of("w", np.array([1e9, 1, -30], np.float32)), find_dtype(dtype), messages.append).numpy()
    assert messages == [f"tensor 'w': 2 values are beyond {dtype} and held at its largest"]
    assert made.astype(np.float32).tolist() == [largest := float(float_info(made.dtype).max), 1, -largest]


@pytest.mark.parametrize("old", sorted(DTYPES.keys() - {"i1"}))  # which is -1 and 0
def test_every_type_is_cast_to_every_other(old: str) -> None:
    """By way of float32 where numpy has no cast: ml_dtypes lacks some between its own."""
    one = Tensor.of("w", np.ones(1, find_dtype(old).numpy), old)
    for new in DTYPES.keys() - {"i1"}:
        if find_dtype(old).kind == "complex" != find_dtype(new).kind:
            with pytest.raises(ContentError, match="complex"):
                cast(one, find_dtype(new)).raw()
        else:
            assert cast(one, find_dtype(new)).numpy() == 1


def test_infinities_and_integers_that_fit_are_cast() -> None:
    assert cast(Tensor.of("w", np.array([np.inf, -np.inf, np.nan], np.float32)), find_dtype("f16")).numpy()[0] == np.inf
    assert cast(Tensor.of("w", np.arange(-256, 257)), find_dtype("bf16")).numpy()[0] == -256


def test_rules_that_meet_nothing_are_named() -> None:
    changes = Changes(include=["a*", "z*"], rename=parse_rename(["s/q/r/"]), names={"n": "m"}, cast=[("y", "f16")])
    assert changes.find_unmatched(["a", "b"], ["a", "b"]) == ["include 'z*'", "cast 'y'", "rename 'n'", "rename 'q'"]


def test_widening_is_exact() -> None:
    small = VALUES.astype(ml_dtypes.bfloat16)
    assert np.array_equal(cast(Tensor.of("w", small), find_dtype("f32")).numpy(), small.astype(np.float32))


def test_a_cast_to_integers_refuses_what_would_change() -> None:
    whole = Tensor.of("w", np.arange(-8, 8, dtype=np.float32))
    assert cast(whole, find_dtype("i4")).numpy().tolist() == list(range(-8, 8))
    with pytest.raises(ContentError, match=r"'w'.*-8\.\.7 do not fit u4"):
        cast(whole, find_dtype("u4")).raw()
    with pytest.raises(ContentError, match="whole numbers"):
        cast(Tensor.of("w", VALUES), find_dtype("i32")).raw()


@pytest.mark.parametrize("dtype", ["f32", "i4", "t1", "bool"])
def test_transposition(tmp_path: Path, dtype: str) -> None:
    values = np.where(VALUES > 0, 1, -1 if dtype != "bool" else 0)
    holdall.save(tmp_path / "t.oinf", {"w": Tensor.of("w", values, dtype)})
    with holdall.open(tmp_path / "t.oinf", mmap=False) as model:
        turned = transpose(model["w"])
        assert turned.shape == (53, 37)
        assert np.array_equal(turned.numpy(), model["w"].numpy().T)


def test_transposition_in_several_blocks(monkeypatch: pytest.MonkeyPatch, stored: Tensor) -> None:
    monkeypatch.setattr("holdall.model.casts._BLOCK", 1 << 11)
    assert np.array_equal(transpose(stored).numpy(), VALUES.T)


def test_a_cast_in_several_blocks(monkeypatch: pytest.MonkeyPatch, stored: Tensor) -> None:
    monkeypatch.setattr("holdall.model.casts._BLOCK", 100)
    assert np.array_equal(cast(stored, find_dtype("f64")).numpy(), VALUES.astype(np.float64))
