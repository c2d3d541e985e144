"""Statistics of tensors larger than every buffer, and of whole models, whatever the number of threads."""

import math
from fractions import Fraction

import numpy as np
import pytest

import holdall
from holdall import Tensor, oinf
from holdall.base.parallel import use_threads
from holdall.model.dtypes import DTYPES
from holdall.model.payload import Computed, InMemory
from holdall.operations.stats import model_stats, tensor_stats


def check_borders(values, found, bins=10):
    """The counts between the borders that are stated, and how far these are from equal bins."""
    borders = [each.low for each in found.histogram] + [found.histogram[-1].high]
    counts, _ = np.histogram(values[np.isfinite(values)].astype(np.float64), borders)
    assert [each.count for each in found.histogram] == counts.tolist()
    assert (borders[0], borders[-1]) == (found.min, found.max)
    span = Fraction(found.max) - Fraction(found.min)
    equal = [Fraction(found.min) + span * Fraction(part, bins) for part in range(bins + 1)]
    for border in borders:
        assert min(abs(Fraction(border) - other) for other in equal) <= span / 256


def test_large_tensors_agree_with_numpy(tmp_path):
    """Several blocks from a file; too many elements for a median."""
    values = np.random.default_rng(5).standard_normal(3_000_001).astype(np.float32)
    values[1_000_000:2_500_000] = 1.0
    holdall.save(tmp_path / "w.oinf", {"w": values}, fsync=False)
    steps = []
    with holdall.open(tmp_path / "w.oinf", mmap=False) as model:
        found = tensor_stats(model["w"], progress=lambda done, total: steps.append((done, total)))
    assert found.median is None
    assert (found.min, found.max) == (values.min(), values.max())
    assert found.mean == pytest.approx(values.mean(dtype=np.float64), rel=1e-12)
    assert found.std == pytest.approx(values.std(dtype=np.float64), rel=1e-12)
    check_borders(values, found)
    assert steps[-1][0] == steps[-1][1]
    assert steps == sorted(steps)


@pytest.mark.parametrize(("dtype", "count", "has_median"), [
    (np.float32, 1 << 20, True), (np.int64, 1 << 20, True), (np.float32, (1 << 20) + 1, False),
    (np.int64, (1 << 20) + 1, False), (np.float16, (1 << 22) + 1, True), (np.int8, (1 << 22) + 1, True),
])  # fmt: skip
def test_the_median_is_exact_or_left_out(dtype, count, has_median):
    values = np.random.default_rng(6).integers(-100, 100, count).astype(dtype)
    found = tensor_stats(Tensor.of("w", values))
    assert found.median == (np.median(values.astype(np.float64)) if has_median else None)


LARGE = {
    "f32": lambda random: random.standard_normal(2_100_001).astype(np.float32),
    "f32 far from zero": lambda random: (1000 + random.standard_normal(2_100_001)).astype(np.float32),
    "f32 with gaps": lambda random: np.where(
        random.random(2_100_001) < 0.01, random.choice([np.nan, np.inf, -np.inf, -0.0]), random.random(2_100_001)
    ).astype(np.float32),
    "f32 that begins with NaN": lambda random: np.append(np.nan, random.random(2_100_001)).astype(np.float32),
    "f32 below all normal numbers": lambda random: random.integers(1, 1 << 22, 1_100_003).astype(np.uint32).view("f4"),
    "f64": lambda random: random.standard_normal(1_100_003) * 1e-5,
    "f64 near the largest": lambda random: (random.random(1_100_003) * 2 - 1) * 1.7e308,
    "f64 near the smallest": lambda random: random.random(1_100_003) * 1e-310,
    "i32": lambda random: random.integers(-(2**31), 2**31, 2_100_001).astype(np.int32),
    "i32 of a few values": lambda random: random.integers(10**9, 10**9 + 21, 2_100_001).astype(np.int32),
    "u32": lambda random: random.integers(0, 50_000, 2_100_001).astype(np.uint32),
    "i64": lambda random: random.integers(-(2**63), 2**63 - 1, 1_100_003),
    "i64 far from zero": lambda random: random.integers(2**62, 2**62 + 1000, 1_100_003),
    "u64": lambda random: random.integers(0, 2**64 - 1, 1_100_003, np.uint64),
}


