"""Quantizing arrays: accepted and refused input, and the values that come back."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import holdall
from holdall.model.tensor import Tensor
from holdall.quant import MCF, METHODS, encoding_of, find_method, measure, quantize

BLOCK_METHODS = [name for name, method in METHODS.items() if method.family != "int"]
every_method = pytest.mark.parametrize("name", METHODS)
every_block_method = pytest.mark.parametrize("name", BLOCK_METHODS)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.shows("M23")
def test_worked_example():
    row = np.array([[1, -0.5, 0.25, 0.1, 0, -1, 0.07, 0.9]], np.float32)
    heads = {
        "q4": ("9230", "", "d7129060"),
        "k4": ("9230", "20", "d7129060"),
        "q8": ("0820", "", "7fc0200d00810972"),
        "k6": ("2128", "20", "1f8c0c402870"),
        "k3": ("5535", "20", "738062"),
        "k2": ("003c", "20", "0d4c"),
    }
    for name, (scale, sub, codes) in heads.items():
        where = METHODS[name].lay_out_blocks((1, 8))
        payload = bytes(quantize(row, name, mode="reference").payload)
        assert payload[:2].hex() == scale
        assert payload[where.subs[0] : where.subs[1]].hex() == sub
        assert payload[where.codes[0] :].hex().startswith(codes)


@every_method
@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_floats_are_the_float32_they_stand_for(name, kind):
    v = normal(5, 100).astype(kind)
    assert bytes(quantize(v, name).payload) == bytes(quantize(v.astype(np.float32), name).payload)


@every_method
def test_threads_and_layout_of_the_input_change_nothing(name):
    v = normal(700, 600)
    one = bytes(quantize(v, name, threads=1).payload)
    assert bytes(quantize(v, name, threads=3).payload) == one
    assert bytes(quantize(np.asfortranarray(v), name).payload) == one
    assert bytes(quantize(v[::-1][::-1], name).payload) == one


@every_block_method
def test_partial_rows(name):
    v = normal(37, 333)
    q = quantize(v, name)
    tensor, everything = q.tensor("w"), q.numpy()
    assert str(tensor.dtype) == f"mcf.{name}"
    for key in (slice(3, 9), 5, slice(None, None, -4), (slice(30, 37), slice(7, 40)), (36, 332)):
        assert np.array_equal(tensor[key], everything[key])
    assert np.array_equal(np.concatenate(list(tensor.blocks(1000))), everything.reshape(-1))


@pytest.mark.parametrize("name", ["int8", "int4"])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 3, 4), (4, 6)])
@pytest.mark.parametrize("domain", ["weights", "activations"])
def test_one_scale(name, shape, domain):
    v = np.abs(normal(*shape)) + (1 if domain == "activations" else 0)
    q = quantize(v, name, domain=domain, mode="ieee")
    back = q.numpy()
    assert back.shape == shape
    assert back.dtype == np.float32
    span = float(np.max(v)) if domain == "activations" else 2 * float(np.max(v))
    assert np.abs(back - v).max() <= span / ((1 << METHODS[name].bits) - 2)
    tensor = q.tensor("x")
    if shape:
        assert np.array_equal(tensor[1:], back[1:])


@pytest.mark.shows("M25")
def test_activations_hold_zero_exactly():
    v = np.linspace(0.5, 9, 50, dtype=np.float32)
    v[7] = 0
    q = quantize(v, "int8", domain="activations")
    assert q.numpy()[7] == 0
    assert q.clip == (0.0, 9.0)
    assert quantize(np.full((2, 2), -3, np.float32), "int8", domain="activations", clip=(-3, -3)).numpy().tolist() == [
        [-3, -3],
        [-3, -3],
    ]


@every_method
def test_zeros_stay_zeros(name):
    q = quantize(np.zeros((3, 40), np.float32), name)
    assert not q.numpy().any()
    assert not np.signbit(q.numpy()).any()
    assert np.signbit(q.clip[0])


@every_method
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_by_place(name, bad):
    v = normal(600, 700)
    v[501, 33] = bad
    v[599, 0] = np.nan
    with pytest.raises(holdall.ContentError, match=r"tensor 'w'.*\[501, 33\]"):
        quantize(v, name, name="w", clip=(-1, 1))
    with pytest.raises(holdall.ContentError, match=r"tensor 'w'.*\[501, 33\]"):
        quantize(v, name, name="w")


def test_a_tensor_brings_its_name():
    v = normal(4, 40)
    assert bytes(quantize(Tensor.of("w", v), "k4").payload) == bytes(quantize(v, "k4").payload)
    v[2, 3] = np.nan
    with pytest.raises(holdall.ContentError, match=r"tensor 'w'.*\[2, 3\]"):
        quantize(Tensor.of("w", v), "k4")


def test_a_float64_beyond_float32_is_refused():
    with pytest.raises(holdall.ContentError, match=r"\[0, 1\]"):
        quantize(np.array([[1, 1e300]]), "q8")


@pytest.mark.shows("M42")
@pytest.mark.parametrize("mode", ["reference", "ieee", "best"])
def test_clip(mode):
    v = normal(20, 50)
    q = quantize(v, "q8", mode=mode, clip=(-0.5, 0.25))
    assert q.clip == (-0.5, 0.25)
    assert bytes(q.payload) == bytes(quantize(np.clip(v, -0.5, 0.25), "q8", mode=mode).payload)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: quantize(normal(4), "k4"), holdall.ContentError),
        (lambda: quantize(normal(2, 3, 4), "q8"), holdall.ContentError),
        (lambda: quantize(np.zeros((0, 4), np.float32), "q8"), holdall.ContentError),
        (lambda: quantize(np.zeros((4, 4), np.int32), "q8"), holdall.ContentError),
        (lambda: quantize(normal(4, 4), "k8"), holdall.UnsupportedError),
        (lambda: quantize(normal(4, 4), "q8", mode="worst"), holdall.UnsupportedError),
        (lambda: quantize(normal(4, 4), "q8", domain="activations"), holdall.UnsupportedError),
        (lambda: quantize(normal(4, 4), "int8", mode="reference"), holdall.UnsupportedError),
        (lambda: quantize(normal(4, 4), "q8", clip=(1, -1)), holdall.ContentError),
        (lambda: quantize(normal(4, 4), "q8", clip=(0, float("nan"))), holdall.ContentError),
        (lambda: quantize(normal(4, 4), "q8", importance=np.ones(5)), holdall.ContentError),
        (lambda: quantize(normal(4, 4), "q8", importance=[1, 1, 1, -1]), holdall.ContentError),
        (lambda: quantize(normal(4, 4), "q8", mode="ieee", importance=np.ones(4)), holdall.UnsupportedError),
        (lambda: MCF["mcf.k4"].nbytes((4,)), holdall.ContentError),
        (lambda: MCF["mcf.k4"].decode(memoryview(bytes(5)), (1, 8)), holdall.ContentError),
        (lambda: encoding_of("k4", 1), holdall.ContentError),
    ],
)
def test_refusals(make, error):
    with pytest.raises(error):
        make()


def test_measures():
    v = normal(64, 64)
    exact = measure(v, v)
    assert (exact.rmse, exact.snr_db, exact.cosine) == (0, float("inf"), pytest.approx(1))
    gone = measure(v, np.zeros_like(v))
    assert gone.relative == pytest.approx(1)
    assert gone.snr_db == pytest.approx(0)
    for odd in (np.inf, np.nan):
        lost = v.copy()
        lost[0, 0] = odd
        wild = measure(v, lost)
        assert (wild.rmse, wild.relative, wild.max_error, wild.snr_db) == (np.inf, np.inf, np.inf, -np.inf)
    some = measure(v, quantize(v, "k4"))
    miss = v.astype(np.float64) - quantize(v, "k4").numpy()
    assert some.rmse == pytest.approx(np.sqrt(np.mean(miss**2)))
    assert some.max_error == pytest.approx(np.abs(miss).max())
    assert some.bits_per_weight == pytest.approx(8 * quantize(v, "k4").nbytes / v.size)
    assert measure(Tensor.of("w", v), quantize(v, "k4").tensor("w")) == some
    with pytest.raises(holdall.ContentError):
        measure(v, v[1:])


def test_names_of_methods():
    assert find_method(" MCF.K4 ").name == "k4"
    assert [method.id for method in METHODS.values()] == [0x10, 0x11, 0x20, 0x21, 0x30, 0x31, 0x32, 0x33]
