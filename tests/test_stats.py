"""Statistics against numpy and exact arithmetic, on inputs made to break them."""

import math
import statistics
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import holdall
from holdall import Tensor, oinf, selection, stats
from holdall.dtypes import DTYPES
from holdall.stats import TensorStats, tensor_stats

STEP = Fraction(5e-324)  # the distance of the smallest numbers


@pytest.fixture(params=["few", "many"])
def small_steps(request, monkeypatch):
    """With tiny blocks and almost nothing gathered, a few elements go the way of a billion."""
    if request.param == "many":
        monkeypatch.setattr(stats, "_BLOCK", 16)
        monkeypatch.setattr(selection, "_FEW", 2)


def check(values, found, bins=10):
    """Everything, against exact arithmetic."""
    flat = values.reshape(-1)
    wide = flat.astype(np.float64) if flat.dtype.kind not in "iub" else flat
    assert found.count == flat.size
    assert found.nan == int(np.isnan(wide).sum())
    assert found.inf == int(np.isinf(wide).sum())
    numbers = sorted(wide[np.isfinite(wide)].tolist())
    if not numbers:
        assert (found.min, found.max, found.mean, found.median, found.std, found.histogram) == (None,) * 5 + ((),)
        return
    exact = [Fraction(number) for number in numbers]
    mean = sum(exact) / len(exact)
    variance = sum((number - mean) ** 2 for number in exact) / len(exact)
    largest = max(abs(number) for number in exact)
    assert (found.min, found.max) == (numbers[0], numbers[-1])
    assert found.median == float(statistics.median(exact))
    assert abs(Fraction(found.mean) - mean) <= largest / 10**14 + STEP
    assert abs(Fraction(found.std) - root(variance)) <= max(root(variance) / 10**9, largest / 10**13) + STEP
    check_histogram(numbers, found, flat.dtype.kind in "iub", bins)


def root(value):
    """The square root of any fraction, to many digits."""
    scale = 10 ** (2 * (320 + 40))
    return Fraction(math.isqrt(int(value * scale)), math.isqrt(scale))


def check_histogram(numbers, found, integer, bins):
    histogram = found.histogram
    assert sum(each.count for each in histogram) == len(numbers)
    assert all(each.count for each in histogram)
    if integer and numbers[-1] - numbers[0] <= 20:
        assert {each.low: each.count for each in histogram} == {n: numbers.count(n) for n in set(numbers)}
        return
    assert len(histogram) <= bins
    for each in histogram:
        last = each is histogram[-1]  # it holds the largest number, so it is never left out
        assert each.count == sum(each.low <= n < each.high or (last and n == each.high) for n in numbers)


FLOATS = st.sampled_from([np.float16, np.float32, np.float64]).flatmap(
    lambda kind: arrays.arrays(kind, st.integers(0, 80))
)
INTEGERS = st.sampled_from([np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]).flatmap(
    lambda kind: arrays.arrays(kind, st.integers(0, 80))
)


@settings(max_examples=300, deadline=None)
@given(values=FLOATS | INTEGERS, bins=st.integers(1, 12))
def test_against_exact_arithmetic(values, bins):
    check(values, tensor_stats(Tensor.of("w", values), bins), bins)


@settings(max_examples=150, deadline=None)
@given(values=FLOATS | INTEGERS)
def test_in_many_steps(values):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stats, "_BLOCK", 16)
        patch.setattr(selection, "_FEW", 2)
        check(values, tensor_stats(Tensor.of("w", values)))


