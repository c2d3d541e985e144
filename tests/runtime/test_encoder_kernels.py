"""GELU, layer normalization and softmax: right, and the same bits from C and from their twins."""

from __future__ import annotations

import os
import subprocess
import sys
from math import erf

import numpy as np
import pytest

from holdall.binary import kernels
from holdall.binary.kernels import encoder_reference as twins

IMPLEMENTATIONS = pytest.mark.parametrize("kernel", [kernels, twins], ids=["chosen", "twin"])


@pytest.mark.parametrize("width", [1, 3, 8, 20, 384, 385])
def test_the_twins_agree_to_the_bit(width):
    random = np.random.default_rng(width)
    values, residual = (random.standard_normal((37, width)) * 4).astype(np.float32), random.standard_normal((37, width))
    values[0, 0], values[1, 0], values[2, -1] = 60, -60, -0.0
    residual = residual.astype(np.float32)
    bias, weight, shift = random.standard_normal((3, width)).astype(np.float32)
    for apply in (
        lambda kernel, array: kernel.bias_gelu(array, bias),
        lambda kernel, array: kernel.add_norm(array, residual, bias, weight, shift, 1e-12),
        lambda kernel, array: kernel.softmax(array, width),
    ):
        a, b = values.copy(), values.copy()
        apply(kernels, a)
        apply(twins, b)
        assert a.tobytes() == b.tobytes()


DIGEST = """
import hashlib
import numpy as np
from holdall.binary import kernels
random = np.random.default_rng(5)
values, residual = random.standard_normal((2, 60, 77)).astype(np.float32) * 5
bias, weight, shift = random.standard_normal((3, 77)).astype(np.float32)
digest = hashlib.sha256()
for apply in (
    lambda array: kernels.bias_gelu(array, bias),
    lambda array: kernels.add_norm(array, residual, bias, weight, shift, 1e-5),
    lambda array: kernels.softmax(array, 77),
):
    array = values.copy()
    apply(array)
    digest.update(array)
print(digest.hexdigest())
"""


def test_every_instruction_set_gives_the_same_bits():
    path = os.pathsep.join(filter(None, sys.path))
    found = set()
    for chosen in ({"HOLDALL_NATIVE": "0"}, *({"HOLDALL_NATIVE": "1", "HOLDALL_SIMD": level} for level in "012")):
        environment = {**os.environ, "PYTHONPATH": path, **chosen}
        done = subprocess.run([sys.executable, "-c", DIGEST], env=environment, capture_output=True, check=True)
        found.add(done.stdout)
    assert len(found) == 1


@IMPLEMENTATIONS
def test_gelu_is_the_one_with_erf(kernel):
    x = np.concatenate([np.linspace(-8, 8, 20_001), [0, 5.656854, -5.656854, 1e-30, 3e38, -3e38]]).astype(np.float32)
    got = x.copy()
    kernel.bias_gelu(got, np.zeros(1, np.float32))
    want = np.array([v * 0.5 * (1 + erf(v / 2**0.5)) for v in x.astype(np.float64)])
    assert np.all(np.abs(got - want) <= 1e-7 * np.maximum(1, np.abs(want)))
    special = np.array([np.inf, np.nan], np.float32)
    kernel.bias_gelu(special, np.zeros(2, np.float32))
    assert special[0] == np.inf
    assert np.isnan(special[1])


@IMPLEMENTATIONS
def test_norm_and_softmax_are_right(kernel):
    random = np.random.default_rng(1)
    x, y = random.standard_normal((2, 50, 48)).astype(np.float32)
    b, w, s = random.standard_normal((3, 48)).astype(np.float32)
    got = x.copy()
    kernel.add_norm(got, y, b, w, s, 1e-5)
    total = x.astype(np.float64) + b + y
    apart = total - total.mean(1, keepdims=True)
    want = apart / np.sqrt((apart**2).mean(1, keepdims=True) + 1e-5) * w + s
    assert np.abs(got - want).max() < 2e-6
    got = x * 30
    got[0, 0] = -1000
    wide = np.exp(got.astype(np.float64) - got.max(1, keepdims=True))
    kernel.softmax(got, 48)
    assert np.abs(got - wide / wide.sum(1, keepdims=True)).max() < 2e-7


@IMPLEMENTATIONS
def test_sizes_that_do_not_fit_are_refused(kernel):
    four, three = np.zeros(4, np.float32), np.zeros(3, np.float32)
    for call in (
        lambda: kernel.bias_gelu(four, three),
        lambda: kernel.bias_gelu(four, b""),
        lambda: kernel.add_norm(four, three, four, four, four, 0.0),
        lambda: kernel.add_norm(four, four, three, four, four, 0.0),
        lambda: kernel.add_norm(four, four, four, four, three, 0.0),
        lambda: kernel.softmax(four, 3),
        lambda: kernel.softmax(four, 0),
        lambda: kernel.softmax(four, -1),
        lambda: kernel.softmax(bytearray(3), 1),
    ):
        with pytest.raises(ValueError, match=r"rows|size"):
            call()
    with pytest.raises((TypeError, BufferError)):
        kernel.softmax(bytes(4), 1)
    kernel.softmax(np.zeros(0, np.float32), 5)
