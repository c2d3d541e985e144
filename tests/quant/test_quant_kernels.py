"""The C kernels and the numpy ones give the same bits for any values, shapes and instruction sets, and refuse alike."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from holdall.quant import METHODS, reference

native = pytest.importorskip("holdall.binary.kernels._native", reason="the C kernels are not compiled")

BLOCK_METHODS = [name for name, method in METHODS.items() if method.family != "int"]
every_block_method = pytest.mark.parametrize("name", BLOCK_METHODS)
INF = float("inf")

# Plain sizes; tiny ones whose scales are subnormal or vanish; huge ones whose scales overflow; exact powers and ties.
values = st.one_of(
    st.floats(-4, 4, width=32),
    st.floats(-(2.0**-12), 2.0**-12, width=32),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.sampled_from(
        [0.0, -0.0, 0.5, -0.5, 1.0, 1.5, 2.5, 3.5, 7.0, 127.0, 2.0**-14, 2.0**-24, 2.0**-128, 1e-45, 65504]
    ),
)


def regions(method, shape):
    where = method.lay_out_blocks(shape)
    return [np.zeros(stop - start, np.uint8) for start, stop in (where.scales, where.subs, where.codes)]


def quantized(kernels, name, v, mode, clip=(-INF, INF), weights=b"", given=None):
    method = METHODS[name]
    parts = regions(method, v.shape) if given is None else [part.copy() for part in given]
    top = kernels.quantize_blocks(method.bits, 8 if method.super else 0, mode, *v.shape, v, *clip, weights, *parts)
    return top, parts


def decoded(kernels, name, parts, shape):
    method = METHODS[name]
    out = np.full(shape, 7, np.float32)
    kernels.dequantize_blocks(method.bits, 8 if method.super else 0, *shape, *parts, out)
    return out


def alike(a, b):
    return all((x == y).all() for x, y in zip(a, b, strict=True))


@every_block_method
@pytest.mark.parametrize("mode", [reference.REFERENCE, reference.IEEE, reference.BEST])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_twins_agree(name, mode, data):
    shape = data.draw(st.tuples(st.integers(1, 4), st.sampled_from([1, 5, 31, 32, 33, 64, 200, 256, 257, 300])))
    v = data.draw(arrays.arrays(np.float32, shape, elements=values))
    weights = b""
    if mode == reference.BEST and data.draw(st.booleans()):
        weights = data.draw(arrays.arrays(np.float32, shape[1], elements=st.floats(0, 100, width=32)))
    top, mine = quantized(native, name, v, mode, weights=weights)
    twin_top, twin = quantized(reference, name, v, mode, weights=weights)
    assert alike(mine, twin)
    assert top == twin_top == np.abs(v).max()
    assert decoded(native, name, mine, shape).tobytes() == decoded(reference, name, mine, shape).tobytes()
    if mode != reference.REFERENCE:  # mode GIVEN makes the same codes from these scales
        emptied = [mine[0], mine[1], np.zeros_like(mine[2])]
        for kernels in (native, reference):
            assert alike(quantized(kernels, name, v, reference.GIVEN, given=emptied)[1], mine)


@every_block_method
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 5), cols=st.integers(1, 600))
def test_twins_decode_any_bytes(name, seed, rows, cols):
    method, rng = METHODS[name], np.random.default_rng(seed)
    parts = [rng.integers(0, 256, part.size, np.uint8) for part in regions(method, (rows, cols))]
    mine, twin = (decoded(kernels, name, parts, (rows, cols)) for kernels in (native, reference))
    nan = np.isnan(twin)
    assert (np.isnan(mine) == nan).all()
    assert (mine.view("u4")[~nan] == twin.view("u4")[~nan]).all()


@pytest.mark.parametrize("bits", [8, 4])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_flat_twins_agree(bits, data):
    v = data.draw(arrays.arrays(np.float32, st.integers(0, 70), elements=values))
    inverse = data.draw(st.floats(0, 2.0**20, width=32))
    zero = data.draw(st.sampled_from([0.0, 6.0, -128.0, 3.5]))
    lowest = data.draw(st.sampled_from([-(1 << (bits - 1)), 1 - (1 << (bits - 1))]))
    clip = data.draw(st.sampled_from([(-INF, INF), (-1.0, 0.5)]))
    codes, out = [], []
    for kernels in (native, reference):
        packed, restored = np.zeros((v.size * bits + 7) // 8, np.uint8), np.zeros_like(v)
        kernels.quantize_flat(bits, v.size, inverse, zero, lowest, v, *clip, packed)
        kernels.dequantize_flat(bits, v.size, 0.25, zero, packed, restored)
        codes.append(packed.tolist())
        out.append(restored.tobytes())
    assert codes[0] == codes[1]
    assert out[0] == out[1]


DIGEST = """
import hashlib, sys
import numpy as np
from holdall.binary import kernels
from holdall.quant import METHODS, engine
rng = np.random.default_rng(11)
digest = hashlib.sha256()
for shape in ((3, 40), (5, 700)):
    for spread in (0, 30):
        v = (rng.normal(size=shape) * np.exp2(rng.integers(-spread, spread + 1, shape))).astype(np.float32)
        w = np.abs(rng.normal(size=shape[1])).astype(np.float32)
        for method in METHODS.values():
            if method.family == "int":
                continue
            where = method.lay_out_blocks(shape)
            for mode in range(3):
                for weights in (b"", w):
                    parts = [np.zeros(b - a, np.uint8) for a, b in (where.scales, where.subs, where.codes)]
                    group = 8 if method.super else 0
                    inf = float("inf")
                    engine.quantize_blocks(method.bits, group, mode, *shape, v, -inf, inf, weights, *parts)
                    out = np.empty(shape, np.float32)
                    engine.dequantize_blocks(method.bits, group, *shape, *parts, out)
                    for part in (*parts, out):
                        digest.update(part.tobytes())