ADVERSARIAL = {
    "offset": np.float64(1e16) + np.arange(64) * 2,
    "huge": np.array([1.7e308, -1.7e308, 1.6e308, 1e300] * 20),
    "tiny": np.array([5e-324, -5e-324, 1e-310, 0.0] * 20),
    "signed zeros": np.array([-0.0, 0.0] * 30),
    "constant": np.full(100, 0.1),
    "one outlier": np.append(np.zeros(99), 1e300),
    "same upper half": np.float32(1) + np.arange(100, dtype=np.float32) * np.float32(2**-23),
    "same upper 48 bits": 1.0 + np.arange(100) * 2.0**-52,
    "large integers": np.arange(100, dtype=np.int64) + 2**62,
    "extreme integers": np.array([-(2**63), 2**63 - 1, 0, 1] * 20),
    "unsigned extremes": np.array([0, 2**64 - 1, 2**63] * 20, np.uint64),
    "nan and inf": np.array([np.nan, np.inf, -np.inf, 1.0, 2.0] * 20, np.float32),
    "no number": np.array([np.nan, np.inf], np.float64),
    "range of 20": np.arange(21, dtype=np.int64) - 10,
    "range of 21": np.arange(22, dtype=np.int32) - 10,
    "one": np.array([3], np.int32),
    "float edges": np.repeat(np.arange(11.0), 7),
}


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_adversarial(name):
    check(ADVERSARIAL[name], tensor_stats(Tensor.of("w", ADVERSARIAL[name])))


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("name", ["i4", "i2", "i1", "u4", "u2", "u1", "t2", "t1", "bool", "bf16", "f8_e5m2", "f8_e4m3"])
def test_every_small_type(name):
    dtype = DTYPES[name]
    low, high = dtype.range or (-3, 3)
    values = np.random.default_rng(3).integers(low, high + 1, 203)
    if name == "t1":
        values[values == 0] = 1
    found = tensor_stats(Tensor.of("w", values, name))
    check(values if dtype.kind != "float" else values.astype(np.float32), found)


def test_scalars_empty_and_declared():
    assert tensor_stats(Tensor.of("w", np.float32(2.5))) == TensorStats(
        1, 0, 0, 2.5, 2.5, 2.5, 2.5, 0.0, (stats.Bin(2.5, 2.5, 1),)
    )
    assert tensor_stats(Tensor.of("w", np.zeros((0, 3)))) == TensorStats(0)
    declared = oinf.model({"w": oinf.Uninitialized("f32", (4, 5))})["w"]
    assert tensor_stats(declared) == TensorStats(20)


def test_complex_numbers_are_refused():
    with pytest.raises(holdall.UnsupportedError, match="complex"):
        tensor_stats(Tensor.of("w", np.zeros(2, np.complex64)))
    with pytest.raises(ValueError, match="bin"):
        tensor_stats(Tensor.of("w", np.zeros(2)), bins=0)


def test_large_tensors_agree_with_numpy(tmp_path):
    """Several blocks from a file, gathered and counted."""
    values = np.random.default_rng(5).standard_normal(3_000_001).astype(np.float32)
    values[1_000_000:2_500_000] = 1.0  # more than are gathered share all their upper bits
    holdall.save(tmp_path / "w.oinf", {"w": values}, fsync=False)
    steps = []
    with holdall.open(tmp_path / "w.oinf", mmap=False) as model:
        found = tensor_stats(model["w"], progress=lambda done, total: steps.append((done, total)))
    assert found.median == np.median(values)
    assert (found.min, found.max) == (values.min(), values.max())
    assert found.mean == pytest.approx(values.mean(dtype=np.float64), rel=1e-12)
    assert found.std == pytest.approx(values.std(dtype=np.float64), rel=1e-12)
    counts, _ = np.histogram(values.astype(np.float64), 10)
    assert [each.count for each in found.histogram] == counts[counts > 0].tolist()
    assert steps[-1][0] == steps[-1][1]
    assert steps == sorted(steps)


def test_encoded_tensors_are_decoded():
    values = np.linspace(-1, 1, 512, dtype=np.float32).reshape(2, 256)
    tensor = holdall.quant.quantize(values, "k4").tensor("w")
    check(tensor.numpy(), tensor_stats(tensor))