@pytest.mark.parametrize("name", LARGE)
def test_more_than_fits_a_buffer(name):
    values = LARGE[name](np.random.default_rng(8))
    with use_threads(1):
        found = tensor_stats(Tensor.of("w", values))
    finite = values[np.isfinite(values)]
    assert (found.min, found.max) == (finite.min(), finite.max())
    assert (found.nan, found.inf) == (np.isnan(values).sum(), np.isinf(values).sum())
    assert found.zeros == (values == 0).sum()
    check_moments(finite, found)
    if name == "i32 of a few values":
        expected = dict(zip(*(each.tolist() for each in np.unique(values, return_counts=True)), strict=True))
        assert {each.low: each.count for each in found.histogram} == expected
    elif values.dtype.itemsize < 8 or values.dtype.kind == "f":
        check_borders(values, found)
    else:
        starts = np.array([each.low for each in found.histogram], values.dtype)
        at = np.searchsorted(starts, values, "right") - 1
        assert np.bincount(at).tolist() == [each.count for each in found.histogram]
    for threads in (2, 5):
        with use_threads(threads):
            assert tensor_stats(Tensor.of("w", values)) == found


def check_moments(values, found):
    """Mean and standard deviation against exact sums: every value is a whole number of the smallest step."""
    if values.dtype.kind == "f":
        exponent = max(math.frexp(values.min())[1], math.frexp(values.max())[1])
        scaled = [float(value) for value in np.ldexp(values.astype(np.float64), -exponent).tolist()]
        origin, unit = Fraction(0), Fraction(2) ** exponent
    else:
        origin, unit = Fraction(found.min), Fraction(1)
        scaled = [value - found.min for value in values.tolist()]
    total = sum(scaled) if values.dtype.kind != "f" else math.fsum(scaled)
    mean = Fraction(total) / len(scaled)
    assert abs(Fraction(found.mean) - (origin + mean * unit)) <= max(abs(mean), 1) * unit * Fraction(1e-13) + abs(
        origin
    ) * Fraction(1e-15)
    middle = float(mean)
    std = math.sqrt(math.fsum((value - middle) ** 2 for value in scaled) / len(scaled))
    assert float(Fraction(found.std) / unit) == pytest.approx(std, rel=1e-11)


@pytest.mark.parametrize("name", ["bf16", "f16", "u8", "i4", "f6_e2m3", "bool"])
def test_small_types_of_more_than_a_piece(name):
    """Against the decoded values, from memory and from a computation."""
    dtype = DTYPES[name]
    data = np.random.default_rng(9).integers(0, 256, 9_000_004, dtype=np.uint8).tobytes()
    count = 8 * len(data) // dtype.bits - (3 if dtype.packed else 0)
    data = data[: dtype.nbytes((count,))]
    step = 777_777
    made = Computed(len(data), lambda: (data[at : at + step] for at in range(0, len(data), step)))
    one, other = (tensor_stats(Tensor("w", dtype, (count,), payload)) for payload in (InMemory(data), made))
    assert one == other
    with np.errstate(invalid="ignore"):
        values = dtype.decode(memoryview(data), (count,)).astype(np.float64)
    finite = values[np.isfinite(values)]
    assert (one.count, one.nan, one.inf) == (count, np.isnan(values).sum(), np.isinf(values).sum())
    assert (one.zeros, one.min, one.max) == ((finite == 0).sum(), finite.min(), finite.max())
    assert one.median == np.median(finite)
    assert one.mean == pytest.approx(finite.mean(), rel=1e-9, abs=abs(finite).max() * 1e-12)
    assert one.std == pytest.approx(finite.std(), rel=1e-9)
    assert sum(each.count for each in one.histogram) == finite.size
    for threads in (1, 5):
        with use_threads(threads):
            assert tensor_stats(Tensor("w", dtype, (count,), InMemory(data))) == one


