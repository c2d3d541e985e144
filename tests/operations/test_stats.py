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
from holdall import Tensor, oinf
from holdall.model.dtypes import DTYPES
from holdall.operations.stats import Bin, TensorStats, codes, tensor_stats
from holdall.operations.stats import numbers as wide

STEP = Fraction(5e-324)  # the distance of the smallest numbers


def take_small_steps(patch):
    """With tiny pieces, a few elements are read in as many steps as a billion."""
    patch.setattr(codes, "PIECE", 24)
    patch.setattr(codes, "_FEW", 0)
    patch.setattr(wide, "_PIECE", 24)
    patch.setattr(wide, "HELD", 8)


@pytest.fixture(params=["few", "many"])
def small_steps(request, monkeypatch):
    if request.param == "many":
        take_small_steps(monkeypatch)


def check(values, found, bins=10, is_small=False):
    """Everything, against exact arithmetic. ``is_small`` says that the tensor has elements of up to two bytes."""
    flat = values.reshape(-1)
    is_small = is_small or flat.dtype.itemsize <= 2
    large = flat.astype(np.float64) if flat.dtype.kind not in "iub" else flat
    assert found.count == flat.size
    assert found.nan == int(np.isnan(large).sum())
    assert found.inf == int(np.isinf(large).sum())
    numbers = sorted(large[np.isfinite(large)].tolist())
    assert found.zeros == numbers.count(0)
    if not numbers:
        assert (found.min, found.max, found.mean, found.median, found.std, found.histogram) == (None,) * 5 + ((),)
        return
    exact = [Fraction(number) for number in numbers]
    mean = sum(exact) / len(exact)
    variance = sum((number - mean) ** 2 for number in exact) / len(exact)
    largest = max(abs(number) for number in exact)
    assert (found.min, found.max) == (numbers[0], numbers[-1])
    median = statistics.median(exact)
    whole = isinstance(numbers[0], int) and median.denominator == 1  # then no digit is lost
    if is_small or flat.size <= wide.HELD:
        assert found.median == (median if whole else float(median))
    else:
        assert found.median is None
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
        take_small_steps(patch)
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
    "beyond the floats": np.arange(100, dtype=np.uint64) + (2**64 - 100),
    "between floats of 32 bits": np.array([0.1, 0.3, 0.7, 1.1] * 20, np.float32),
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
@pytest.mark.parametrize("name", [
    "i4", "i2", "i1", "u4", "u2", "u1", "t2", "t1", "bool", "bf16", "f8_e5m2", "f8_e4m3", "f8_e4m3fnuz", "f8_e5m2fnuz",
    "f6_e2m3", "f6_e3m2", "f4_e2m1",
])  # fmt: skip
def test_every_small_type(name):
    dtype = DTYPES[name]
    low, high = dtype.range or (-3, 3)
    values = np.random.default_rng(3).integers(low, high + 1, 203)
    if name == "t1":
        values[values == 0] = 1
    found = tensor_stats(Tensor.of("w", values, name))
    check(values if dtype.kind != "float" else values.astype(np.float32), found, is_small=True)


def test_scalars_empty_and_declared():
    assert tensor_stats(Tensor.of("w", np.float32(2.5))) == TensorStats(
        1, 0, 0, 0, 2.5, 2.5, 2.5, 2.5, 0.0, (Bin(2.5, 2.5, 1),)
    )
    assert tensor_stats(Tensor.of("w", np.zeros((0, 3)))) == TensorStats(0)
    declared = oinf.model({"w": oinf.Uninitialized("f32", (4, 5))})["w"]
    assert tensor_stats(declared) == TensorStats(20)


def test_complex_numbers_are_refused():
    with pytest.raises(holdall.UnsupportedError, match="complex"):
        tensor_stats(Tensor.of("w", np.zeros(2, np.complex64)))
    with pytest.raises(ValueError, match="bin"):
        tensor_stats(Tensor.of("w", np.zeros(2)), bins=-1)


def test_encoded_tensors_are_decoded():
    values = np.linspace(-1, 1, 512, dtype=np.float32).reshape(2, 256)
    tensor = holdall.quant.quantize(values, "k4").tensor("w")
    check(tensor.numpy(), tensor_stats(tensor))


ODD = [
    np.full(70_000, 3.5, np.float32),
    np.repeat([1.0, 1e30], 40_000),
    np.r_[np.zeros(60_000), -1, 1],
    np.r_[np.full(30_000, -0.0), np.zeros(30_000), 7],
    np.arange(50_000) + 2**62,
    np.r_[np.nan, np.arange(9000.0)],
    np.r_[np.full(5000, 1e-300), np.full(5001, 1e300)],
]


@pytest.mark.parametrize("values", ODD)
def test_the_median_of_odd_distributions(values):
    finite = values[np.isfinite(values)]
    middle = [Fraction(value) for value in np.sort(finite)[[(finite.size - 1) // 2, finite.size // 2]].tolist()]
    assert tensor_stats(Tensor.of("w", values)).median == float(sum(middle) / 2)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("span", [0, 1, 20, 21, 100])
def test_bins_hold_what_the_documentation_says(dtype, span):
    """From low on and below high, the last one with high, and a bin with equal ends that single value."""
    chance = np.random.default_rng(span)
    values = (chance.integers(0, span + 1, 3000) + (0.5 if dtype.startswith("f") else 0)).astype(dtype)
    for array in (values, np.repeat(values, 500)):  # with a median, and beyond every buffer
        bins = tensor_stats(Tensor.of("w", array), bins=10).histogram
        assert sum(each.count for each in bins) == array.size and all(each.count for each in bins)
        for number, (low, high, count) in enumerate((each.low, each.high, each.count) for each in bins):
            last = number == len(bins) - 1
            below = array == low if low == high else array <= high if last else array < high
            assert count == int(((array >= low) & below).sum()), (low, high)
