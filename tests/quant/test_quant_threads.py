"""Quantizing and decoding on several threads: the same bytes, the same values and the same messages for any number."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import holdall
from holdall.base.parallel import use_threads
from holdall.model.model import model_of
from holdall.model.payload import Computed
from holdall.quant import METHODS, measure, payloads, quantize, quantize_model
from holdall.quant.model import quantize_tensor

TYPES = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f64": np.float64,
    "f8": ml_dtypes.float8_e5m2,
}
SHAPES = [(1, 1), (3, 8197), (1031, 77), (515, 2048)]  # the last two take several jobs


def matrix(shape, kind, seed=3):
    return np.random.default_rng(seed).normal(0, 0.7, shape).astype(np.float32).astype(TYPES[kind])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("method", ["k4", "q8", "k3", "int4", "int8"])
def test_payloads_do_not_depend_on_threads(tmp_path, monkeypatch, method, kind, shape):
    values = matrix(shape, kind)
    wanted = quantize(values.astype(np.float32), method, mode="ieee", threads=1)
    holdall.save(tmp_path / "m.npz" if kind == "f64" else tmp_path / "m.safetensors", {"w": values})
    for size in ("_SEARCHED", "_QUICK"):
        monkeypatch.setattr(payloads, size, 20_000)
    with holdall.open(next(tmp_path.iterdir())) as model:
        for threads in (1, 2, 5):
            assert bytes(quantize(values, method, mode="ieee", threads=threads).payload) == bytes(wanted.payload)
            for held in (32 << 20, 0):  # in memory, and in two passes
                monkeypatch.setattr(payloads, "_HELD", held)
                tensor = quantize_tensor(model["w"], METHODS[method], mode="ieee", threads=threads)
                assert bytes(tensor.raw()) == bytes(wanted.payload)
                assert (tensor.native.min_clip, tensor.native.max_clip) == wanted.clip


@pytest.mark.parametrize("method", ["k4", "q4", "int8"])
def test_a_search_does_not_depend_on_threads(monkeypatch, method):
    values = matrix((700, 1100), "bf16")
    made = {bytes(quantize(values, method, threads=threads).payload) for threads in (1, 2, 5)}
    for threads in (1, 2, 5):
        for held in (32 << 20, 0):
            monkeypatch.setattr(payloads, "_HELD", held)
            with use_threads(threads):
                made.add(bytes(quantize_model(model_of({"w": values}), method)["w"].raw()))
    assert len(made) == 1


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("computed", [False, True])
def test_the_first_value_that_is_not_finite_is_named(kind, threads, computed):
    spoiled = {name: matrix((2000, 1100), kind, seed) for seed, name in enumerate("abc")}
    spoiled["b"][1999, 7] = np.inf
    spoiled["b"][1998, 1099] = np.nan
    spoiled["c"][0, 0] = np.nan
    model = model_of(spoiled)
    if computed:  # read by one thread, since nothing else can be
        tensors = [t.replace(payload=Computed(t.nbytes, lambda t=t: [t.raw()])) for t in model.tensors]
        model = model.replace(tensors=tensors)
    with pytest.raises(holdall.ContentError, match=r"^tensor 'b': the value at \[1998, 1099\] is nan, which cannot"):
        quantize_model(model, "k4", threads=threads)


@pytest.mark.parametrize("method", METHODS)
def test_decoded_values_do_not_depend_on_threads(method):
    made = quantize(matrix((2500, 1001), "f32"), method, mode="ieee")
    found = []
    for threads in (1, 2, 5):
        with use_threads(threads):
            found.append(made.numpy())
    assert found[0].shape == (2500, 1001)
    assert np.abs(found[0] - matrix((2500, 1001), "f32")).max() < 3
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()
    rows = made.tensor("w")[1200:1203]
    assert rows.tobytes() == found[0][1200:1203].tobytes()


def test_many_small_tensors_are_those_of_arrays():
    arrays = {f"w{number}": matrix((5 + number, 300), "bf16", number) for number in range(40)}
    seen = []
    small = quantize_model(model_of(arrays), "k4", threads=3, progress=lambda done, total: seen.append((done, total)))
    for name, values in arrays.items():
        assert bytes(small[name].raw()) == bytes(quantize(values, "k4").payload)
    sizes = [values.nbytes for values in arrays.values()]
    assert seen == [(sum(sizes[: number + 1]), sum(sizes)) for number in range(40)]


@pytest.mark.parametrize("method", ["k4", "int4"])
def test_measures_do_not_depend_on_threads(method):
    values = matrix((1100, 1003), "bf16")
    made = quantize(values, method, mode="ieee")
    apart = values.astype(np.float64) - made.numpy()
    found = []
    for threads in (1, 2, 5):
        with use_threads(threads):
            found += [measure(values, made), measure(model_of({"w": values})["w"], made.tensor("w"))]
    assert found == found[:1] * 6  # to the bit
    assert found[0].max_error == np.abs(apart).max()
    assert np.isclose(found[0].rmse, np.sqrt(np.square(apart).mean()), rtol=1e-12)