def test_equal_bins_and_a_median_up_to_a_million_elements():
    values = np.random.default_rng(3).standard_normal(1 << 20).astype(np.float32) * 7 + 3
    found = tensor_stats(Tensor.of("w", values))
    counts, borders = np.histogram(values.astype(np.float64), 10)
    assert [each.count for each in found.histogram] == counts.tolist()
    assert [each.low for each in found.histogram] == pytest.approx(borders[:-1])
    assert found.median == np.median(values.astype(np.float64))


def test_without_bins_there_is_neither_histogram_nor_median():
    for dtype in (np.float32, np.float16, np.int64):
        for count in (5, 10_000, 2_000_000):
            values = (np.arange(count) % 1000).astype(dtype)
            full, short = (tensor_stats(Tensor.of("w", values), bins) for bins in (10, 0))
            assert (short.median, short.histogram) == (None, ())
            assert (short.mean, short.std, short.min, short.max) == (full.mean, full.std, full.min, full.max)
            assert short.zeros == full.zeros == -(-count // 1000)


def save_many(path, random):
    """Many small tensors, some large ones and one of each kind that has none."""
    tensors = {f"small.{row}": random.standard_normal(row).astype(np.float32) for row in range(200)}
    tensors |= {f"large.{row}": random.standard_normal(1_500_000 + row).astype(np.float32) for row in range(3)}
    tensors |= {"empty": np.zeros(0), "half": random.standard_normal(3_000_000).astype(np.float16)}
    tensors |= {"complex": np.zeros(3, np.complex64), "huge": random.random(1_100_000) * 1e300}
    holdall.save(path, tensors, fsync=False)


@pytest.mark.parametrize("suffix", ["safetensors", "npz", "oinf"])
def test_a_model_in_file_order_whatever_the_threads(tmp_path, suffix):
    path = tmp_path / f"m.{suffix}"
    if suffix == "oinf":
        holdall.save(path, oinf.model({"d": oinf.Uninitialized("f32", (4, 5)), "w": np.ones(3)}), fsync=False)
    else:
        save_many(path, np.random.default_rng(4))
    with holdall.open(path) as model:
        found = []
        for threads in (1, 2, 5):
            steps = []
            with use_threads(threads):
                rows = list(model_stats(model, progress=lambda done, total, steps=steps: steps.append((done, total))))
            found.append([(tensor.name, stats) for tensor, stats in rows])
            assert steps == sorted(steps)
            assert steps[-1] == (model.nbytes, model.nbytes)
        assert found[0] == found[1] == found[2]
        assert [name for name, _ in found[0]] == list(model)
        for name, stats in found[0]:
            if name == "complex":
                assert stats == "tensor 'complex': complex numbers have no order, hence no statistics"
            else:
                assert stats == tensor_stats(model[name])
        chosen = [name for name in ("small.7", "large.1", "d") if name in model]
        assert [tensor.name for tensor, _ in model_stats(model, chosen)] == chosen


def test_a_model_may_be_left_before_its_end(tmp_path):
    save_many(tmp_path / "m.safetensors", np.random.default_rng(4))
    with holdall.open(tmp_path / "m.safetensors") as model, use_threads(3):
        rows = model_stats(model)
        assert next(rows)[1].count == next(iter(model.tensors)).count
        rows.close()
        assert next(model_stats(model, ["small.9"]))[1].count == 9


@pytest.mark.parametrize("method", ["k4", "q8"])
def test_encoded_tensors_of_many_rows(method):
    values = np.random.default_rng(1).standard_normal((5000, 512)).astype(np.float32)
    tensor = holdall.quant.quantize(values, method).tensor("w")
    found = tensor_stats(tensor)
    decoded = tensor.numpy()
    assert (found.min, found.max, found.zeros) == (decoded.min(), decoded.max(), (decoded == 0).sum())
    assert found.mean == pytest.approx(decoded.mean(dtype=np.float64), rel=1e-9)
    assert found.std == pytest.approx(decoded.std(dtype=np.float64), rel=1e-9)
    check_borders(decoded.reshape(-1), found)
    with use_threads(1):
        assert tensor_stats(tensor) == found