print(kernels.NATIVE, kernels.simd_level(), digest.hexdigest())
"""


def digest(**setting: str) -> list[str]:
    ran = subprocess.run([sys.executable, "-c", DIGEST], capture_output=True, text=True, env={**os.environ, **setting})
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


def test_every_instruction_set_gives_the_same_bits():
    twin = digest(HOLDALL_NATIVE="0")
    assert twin[0] == "False"
    for level in "012":
        found = digest(HOLDALL_SIMD=level)
        assert found[0] == "True"
        assert found[2] == twin[2], f"level {found[1]}"


@pytest.fixture(params=["native", "reference"])
def kernels(request):
    return native if request.param == "native" else reference


@every_block_method
def test_values_that_are_not_finite_show_in_the_magnitude(kernels, name):
    for bad, shows in ((np.nan, np.isnan), (np.inf, np.isinf), (-np.inf, np.isinf)):
        v = np.ones((2, 40), np.float32)
        v[1, 39] = bad
        for mode in range(3):
            assert shows(quantized(kernels, name, v, mode)[0])


def test_buffers_at_odd_addresses(kernels):
    v = np.random.default_rng(3).normal(size=(2, 70)).astype(np.float32)
    for name in BLOCK_METHODS:
        _, wanted = quantized(kernels, name, v, 2)
        method = METHODS[name]
        shifted = memoryview(b"x" + v.tobytes())[1:]
        parts = [memoryview(bytearray(part.size + 1))[1:] for part in wanted]
        kernels.quantize_blocks(method.bits, 8 if method.super else 0, 2, 2, 70, shifted, -INF, INF, b"", *parts)
        assert [bytes(part) for part in parts] == [part.tobytes() for part in wanted]
        out = memoryview(bytearray(4 * 140 + 1))[1:]
        kernels.dequantize_blocks(method.bits, 8 if method.super else 0, 2, 70, *parts, out)
        assert bytes(out) == decoded(kernels, name, wanted, (2, 70)).tobytes()


@pytest.mark.parametrize(
    ("bits", "group", "mode", "rows", "cols"),
    [
        (5, 0, 0, 1, 32),
        (6, 0, 0, 1, 32),
        (8, 8, 0, 1, 32),
        (4, 1, 0, 1, 32),
        (8, 0, 4, 1, 32),
        (8, 0, 0, 1, 0),
        (8, 0, 0, 2, 32),
        (8, 0, 0, 1, 33),
        (8, 0, 0, 2**62, 2**62),
        (8, 0, 0, 2**64, 1),
        (8, 0, 0, -1, 32),
    ],
)
def test_wrong_numbers_are_refused(kernels, bits, group, mode, rows, cols):
    with pytest.raises(ValueError):
        kernels.quantize_blocks(
            bits, group, mode, rows, cols, bytes(128), -1, 1, b"", bytearray(2), bytearray(0), bytearray(32)
        )  # fmt: skip
    if mode < 4:
        with pytest.raises(ValueError):
            kernels.dequantize_blocks(bits, group, rows, cols, bytes(2), b"", bytes(32), bytearray(128))


def test_wrong_buffers_are_refused(kernels):
    good = [bytes(128), -1, 1, b"", bytearray(2), bytearray(0), bytearray(32)]
    kernels.quantize_blocks(8, 0, 0, 1, 32, *good)
    for place, bad in ((0, bytes(127)), (3, bytes(4)), (4, bytearray(4)), (5, bytearray(1)), (6, bytearray(31))):
        with pytest.raises(ValueError):
            kernels.quantize_blocks(8, 0, 0, 1, 32, *good[:place], bad, *good[place + 1 :])
    with pytest.raises(TypeError):
        kernels.quantize_blocks(8, 0, 0, 1, 32, *good[:6], bytes(32))
    for bits, count, codes, out in ((3, 1, 1, 4), (8, 2, 1, 8), (4, 3, 1, 12), (4, 2, 1, 4), (8, 2**63, 1, 4)):
        with pytest.raises(ValueError):
            kernels.dequantize_flat(bits, count, 1.0, 0.0, bytes(codes), bytearray(out))
        with pytest.raises(ValueError):
            kernels.quantize_flat(bits, count, 1.0, 0.0, -1, bytes(out), -1, 1, bytearray(codes))
