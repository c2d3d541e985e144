"""Small scales: what readers get that take subnormal half-precision numbers for zero, like the CPU decoder of MCF."""

from __future__ import annotations

import numpy as np
import pytest

from holdall.quant import METHODS, quantize, reference

BLOCK_METHODS = [name for name, method in METHODS.items() if method.family != "int"]
SUPER_METHODS = [name for name, method in METHODS.items() if method.family == "k"]
STDS = [1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.02]
LEAST_NORMAL = 2.0**-14

every_block_method = pytest.mark.parametrize("name", BLOCK_METHODS)
every_engine = pytest.mark.parametrize("engine", ["reference", "native"])


def split(name, shape, payload):
    where = METHODS[name].lay_out_blocks(shape)
    return [np.frombuffer(payload, np.uint8)[slice(*part)] for part in (where.scales, where.subs, where.codes)]


def flush(scales):
    """Half-precision numbers as float32, zero where their exponent is 0."""
    bits = scales.view("<u2").astype(np.uint32)
    exponent, fraction = bits >> 10 & 31, bits & 1023
    size = np.ldexp((1024 + fraction).astype(np.float32), exponent.astype(np.int32) - 25)
    return np.where(exponent == 0, np.float32(0), size)


def decode_with_flush(name, shape, payload):
    """Decode a payload as the document says, one code after another out of the stream of bits."""
    method, (rows, cols) = METHODS[name], shape
    scales, subs, codes = split(name, shape, payload)
    blocks = -(-cols // 32)
    scale = flush(scales).reshape(rows, -1)
    if method.super:
        scale = np.repeat(scale, 8, axis=1)[:, :blocks] * ((subs.reshape(rows, blocks) & 63) / np.float32(32))
    bits = np.unpackbits(codes, bitorder="little").reshape(rows, blocks, 32, method.bits).astype(np.int32)
    weights = 1 << np.arange(method.bits)
    weights[-1] *= -1
    return ((bits @ weights) * scale[..., None]).reshape(rows, -1)[:, :cols].astype(np.float32)


def error(values, decoded):
    return np.square(values.astype(np.float64) - decoded).sum()


@every_block_method
@pytest.mark.parametrize("std", STDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_best_has_a_normal_scale_where_the_reference_has_one(name, std, weighted):
    rng = np.random.default_rng(8)
    v = rng.normal(0, std, (64, 800)).astype(np.float32)
    importance = rng.random(800).astype(np.float32) if weighted else None
    plain = quantize(v, name, mode="reference")
    best = quantize(v, name, mode="best", importance=importance)
    kept, chosen = (flush(split(name, v.shape, q.payload)[0]) for q in (plain, best))
    assert (chosen[kept > 0] >= LEAST_NORMAL).all()
    if not weighted:
        assert error(v, decode_with_flush(name, v.shape, best.payload)) <= error(
            v, decode_with_flush(name, v.shape, plain.payload)
        )


def test_six_bits_of_small_weights_survive_the_flush():
    v = np.random.default_rng(9).normal(0, 0.001, (64, 1024)).astype(np.float32)
    q = quantize(v, "k6")
    assert np.sqrt(error(v, decode_with_flush("k6", v.shape, q.payload)) / error(v, 0)) < 0.025
    assert (decode_with_flush("k6", v.shape, q.payload) == q.numpy()).all()


@every_block_method
def test_best_keeps_what_the_reference_loses_for_readers_with_subnormals(name):
    v = np.random.default_rng(10).normal(0, LEAST_NORMAL / 40, (8, 512)).astype(np.float32)
    plain, best = quantize(v, name, mode="reference"), quantize(v, name, mode="best")
    assert error(v, plain.numpy()) == error(v, 0)
    assert error(v, best.numpy()) < error(v, 0) / 2
    assert not decode_with_flush(name, v.shape, best.payload).any()


@pytest.mark.parametrize("name", SUPER_METHODS)
@pytest.mark.parametrize("scale", [np.inf, -np.inf, np.nan, 1.0])
@every_engine
def test_a_sub_scale_of_zero_makes_its_block_zero_whatever_the_super_scale(name, scale, engine):
    kernels = reference if engine == "reference" else pytest.importorskip("holdall.binary.kernels._native")
    method, shape = METHODS[name], (2, 256)
    where = method.lay_out_blocks(shape)
    subs = np.array([0, 1, 64, 65, 128, 33, 192, 255] * 2, np.uint8)  # bits 6 and 7 do not count
    codes = np.full(where.codes[1] - where.codes[0], 0b01010101, np.uint8)
    out = np.full(shape, 7, np.float32)
    kernels.dequantize_blocks(method.bits, 8, *shape, np.full(2, scale, "<f2"), subs, codes, out)
    empty = np.repeat(subs & 63 == 0, 32).reshape(shape)
    assert not out[empty].any() and not np.signbit(out[empty]).any()
    assert (out[~empty] != 0).all()
