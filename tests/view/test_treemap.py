"""What the colours of the treemap say, without a browser."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import holdall
from holdall.viewer.comparison import Comparison
from holdall.viewer.shading import Errors, Statistic, count_elements, find_ends
from holdall.viewer.statistics import Statistics
from holdall.viewer.treemap import draw_treemap


def shade(model, name):
    statistics = Statistics(model)
    statistics.measure()
    return Statistic(statistics.columns[name], count_elements(model))


@pytest.fixture
def embedder():
    """Weights of small spread, and a tensor of positions whose spread is thousands of times that."""
    random = np.random.default_rng(0)
    tensors = {"embeddings.position_ids": np.arange(512).reshape(1, 512)}
    for layer in range(6):
        tensors[f"layer.{layer}.w"] = random.normal(0, 0.02 + 0.01 * layer, (256, 256)).astype(np.float32)
        tensors[f"layer.{layer}.norm"] = np.ones(256, np.float32)
    return holdall.Model([holdall.Tensor.of(*each) for each in tensors.items()])


def test_a_small_tensor_does_not_set_the_ends_of_the_scale(embedder):
    figure = draw_treemap(embedder, "", shade(embedder, "std"))
    scale = figure["layout"]["meta"]
    assert scale["high"] == pytest.approx(0.07, rel=0.02) and scale["low"] == pytest.approx(0.02, rel=0.02)
    assert scale["above"] and scale["below"]  # position_ids, and the norms
    trace = figure["data"][0]
    weights = [color for id, color in zip(trace["ids"], trace["marker"]["colors"], strict=True) if id.startswith("row")]
    assert len(set(weights)) >= 6


def test_a_scale_without_anything_beyond_it_says_so():
    model = holdall.Model([holdall.Tensor.of(f"h.{n}", np.full(64, n, np.float32)) for n in range(5)])
    scale = draw_treemap(model, "", shade(model, "mean"))["layout"]["meta"]
    assert scale == {"low": 0.0, "high": 4.0, "below": False, "above": False}


@pytest.mark.parametrize(
    ("values", "sizes", "ends"),
    [
        ([3.0], [10], (3.0, 3.0)),
        ([], [], (0.0, 1.0)),
        ([np.nan, np.inf], [1, 1], (0.0, 1.0)),
        ([1.0, 2.0, np.nan], [1, 1, 1e9], (1.0, 2.0)),
        ([1.0, 2.0], [0, 0], (1.0, 2.0)),
        ([-1e308, 1e308], [1, 1], (-1e308, 1e308)),
        ([5.0, 1.0, 9.0], [96, 2.1, 1.9], (1.0, 5.0)),
    ],
)
def test_the_ends_of_a_scale_are_counted_by_bytes(values, sizes, ends):
    assert find_ends(np.array(values, float), np.array(sizes, float)) == ends


def test_a_branch_has_the_mean_by_elements():
    model = holdall.Model([
        holdall.Tensor.of("h.large", np.full((100, 100), 2.0, np.float32)),
        holdall.Tensor.of("h.small", np.full(100, 300.0, np.float32)),
        holdall.Tensor.of("other", np.zeros(4, np.float32)),
    ])  # fmt: skip
    expected = (10_000 * 2.0 + 100 * 300.0) / 10_100
    assert shade(model, "mean").average([0, 1]) == pytest.approx(expected)
    texts = draw_treemap(model, "", shade(model, "mean"))["data"][0]["hovertext"]
    assert any(f"mean {expected:.4g}" in text for text in texts)


@pytest.mark.parametrize("values", [[1e308, 1e308], [np.nan, 4.0], [np.nan, np.nan], [np.inf, 1.0]])
def test_a_mean_is_finite_whatever_the_values(values):
    found = Statistic(np.array(values), np.array([1.0, 3.0])).average([0, 1])
    known = [value for value in values if np.isfinite(value)]
    assert found == pytest.approx(known[0] if known else np.nan, nan_ok=True)


def compare(a, b):
    models = [holdall.Model([holdall.Tensor.of(*each) for each in side.items()]) for side in (a, b)]
    comparison = Comparison(*models)
    comparison.task.start()
    comparison.task.wait()
    assert comparison.task.state == "done", comparison.task.message
    return comparison


def test_the_error_of_a_branch_is_that_of_the_layer_beside_it():
    random = np.random.default_rng(1)
    a = {f"h.{n}.attn.{part}": random.normal(0, scale, (40, size)) for n in range(3)
         for part, scale, size in (("q", 1, 40), ("k", 30, 10), ("o", 0.01, 80))}  # fmt: skip
    b = {name: values + random.normal(0, 0.1, values.shape) for name, values in a.items()}
    b["h.1.attn.o"] = a["h.1.attn.o"]
    a["h.2.attn.k"] = np.zeros((40, 10))
    comparison = compare(a, b)
    layers = {part.layer: part.error for part in comparison.list_layers()}
    names = list(a)
    for layer, error in layers.items():
        rows = [at for at, name in enumerate(names) if name.startswith(layer)]
        apart = [name for name in names if name.startswith(layer) and b[name] is not a[name]]
        noise = sum(((a[name] - b[name]) ** 2).sum() for name in apart)
        assert error == pytest.approx(np.sqrt(noise / sum((a[name] ** 2).sum() for name in apart)))
        assert comparison.shade().average(rows) == pytest.approx(error)


def test_errors_are_those_of_the_model_that_is_shown():
    """The second model has as many tensors as the first, in another order."""
    a = {"x": np.ones(100), "y": np.full(100, 2.0)}
    b = {"y": np.full(100, 2.0), "x": np.full(100, 1.5)}
    comparison = compare(a, b)
    assert [comparison.shade(0).average([row]) for row in (0, 1)] == pytest.approx([0.5, 0])
    assert [comparison.shade(1).average([row]) for row in (0, 1)] == pytest.approx([0, 0.5])


@pytest.mark.parametrize("top", [1e200, 1e-200, 1e-320, 1.7e308])
def test_errors_of_numbers_near_the_ends_of_float64_raise_nothing(top):
    a = {"h.0.w": np.full(50, top), "h.0.v": np.ones(50)}
    b = {"h.0.w": np.full(50, top / 2), "h.0.v": np.full(50, 1.25)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        comparison = compare(a, b)
        comparison.list_layers()
        comparison.shade().average([0, 1])
        comparison.list_pairs()


def test_equal_tensors_have_no_error_and_unknown_ones_none_that_is_known():
    equal = Errors(np.array([-np.inf, np.nan]), np.array([-np.inf, -np.inf]))
    assert equal.average([0]) == 0 and np.isnan(equal.average([1])) and equal.average([0, 1]) == 0
