"""Many small tensors of one form are measured together: the same statistics, to the last bit, with few reads."""

import json
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import holdall
from holdall import Tensor
from holdall.cli import main
from holdall.operations.preview import preview_tensor
from holdall.operations.stats import TensorStats, measure_rows, model_stats, tensor_stats
from holdall.source.file import FileSource
from tests.operations.test_stats import check

KINDS = [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float64, np.int32]
SIZES = [1, 2, 7, 8, 9, 64, 1000, 1024, 1025]


def make_rows(kind, size, chance):
    """Tensors as they are, and such as break shortcuts: not finite, tiny, huge, constant, with signed zeros."""
    usual = chance.standard_normal((24, size))
    usual[1] = 0.5
    usual[2, size // 2] = np.nan
    usual[3, 0] = np.inf
    usual[4, : size // 2 + 1] = -0.0
    usual[5] *= 1e-38
    usual[6] *= 1e38
    usual[7] = np.abs(usual[7]) * 10.0 ** chance.integers(-6, 6, size)
    usual[8] = chance.integers(-3, 4, size)
    usual[9] = 0
    if np.dtype(kind).kind == "i":
        usual = np.clip(np.nan_to_num(usual), -1000, 1000)
    with np.errstate(over="ignore"):
        return usual.astype(kind)


@pytest.fixture(scope="module")
def crowd(tmp_path_factory):
    chance = np.random.default_rng(11)
    content = {
        f"{np.dtype(kind).name}.{size}.{number}": row if size % 2 else row.reshape(2, -1)
        for kind in KINDS
        for size in SIZES
        for number, row in enumerate(make_rows(kind, size, chance))
    }
    path = tmp_path_factory.mktemp("crowd") / "crowd.safetensors"
    holdall.save(path, content)
    return path, content


@pytest.mark.parametrize("bins", [0, 1, 10])
def test_together_as_alone(crowd, bins):
    path, content = crowd
    with holdall.open(path) as model:
        found = {tensor.name: stats for tensor, stats in model_stats(model, bins=bins)}
    assert set(found) == set(content)
    for name, values in content.items():
        assert repr(found[name]) == repr(tensor_stats(Tensor.of(name, values), bins)), name
        if bins and values.size <= 64:
            check(values.astype(np.float32) if values.dtype.itemsize <= 2 else values, found[name], bins,
                  is_small=values.dtype.itemsize <= 2)  # fmt: skip


def test_previews_are_those_of_single_tensors(crowd):
    path, _ = crowd
    with holdall.open(path) as model:
        previews = {row: preview for row, _, preview in measure_rows(model, previews=True)}
        seen = {row: preview for row, preview in previews.items() if preview is not None}
        assert len(seen) > 200
        for row, preview in seen.items():
            assert repr(preview) == repr(preview_tensor(model.tensors[row]))


def test_rows_in_another_order(crowd):
    path, content = crowd
    rows = [len(content) - 1, *range(260, 20, -1)]
    with holdall.open(path) as model:
        names = model.tensors.names
        found = [(row, stats) for row, stats, _ in measure_rows(model, rows)]
        assert [row for row, _ in found] == rows
        for row, stats in found:
            assert repr(stats) == repr(tensor_stats(Tensor.of("w", content[names[row]])))


@pytest.mark.parametrize("format", ["npz", "safetensors", "oinf"])
def test_small_tensors_take_few_reads(tmp_path, monkeypatch, format):
    values = np.random.default_rng(0).standard_normal((2000, 16), np.float32)
    path = tmp_path / "many"
    holdall.save(path, {f"w{row}": values[row] for row in range(2000)}, format=format)
    reads = []
    read_into = FileSource.read_into
    with holdall.open(path) as model:
        monkeypatch.setattr(FileSource, "read_into", lambda *given: reads.append(given[1]) or read_into(*given))
        found = {model.tensors.names[row]: stats for row, stats, _ in measure_rows(model, previews=True)}
    assert all(isinstance(stats, TensorStats) for stats in found.values())
    assert [found[f"w{row}"].max for row in range(2000)] == values.max(axis=1).tolist()
    assert len(reads) < 100


def test_a_truncated_file_is_still_an_error(tmp_path):
    path = tmp_path / "w.safetensors"
    holdall.save(path, {f"w{row}": np.full(16, row, np.float32) for row in range(100)})
    with holdall.open(path, mmap=False) as model:
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size - 64)
        with pytest.raises(holdall.HoldallError):
            list(model_stats(model))


def test_what_ls_and_verify_print(crowd):
    path, content = crowd

    def call(*words):
        return CliRunner().invoke(main, [*words, str(path), "--stats", "--json"]).output

    listed = {row["name"]: row for row in map(json.loads, call("ls").splitlines())}
    summary = {row["name"]: row for row in json.loads(call("verify"))["stats"]}
    assert list(listed) == list(summary) and set(listed) == set(content)
    for name, values in content.items():
        stats = tensor_stats(Tensor.of(name, values))
        assert listed[name]["max"] == summary[name]["max"] == stats.max
        assert [part[2] for part in summary[name]["histogram"]] == [part.count for part in stats.histogram]


@settings(max_examples=300, deadline=None)
@given(
    values=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=40),
    bins=st.integers(1, 40),
)
def test_borders_are_those_of_equal_bins(values, bins):
    low, high = Fraction(min(values)), Fraction(max(values))
    borders = {float(low + (high - low) * part / bins) for part in range(bins + 1)}
    for kind in (np.float32, np.float64):
        found = tensor_stats(Tensor.of("w", np.array(values, kind)), bins)
        assert {end for part in found.histogram for end in (part.low, part.high)} <= borders


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=2))
def test_the_median_of_two_numbers_is_rounded_once(values):
    exact = (Fraction(values[0]) + Fraction(values[1])) / 2
    assert tensor_stats(Tensor.of("w", np.array(values))).median == float(exact)
